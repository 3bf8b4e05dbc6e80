//! A TCP socket on the engine: a connection or a listener, and the commands on it. The last reference closes it.

use core::net::SocketAddr;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::OnceLock;
use std::time::Duration;

use hostif::header::{SHUT_READ, SHUT_WRITE};
use hostif::region::RegionError;
use hostif::{
    CongestionFigures, Figures, Flags, Op, OptionChanges, Query, ShutdownHow, WindowPlace,
    WindowSpan,
};
use rustix::io::Errno;

use crate::engines::session::registry::EngineSocket;
use crate::engines::session::{Opened, Session};
use crate::readiness::State;
use crate::socket::{Socket, SocketCore};
use crate::tcp::byte_channels::ByteChannels;
use crate::tcp::listener::PerCore;

/// How often a listener that is being made is looked for, and how long there is between two looks: it takes some system
/// calls, and a program that was stopped in between keeps nobody longer.
const LOOKS_MAX: u32 = 200;
const BETWEEN_LOOKS: Duration = Duration::from_micros(100);

/// The windows of a connection.
pub(crate) struct Windows {
    /// Of what is sent, and of what is received.
    pub(crate) spans: (WindowSpan, WindowSpan),
    pub(crate) sent: WindowPlace,
    pub(crate) received: WindowPlace,
}

/// See the file's head.
pub struct TcpSocket {
    core: SocketCore,
    /// Once the connection stands.
    windows: OnceLock<Windows>,
    /// Of a connection to a local peer: its byte channels, once this process has looked at them.
    pub(crate) byte_channels: OnceLock<ByteChannels>,
    /// Of a listener: its sockets on the engine's other cores.
    pub(crate) per_core: OnceLock<Box<PerCore>>,
    /// Of a listener: where.
    pub(crate) listens_at: OnceLock<SocketAddr>,
    /// Of a listener: how many connections may wait.
    pub(crate) backlog: AtomicU32,
    /// Of a listener: its connections get backing sockets of AF_INET6, as it has one itself.
    pub(crate) is_v6: AtomicBool,
    /// TCP_NOTSENT_LOWAT; 0: none.
    pub(crate) unsent_limit: AtomicU32,
    /// SO_OOBINLINE.
    pub(crate) urgent_in_line: AtomicBool,
    /// Bytes that the SYN waits for; 0: it does not wait.
    pub(crate) syn_capacity: AtomicU32,
}

/// net/tcp_states.h.
const CLOSED: u64 = 7;

impl TcpSocket {
    /// Over a header of a region.
    pub(crate) fn new(session: &'static Session, opened: Opened) -> Result<TcpSocket, Errno> {
        Ok(TcpSocket {
            core: SocketCore::new(session, opened)?,
            windows: OnceLock::new(),
            byte_channels: OnceLock::new(),
            per_core: OnceLock::new(),
            listens_at: OnceLock::new(),
            backlog: AtomicU32::new(0),
            is_v6: AtomicBool::new(false),
            unsent_limit: AtomicU32::new(0),
            urgent_in_line: AtomicBool::new(false),
            syn_capacity: AtomicU32::new(0),
        })
    }

    /// The windows, once the connection stands.
    #[inline]
    pub(crate) fn spans(&self) -> Option<(WindowSpan, WindowSpan)> {
        self.known_spans().or_else(|| self.find_spans())
    }

    #[inline(never)]
    fn find_spans(&self) -> Option<(WindowSpan, WindowSpan)> {
        let header = self.header();
        let has_windows = header.flags().contains(Flags::CONNECTED) || self.syn_capacity() > 0;
        if !has_windows || !header.is_of(self.id()) {
            return None;
        }
        let (send, receive) = header.windows();
        let places = [send, receive].map(|span| {
            let place = self.region().window_place(span);
            place.map_err(|error| self.on_unmapped(&error)).ok()
        });
        let [Some(sent), Some(received)] = places else {
            return None;
        };
        let windows = Windows {
            spans: (send, receive),
            sent,
            received,
        };
        Some(self.windows.get_or_init(|| windows).spans)
    }

    /// This process cannot map the connection's windows: the connection is over, and what to raise is said.
    #[cold]
    fn on_unmapped(&self, error: &RegionError) {
        if self.set_lost() {
            crate::say::say(&format!(
                "a connection is reset, since its memory cannot be mapped ({error}): raise `ulimit -v`"
            ));
        }
    }

    /// The windows, if this process has looked at them since the connection stands.
    #[inline]
    pub(crate) fn known_windows(&self) -> Option<&Windows> {
        self.windows.get()
    }

    /// Where they are.
    #[inline]
    pub(crate) fn known_spans(&self) -> Option<(WindowSpan, WindowSpan)> {
        self.known_windows().map(|windows| windows.spans)
    }

