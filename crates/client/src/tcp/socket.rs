//! A TCP socket on the engine: its name, its header in a region, and the commands on it.
//!
//! All calls take `&self` and may come from several threads at once. The last reference closes it.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hostif::header::{SHUT_READ, SHUT_WRITE};
use hostif::region::RegionError;
use hostif::{
    CongestionFigures, Figures, Flags, HeaderPlace, Op, OptionChanges, Query, Region, RegionLock,
    ShutdownHow, SocketHeader, SocketId, SocketOption, WindowSpan,
};
use rustix::io::Errno;

use crate::engines::attachment::Attachment;
use crate::engines::registry::{EngineSocket, Observer};
use crate::engines::session::Session;
use crate::lock::lock;
use crate::readiness::State;
use crate::tcp::byte_channels::ByteChannels;
use crate::tcp::listener::PerCore;

/// How often a listener that is being made is looked for, and how long there is between two looks: it takes some system
/// calls, and a program that was stopped in between keeps nobody longer.
const LOOKS_MAX: u32 = 200;
const BETWEEN_LOOKS: Duration = Duration::from_micros(100);

/// See the file's head.
pub struct TcpSocket {
    session: &'static Session,
    id: SocketId,
    region: Region,
    place: HeaderPlace,
    /// Send and receive window, once the connection stands.
    spans: OnceLock<(WindowSpan, WindowSpan)>,
    /// Of a connection to a neighbour; see there.
    pub(crate) byte_channels: OnceLock<ByteChannels>,
    /// This process has dropped it.
    closed: AtomicBool,
    /// Its engine does not know this process as a holder.
    lost: AtomicBool,
    /// The reset that a lost engine means has been reported.
    reset_reported: AtomicBool,
    /// Of a listener: its like on the engine's other cores.
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
    pub(crate) syn_room: AtomicU32,
}

impl TcpSocket {
    /// Over a header of a region; the header's index is checked here, once.
    pub(crate) fn new(
        session: &'static Session,
        id: SocketId,
        region: Region,
        header: u32,
    ) -> Result<Arc<TcpSocket>, Errno> {
        let place = region.header_place(header).ok_or(Errno::PROTO)?;
        Ok(Arc::new(TcpSocket {
            session,
            id,
            region,
            place,
            spans: OnceLock::new(),
            byte_channels: OnceLock::new(),
            closed: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            reset_reported: AtomicBool::new(false),
            per_core: OnceLock::new(),
            listens_at: OnceLock::new(),
            backlog: AtomicU32::new(0),
            is_v6: AtomicBool::new(false),
            unsent_limit: AtomicU32::new(0),
            urgent_in_line: AtomicBool::new(false),
            syn_room: AtomicU32::new(0),
        }))
    }

    /// The engine's name for it.
    #[must_use]
    pub fn id(&self) -> SocketId {
        self.id
    }

