//! A UDP socket on the engine: as for streams the data passes through shared memory, in records
//! (`hostif::datagram`). See udp(7).
//!
//! A socket has rings once it is bound. `send` and `receive` move records, several under one lock if wanted.

use core::net::{IpAddr, SocketAddr};
use core::ops::Deref;
use std::sync::Arc;

use hostif::control::Request;
use hostif::datagram::Rings;
use hostif::header::{SHUT_READ, SHUT_WRITE};
use hostif::window::is_writable;
use hostif::{DatagramOptions, Flags, MembershipChange, Op, SocketHeader, SocketId, WindowSpan};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use crate::engines::attached::Engines;
use crate::engines::session::registry::EngineSocket;
use crate::engines::session::{Opened, Session};
use crate::readiness::{Readiness, State};
use crate::socket::{Socket, SocketCore};
use crate::wait::Awaited;

/// A UDP socket on the engine. The last reference closes it.
pub struct UdpSocket {
    core: SocketCore,
}

impl Deref for UdpSocket {
    type Target = SocketCore;

    fn deref(&self) -> &SocketCore {
        &self.core
    }
}

impl EngineSocket for UdpSocket {
    fn lose(&self) {
        self.set_lost();
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        Socket::close(self);
    }
}

impl Awaited for UdpSocket {
    fn visit_parts(&self, visit: &mut dyn FnMut(&Session, SocketId)) {
        visit(self.session(), self.id());
    }

    fn hears_past_engine(&self) -> bool {
        false
    }

    fn request_news(&self) {}
}

impl Socket for UdpSocket {
    fn core(&self) -> &SocketCore {
        self
    }

    fn state(&self) -> State {
        if self.is_reset() {
            State::Closed
        } else {
            self.told_state()
        }
    }

    /// `datagram_poll` of Linux.
    fn readiness(&self) -> Readiness {
        let header = self.header();
        let shut = header.shut();
        let mut ready = Readiness::empty();
        ready.set(Readiness::ERR, self.has_error() || self.has_failures());
        ready.set(
            Readiness::IN,
            self.readable_bytes() > 0 || shut & SHUT_READ != 0,
        );
        ready.set(Readiness::RDHUP, shut & SHUT_READ != 0);
        ready.set(Readiness::HUP, shut == SHUT_READ | SHUT_WRITE);
        ready.set(Readiness::OUT, self.has_capacity(&header));
        ready
    }

    fn has_error(&self) -> bool {
        self.header().soft_error_pending() || self.is_reset_unreported()
    }

    fn take_error(&self) -> Option<Errno> {
        let take = |header: &SocketHeader<'_>| header.program_take_soft_error().map(u32::from);
        self.take_error_by(take, || false)
    }

    fn rx_events(&self) -> u32 {
        self.header().rx_events()
    }

    fn mark(&self, marks: u32, on: bool) {
        self.header().program_mark(marks, on);
    }

    fn close(&self) {
        if self.set_closed() {
            self.release(self.header().flags().contains(Flags::DATAGRAM));
        }
    }
}

impl UdpSocket {
    pub(crate) fn new(session: &'static Session, opened: Opened) -> Result<UdpSocket, Errno> {
        let core = SocketCore::new(session, opened)?;
        Ok(UdpSocket { core })
    }

    /// Makes an engine socket for a backing socket (SOCK_DGRAM), which the engine gets a duplicate of.
    pub fn open(
        session: &'static Session,
        backing: BorrowedFd<'_>,
    ) -> Result<Arc<UdpSocket>, Errno> {
        session.open(0, (&Request::OpenDatagram, backing), UdpSocket::new)
    }

    /// The socket of one of the engines that a descriptor of SOCK_DGRAM stands for, which came from elsewhere; `None`: it is
    /// none of theirs.
    pub fn adopt(
        engines: &Engines,
        backing: BorrowedFd<'_>,
    ) -> Result<Option<Arc<UdpSocket>>, Errno> {
        for session in engines.sessions().iter().filter(|one| !one.is_dead()) {
            for core in 0..session.attachments()?.steering.cores {
                let found = session.adopt_at(core, backing, UdpSocket::new)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    /// Bytes that wait in the receive ring, of datagrams and what belongs to each.
    #[must_use]
    pub fn readable_bytes(&self) -> u64 {
        let header = self.header();
        header.received_end().saturating_sub(header.consumed())
    }

    /// Gives it a peer, and binds it to `local` where that has not been done.
    ///
    /// # Errors
    /// ENETUNREACH, EACCES and what else the engine says.
    pub fn connect(&self, remote: SocketAddr, local: Option<SocketAddr>) -> Result<(), Errno> {
        self.call(Op::Connect { remote, local }).map(drop)
    }

    /// Takes the peer away.
    ///
    /// # Errors
    /// What the engine says.
    pub fn disconnect(&self) -> Result<(), Errno> {
        self.call(Op::Disconnect).map(drop)
    }

    /// Changes its options: of what is sent from now on, and of nothing before.
    ///
    /// # Errors
    /// ECONNRESET: the engine is gone.
    pub fn set_datagram_options(&self, options: &DatagramOptions) -> Result<(), Errno> {
        self.call(Op::SetDatagramOptions(*options)).map(drop)
    }

    /// Changes what it hears of a group, on the interface with that scope; 0: as routed.
    ///
    /// # Errors
    /// As setsockopt(2) with IP_ADD_MEMBERSHIP (ip(7)).
    pub fn change_membership(
        &self,
        change: MembershipChange,
        group: IpAddr,
        source: Option<IpAddr>,
        interface: u32,
    ) -> Result<(), Errno> {
        let op = Op::Membership {
            change,
            group,
            source,
            interface,
        };
        self.call(op).map(drop)
    }

    /// Has the error queue say that a datagram for `destination` was refused because it is too long.
    ///
    /// # Errors
    /// ECONNRESET: the engine is gone.
    pub fn note_too_long(&self, destination: SocketAddr) -> Result<(), Errno> {
        self.call(Op::TooLong { destination }).map(drop)
    }

    /// Marks directions as shut; nothing goes over the wire for that.
    pub fn shutdown(&self, read: bool, write: bool) {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        self.header()
            .program_shut(bit(read, SHUT_READ) | bit(write, SHUT_WRITE));
        self.session().tell(self.id());
    }

    /// The rings, once it is bound.
    pub(crate) fn rings(&self) -> Result<Rings, Errno> {
        let header = self.header();
        if !header.flags().contains(Flags::DATAGRAM) || !header.is_of(self.id()) {
            return Err(Errno::CONNRESET);
        }
        let (send, receive) = header.windows();
        let window = WindowSpan {
            offset: send.offset,
            size: self.region().layout().send_window_bytes,
        };
        Ok(Rings {
            send,
            receive,
            errors: Rings::errors(window),
        })
    }

    /// The path's MTU towards the peer, bytes.
    ///
    /// # Errors
    /// ECONNRESET: the engine is gone.
    pub fn path_mtu(&self) -> Result<u64, Errno> {
        Ok(self.own_figures()?.pmtu)
    }

    /// Whether failures wait in the error queue.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        let (end, taken) = self.header().failures();
        end > taken
    }

    fn has_capacity(&self, header: &SocketHeader<'_>) -> bool {
        let Ok(rings) = self.rings() else {
            return true;
        };
        let enough = || {
            let used = header.written().saturating_sub(header.acknowledged());
            is_writable(rings.send.size, used)
        };
        if enough() {
            return true;
        }
        header.program_want_tx();
        enough()
    }
}