    /// Starts to connect. The state then tells the outcome: `Connected`, or `Closed` with an error.
    pub fn connect(&self, remote: SocketAddr, local: Option<SocketAddr>) -> Result<(), Errno> {
        let local = match local {
            Some(local) => Some(self.session().placed(local, remote)?),
            None => None,
        };
        self.header().program_forget_error();
        self.call(Op::Connect { remote, local }).map(drop)
    }

    /// As `connect` to an address of the engine's own, where one of its listeners would hear it; else ECONNREFUSED, and
    /// nothing was sent. One that is being made is waited for, as the kernel hears in its place already.
    pub fn connect_heard(
        &self,
        remote: SocketAddr,
        local: Option<SocketAddr>,
    ) -> Result<(), Errno> {
        let placed = |local| self.session().placed(local, remote);
        let local = local.map(placed).transpose()?;
        self.header().program_forget_error();
        let op = Op::ConnectHeard { remote, local };
        for _ in 0..LOOKS_MAX {
            match self.call(op) {
                Err(Errno::AGAIN) => std::thread::sleep(BETWEEN_LOOKS),
                done => return done.map(drop),
            }
        }
        Err(Errno::CONNREFUSED)
    }

    /// The connection's figures (`TCP_INFO`). What waits at a listener is counted over the engine's cores.
    pub fn figures(&self) -> Result<Figures, Errno> {
        let mut parts = self.parts().map(|part| part.own_figures());
        let own = parts.next().ok_or(Errno::PROTO)??;
        parts.try_fold(own, |mut sum, part| {
            sum.unacked += part?.unacked;
            Ok(sum)
        })
    }

    /// Bytes written and not acknowledged, with our FIN (SIOCOUTQ): the engine is asked where the header may be behind.
    #[must_use]
    pub fn unacknowledged_now(&self) -> usize {
        let told = self.unacknowledged_bytes();
        let is_settled = told == 0 && !self.shut().1;
        if is_settled || self.state() != State::Connected || self.sends_by_byte_channel() {
            return told;
        }
        match self.own_figures() {
            Ok(figures) if figures.state != CLOSED => {
                usize::try_from(figures.unacknowledged).unwrap_or(usize::MAX)
            }
            _ => told,
        }
    }

    /// What its congestion control believes (`TCP_CC_INFO`).
    pub fn congestion_figures(&self) -> Result<CongestionFigures, Errno> {
        let words = self.query_words(Query::Congestion)?;
        Ok(CongestionFigures::from_words(&words))
    }

    /// Whether it ends with this process's hold: no other process has it, nor a descriptor that the engine does not see.
    pub fn is_held_alone(&self) -> bool {
        let what = Query::Holders;
        self.core().call(Op::Query { what }) == Ok(1)
    }

    /// Ends one or both directions; what is written goes out first.
    pub fn shutdown(&self, how: ShutdownHow) -> Result<(), Errno> {
        match self.state() {
            State::Idle | State::Connecting => return Err(Errno::NOTCONN),
            State::Closed if !self.header().flags().contains(Flags::CONNECTED) => {
                return Err(Errno::NOTCONN);
            }
            State::Listening => return self.shut_listener(how),
            State::Connected | State::Closed => {}
        }
        let bits = match how {
            ShutdownHow::Read => SHUT_READ,
            ShutdownHow::Write => SHUT_WRITE,
            ShutdownHow::Both => SHUT_READ | SHUT_WRITE,
        };
        let attachment = self.living()?;
        let header = self.header();
        // Under the lock, so that nothing is written after the position that the FIN follows.
        let held = self.hold(attachment, header.send_lock())?;
        header.program_shut(bits);
        let written = header.written();
        drop(held);
        self.session()
            .post(self.id(), Op::Shutdown { how, written })
    }

    /// Every core, and every engine, has stopped when this returns: who listens next shall find the port free.
    fn shut_listener(&self, how: ShutdownHow) -> Result<(), Errno> {
        for part in self.parts() {
            let shutdown = Op::Shutdown { how, written: 0 };
            part.call(shutdown)?;
            part.session().on_listener_closed();
        }
        Ok(())
    }

    /// Ends the connection with RST and drops this process's hold.
    pub fn abort(&self) {
        let changes = OptionChanges {
            linger_s: Some(Some(0)),
            ..OptionChanges::default()
        };
        let _ = self.set_options(&changes);
        self.close();
        // Who still calls it finds it reset.
        self.set_lost();
    }
}

impl Deref for TcpSocket {
    type Target = SocketCore;

    fn deref(&self) -> &SocketCore {
        &self.core
    }
}

impl EngineSocket for TcpSocket {
    fn lose(&self) {
        self.set_lost();
    }
}

impl Drop for TcpSocket {
    fn drop(&mut self) {
        Socket::close(self);
    }
}