    /// The session it belongs to.
    #[must_use]
    pub fn session(&self) -> &'static Session {
        self.session
    }

    /// The attachment to the core that serves the socket.
    pub(crate) fn attachment(&self) -> Result<&'static Attachment, Errno> {
        self.session.attachment(self.id.core())
    }

    /// The attachment, or ECONNRESET if the engine is gone.
    pub(crate) fn living(&self) -> Result<&'static Attachment, Errno> {
        self.session.living(self.id.core())
    }

    /// A call found nothing to do: now and then look whether that is because the engine is gone.
    pub(crate) fn on_idle_call(&self) {
        let all = self.session.attached();
        if let Some(attachment) = all.and_then(|all| all.to_core(self.id.core())) {
            self.session.on_idle_call(attachment);
        }
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn header(&self) -> SocketHeader<'_> {
        self.place.header()
    }

    /// The windows, once the connection stands.
    pub(crate) fn spans(&self) -> Option<(WindowSpan, WindowSpan)> {
        if let Some(spans) = self.spans.get() {
            return Some(*spans);
        }
        let header = self.header();
        let has_windows = header.flags().contains(Flags::CONNECTED) || self.syn_room() > 0;
        if !has_windows || !header.is_of(self.id) {
            return None;
        }
        let (send, receive) = header.windows();
        for span in [send, receive] {
            if let Err(error) = self.region.try_window(span) {
                self.on_unmapped(&error);
                return None;
            }
        }
        Some(*self.spans.get_or_init(|| (send, receive)))
    }

    /// Whether this process has closed it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether the engine, or this process's hold on the socket, is gone.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        self.lost.load(Ordering::Acquire) || self.session.is_dead() || !self.header().is_of(self.id)
    }

    /// Whether that has not been reported as an error yet.
    pub(crate) fn is_reset_unreported(&self) -> bool {
        self.is_reset()
            && !self.reset_reported.load(Ordering::Acquire)
            && !self.is_served_elsewhere()
    }

    /// This process has no room for the connection's windows: the connection is over, and what to raise is said.
    #[cold]
    fn on_unmapped(&self, error: &RegionError) {
        if !self.lost.swap(true, Ordering::AcqRel) {
            crate::say::say(&format!(
                "a connection is reset, since its memory cannot be mapped ({error}): raise `ulimit -v`"
            ));
        }
    }

    /// Takes a lock of the header in the session's name.
    pub(crate) fn hold<'a>(
        &'a self,
        attachment: &'static Attachment,
        lock: RegionLock<'a>,
    ) -> Result<Held<'a>, Errno> {
        self.hold_by(attachment, lock, RegionLock::lock)
    }

    /// As `hold`, for who only copies, and publishes by comparing (`RegionLock::lock_to_copy`).
    pub(crate) fn hold_to_copy<'a>(
        &'a self,
        attachment: &'static Attachment,
        lock: RegionLock<'a>,
    ) -> Result<Held<'a>, Errno> {
        self.hold_by(attachment, lock, RegionLock::lock_to_copy)
    }

    fn hold_by<'a>(
        &'a self,
        attachment: &'static Attachment,
        lock: RegionLock<'a>,
        take: impl FnOnce(&RegionLock<'a>, u32, &mut dyn FnMut() -> bool) -> bool,
    ) -> Result<Held<'a>, Errno> {
        let session = attachment.session;
        let mut keep_waiting = || !attachment.is_dead() && !attachment.control.is_hung_up();
        if take(&lock, session, &mut keep_waiting) {
            Ok(Held { lock, session })
        } else {
            Err(Errno::CONNRESET)
        }
    }

    /// As `hold`, where the lock is free.
    pub(crate) fn try_hold<'a>(
        &'a self,
        attachment: &'static Attachment,
        lock: RegionLock<'a>,
    ) -> Option<Held<'a>> {
        let session = attachment.session;
        lock.try_lock(session).then_some(Held { lock, session })
    }

    /// Takes the pending error (SO_ERROR), which the next call would report otherwise. EBADF: another thread has closed it.
    #[must_use]
    pub fn take_error(&self) -> Option<Errno> {
        if let Some(errno) = self.take_told_error() {
            return Some(i32::try_from(errno).map_or(Errno::IO, Errno::from_raw_os_error));
        }
        if self.is_closed() && !self.lost.load(Ordering::Acquire) {
            return Some(Errno::BADF);
        }
        (self.is_reset_unreported() && !self.reset_reported.swap(true, Ordering::AcqRel))
            .then_some(Errno::CONNRESET)
    }

    /// What the engine has told; once the socket is closed the header may be another one's.
    fn take_told_error(&self) -> Option<u32> {
        let header = self.header();
        if !header.is_of(self.id) {
            return None;
        }
        if header.flags().contains(Flags::DATAGRAM) {
            header.program_take_soft_error().map(u32::from)
        } else {
            header.program_take_error()
        }
    }

    /// The local address, once known.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.header().addresses().0
    }

    /// The peer, once known.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.header().addresses().1
    }

    /// Takes a local address and returns it with its port.
    pub fn bind(&self, local: SocketAddr) -> Result<SocketAddr, Errno> {
        let port = self.session.call_plain(self.id, Op::Bind { local })?;
        let port = u16::try_from(port).map_err(|_| Errno::PROTO)?;
        Ok(SocketAddr::new(local.ip(), port))
    }

    /// Starts to connect. The state then tells the outcome: `Connected`, or `Closed` with an error.
    pub fn connect(&self, remote: SocketAddr, local: Option<SocketAddr>) -> Result<(), Errno> {
        let local = match local {
            Some(local) => Some(self.session.placed(local, remote)?),
            None => None,
        };
        self.header().program_forget_error();
        self.session
            .call_plain(self.id, Op::Connect { remote, local })
            .map(drop)
    }

    /// As `connect` to an address of the engine's own, where one of its listeners would hear it; else ECONNREFUSED, and
    /// nothing was sent. One that is being made is waited for, as the kernel hears in its place already.
    pub fn connect_heard(
        &self,
        remote: SocketAddr,
        local: Option<SocketAddr>,
    ) -> Result<(), Errno> {
        let placed = |local| self.session.placed(local, remote);
        let local = local.map(placed).transpose()?;
        self.header().program_forget_error();
        let op = Op::ConnectHeard { remote, local };
        for _ in 0..LOOKS_MAX {
            match self.session.call_plain(self.id, op) {
                Err(Errno::AGAIN) => std::thread::sleep(BETWEEN_LOOKS),
                done => return done.map(drop),
            }
        }
        Err(Errno::CONNREFUSED)
    }

    /// Changes options; takes effect soon.
    pub fn set_options(&self, changes: &OptionChanges) -> Result<(), Errno> {
        if *changes == OptionChanges::default() {
            return Ok(());
        }
        for part in self.parts() {
            part.session.post(part.id, Op::SetOptions(*changes))?;
        }
        Ok(())
    }

    /// Changes one of the rarer options; takes effect soon.
    pub fn set_option(&self, option: SocketOption, value: u64) -> Result<(), Errno> {
        for part in self.parts() {
            part.session
                .post(part.id, Op::SetOption { option, value })?;
        }
        Ok(())
    }

    /// Asks the engine for more than a completion holds; the bytes of the answer.
    pub fn query(&self, what: Query) -> Result<Vec<u8>, Errno> {
        let attachment = self.living()?;
        // The region has room for one answer.
        let _asking = lock(&attachment.asking);
        let len = self.session.call_plain(self.id, Op::Query { what })?;
        let answer = attachment.region.answer();
        let bytes = answer.iter().flat_map(|word| word.to_le_bytes());
        Ok(bytes.take(usize::try_from(len).unwrap_or(0)).collect())
    }

    /// The connection's figures (`TCP_INFO`). What waits at a listener is counted over the engine's cores.
    pub fn figures(&self) -> Result<Figures, Errno> {
        let mut parts = self.parts().map(TcpSocket::own_figures);
        let own = parts.next().ok_or(Errno::PROTO)??;
        parts.try_fold(own, |mut sum, part| {
            sum.unacked += part?.unacked;
            Ok(sum)
        })
    }

    fn own_figures(&self) -> Result<Figures, Errno> {
        let words = self.query_words(Query::Figures)?;
        Ok(Figures::from_words(&words))
    }

    fn query_words(&self, what: Query) -> Result<Vec<u64>, Errno> {
        let bytes = self.query(what)?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// What its congestion control believes (`TCP_CC_INFO`).
    pub fn congestion_figures(&self) -> Result<CongestionFigures, Errno> {
        let words = self.query_words(Query::Congestion)?;
        Ok(CongestionFigures::from_words(&words))
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
        self.session.post(self.id, Op::Shutdown { how, written })
    }

    /// Every core, and every engine, has stopped when this returns: who listens next shall find the port free.
    fn shut_listener(&self, how: ShutdownHow) -> Result<(), Errno> {
        for part in self.parts() {
            let shutdown = Op::Shutdown { how, written: 0 };
            part.session.call_plain(part.id, shutdown)?;
            part.session.on_listener_closed();
        }
        Ok(())
    }

    /// Drops this process's hold. The engine then ends the connection as the kernel would: FIN, or RST
    /// where bytes were not read or lingering is off; other processes that hold the socket keep it.
    pub fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        // The first core ends the kernel's part of a listener, which hears for the others otherwise.
        self.close_own();
        self.close_per_core();
    }

    fn close_own(&self) {
        let flags = self.header().flags();
        let holds_port = flags.intersects(Flags::LISTENING | Flags::DATAGRAM);
        // The next engine may have given its name to another socket.
        if self.lost.load(Ordering::Acquire) {
            return;
        }
        lock(&self.session.registry).remove(self.id);
        let header = self.header();
        if !header.is_of(self.id) {
            return;
        }
        let close = Op::Close {
            written: header.written(),
            consumed: header.consumed(),
        };
        // Both fail only when the engine is gone, which closes everything.
        if holds_port {
            // The engine holds the backing socket as well, and with it the port: who binds next shall find it free.
            // Who waits for the answer needs a descriptor, of which there may be none.
            if self.session.call(self.id, close).is_err() {
                let _ = self.session.post(self.id, close);
            }
            if flags.contains(Flags::LISTENING) {
                self.session.on_listener_closed();
            }
        } else {
            let _ = self.session.post(self.id, close);
        }
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
        self.lose();
    }

    /// Registers an observer, in place of one with the same token. Look at the socket afterwards: what
    /// happened before is not told.
    pub fn observe(&self, token: u64, observer: Arc<dyn Observer>) {
        for part in self.parts() {
            part.session.observe(part.id, token, Arc::clone(&observer));
        }
    }

    /// Removes the observer with that token.
    pub fn forget(&self, token: u64) {
        for part in self.parts() {
            part.session.forget(part.id, token);
        }
    }
}

impl EngineSocket for TcpSocket {
    fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

impl Drop for TcpSocket {
    fn drop(&mut self) {
        self.close();
    }
}

/// A lock of a header, held.
pub struct Held<'a> {
    lock: RegionLock<'a>,
    session: u32,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lock.unlock(self.session);
    }
}
