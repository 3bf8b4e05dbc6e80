//! The calls of datagram sockets: as for streams the data passes through shared memory, in records
//! (`hostif::datagram`). See udp(7).
//!
//! A socket is opened by [`Session::open`](crate::Session::open) over a backing socket of type SOCK_DGRAM
//! and has rings once it is bound. `send` and `receive` move records, several under one lock if wanted.

mod describe;
mod duplicate_filter;
mod heard;
pub mod message;
pub mod options;
mod receive;
mod send;

use hostif::datagram::Rings;
use hostif::header::{SHUT_READ, SHUT_WRITE};
use hostif::window::is_writable;
use hostif::{DatagramOptions, Flags, MembershipChange, Op, SocketHeader, WindowSpan};
use rustix::io::Errno;

use core::net::{IpAddr, SocketAddr};

use crate::readiness::Readiness;
use crate::tcp::socket::TcpSocket;

pub use describe::{Control, SentStamp};
pub use duplicate_filter::filter as heard_beside;
pub use heard::{Heard, HeardBy};
pub use receive::{Delivered, Inbox};
pub use send::Outbox;

impl TcpSocket {
    /// Whether it is a datagram socket that has been bound.
    #[must_use]
    pub fn is_datagram(&self) -> bool {
        self.header().flags().contains(Flags::DATAGRAM)
    }

    /// Gives a datagram socket a peer, and binds it to `local` where that has not been done.
    ///
    /// # Errors
    /// ENETUNREACH, EACCES and what else the engine says.
    pub fn set_peer(&self, remote: SocketAddr, local: Option<SocketAddr>) -> Result<(), Errno> {
        self.session()
            .call_plain(self.id(), Op::Connect { remote, local })
            .map(drop)
    }

    /// Takes the peer away.
    ///
    /// # Errors
    /// What the engine says.
    pub fn clear_peer(&self) -> Result<(), Errno> {
        self.session()
            .call_plain(self.id(), Op::Disconnect)
            .map(drop)
    }

    /// Changes the options of a datagram socket: of what is sent from now on, and of nothing before.
    ///
    /// # Errors
    /// ECONNRESET: the engine is gone.
    pub fn set_datagram_options(&self, options: &DatagramOptions) -> Result<(), Errno> {
        self.session()
            .call_plain(self.id(), Op::SetDatagramOptions(*options))
            .map(drop)
    }

    /// Changes what a datagram socket hears of a group, on the interface with that scope; 0: as routed.
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
        self.session().call_plain(self.id(), op).map(drop)
    }

    /// Has the error queue say that a datagram for `destination` was refused because it is too long.
    ///
    /// # Errors
    /// ECONNRESET: the engine is gone.
    pub fn note_too_long(&self, destination: SocketAddr) -> Result<(), Errno> {
        self.session()
            .call_plain(self.id(), Op::TooLong { destination })
            .map(drop)
    }

    /// Marks directions of a datagram socket as shut; nothing goes over the wire for that.
    pub fn shut_datagrams(&self, read: bool, write: bool) {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        self.header()
            .program_shut(bit(read, SHUT_READ) | bit(write, SHUT_WRITE));
        self.session().tell(self.id());
    }

    /// The rings of a bound datagram socket.
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

    /// Whether failures wait in the error queue.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        let (end, taken) = self.header().failures();
        end > taken
    }

    /// `datagram_poll` of Linux.
    pub(crate) fn datagram_readiness(&self, header: &SocketHeader<'_>) -> Readiness {
        let shut = header.shut();
        let mut ready = Readiness::empty();
        let error = header.soft_error_pending() || self.is_reset_unreported();
        ready.set(Readiness::ERR, error || self.has_failures());
        ready.set(
            Readiness::IN,
            self.readable_bytes() > 0 || shut & SHUT_READ != 0,
        );
        ready.set(Readiness::RDHUP, shut & SHUT_READ != 0);
        ready.set(Readiness::HUP, shut == SHUT_READ | SHUT_WRITE);
        ready.set(Readiness::OUT, self.has_room_for_datagrams(header));
        ready
    }

    fn has_room_for_datagrams(&self, header: &SocketHeader<'_>) -> bool {
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
