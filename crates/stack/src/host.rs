//! What the stack asks of its host, and tells it: windows, events, datagrams. The `engine` implements it.

use crate::config::IpOptions;
use crate::egress::RxChecksum;
use crate::tables::{ConnectionId, ListenerId};
use crate::udp::datagram::{Datagram, DatagramError};
use core::net::SocketAddr;
use tcp::{ConnectionError, Events, Instant, SocketOptions, State};
use wire::ethernet;

/// What the owner of a connection may want to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionView {
    /// State.
    pub state: State,
    /// Stream offset up to which the program may read.
    pub readable_end: u64,
    /// Stream offset below which the send window is free.
    pub acknowledged: u64,
    /// Stream offset up to which the program has consumed.
    pub consumed: u64,
    /// Stream offset up to which the program has written.
    pub written: u64,
    /// The peer sends nothing after `readable_end`.
    pub fin: bool,
    /// Stream offset one past the peer's urgent byte.
    pub urgent_end: Option<u64>,
    /// Why the connection failed.
    pub error: Option<ConnectionError>,
}

impl From<&tcp::Connection> for ConnectionView {
    #[inline]
    fn from(tcp: &tcp::Connection) -> Self {
        Self {
            state: tcp.state(),
            readable_end: tcp.readable_end(),
            acknowledged: tcp.acknowledged(),
            consumed: tcp.consumed(),
            written: tcp.written(),
            fin: tcp.fin_received(),
            urgent_end: tcp.urgent_end(),
            error: tcp.error(),
        }
    }
}

/// How a connection uses its receive window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveUse {
    /// Stream offset up to which the program may read.
    pub readable_end: u64,
    /// Bytes that are offered to the peer, at most.
    pub offered: u32,
    /// All that the peer has sent was consumed.
    pub is_drained: bool,
}

/// What a new connection of a listener gets from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The host's token for this connection.
    pub owner: u64,
    /// Bytes of its receive window; a power of two.
    pub receive_capacity: u32,
    /// Bytes of its send window; a power of two.
    pub send_capacity: u32,
    /// Options inherited from the listening socket.
    pub options: SocketOptions,
    /// IP header fields inherited from the listening socket.
    pub ip: IpOptions,
}

/// A whole packet that may be another core's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detour<'a> {
    /// This host's end of the flow.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// An Ethernet header for it.
    pub header: [u8; ethernet::Header::LEN],
    /// From the IP header on, without trace of the fragments that it came in.
    pub packet: &'a [u8],
    /// Its transport checksum.
    pub checksum: RxChecksum,
}

/// Connections that [`crate::Stack::accept`] would return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptReady {
    /// How many.
    pub count: u32,
    /// When the handshake of the one that waits longest was over; [`Instant::ZERO`]: none waits.
    pub since: Instant,
}

/// Owns the windows; hears of events. No method may call the stack.
pub trait Host {
    /// Places received payload at stream offset `offset` of the owner's receive window.
    fn receive(&mut self, owner: u64, offset: u64, data: &[u8]);

    /// A segment with the urgent bit is about to be taken in: before [`Host::receive`] gets what is in it.
    fn on_urgent(&mut self, owner: u64) {
        let _ = owner;
    }

    /// Something changed: at least one of `events`. What has become of the connection is asked of itself.
    fn on_events(
        &mut self,
        connection: ConnectionId,
        owner: u64,
        events: Events,
        tcp: &tcp::Connection,
    );

    /// A SYN for a listener: windows for the connection, or `None` to drop it.
    fn on_incoming(
        &mut self,
        listener: ListenerId,
        listener_owner: u64,
        peer: SocketAddr,
    ) -> Option<Incoming>;

    /// IP and TCP headers of the SYN that opened the connection just asked for (`TCP_SAVE_SYN`).
    fn on_syn(&mut self, owner: u64, headers: &[u8]) {
        let _ = (owner, headers);
    }

    /// Bytes up to stream offset `sent` have left at least once. Comes only where the program has set
    /// [`SocketOptions::notsent_low_water`].
    fn on_sent(&mut self, owner: u64, sent: u64) {
        let _ = (owner, sent);
    }

    /// The number of connections that [`crate::Stack::accept`] would return has changed.
    fn on_accept_ready(&mut self, listener: ListenerId, listener_owner: u64, ready: AcceptReady);

    /// The connection is gone, its windows are free. Comes exactly once, and for a connection that a
    /// program holds only after it was closed.
    fn on_released(&mut self, connection: ConnectionId, owner: u64);

    /// A datagram for the socket of `owner`; `false`: its socket has no space for it, it is lost.
    fn on_datagram(&mut self, owner: u64, datagram: &Datagram<'_>) -> bool {
        let _ = (owner, datagram);
        false
    }

    /// Something became known about a datagram that the socket of `owner` has sent.
    fn on_datagram_error(&mut self, owner: u64, error: &DatagramError<'_>) {
        let _ = (owner, error);
    }

    /// Whether a new connection to `remote` may use this local port: the host may have to reserve it
    /// elsewhere, and releases it in [`Host::on_released`], or another core may serve what arrives there.
    /// Asked only for ports that the stack chooses itself.
    fn try_hold_port(&mut self, local: SocketAddr, remote: SocketAddr) -> bool {
        let _ = (local, remote);
        true
    }

    /// A packet whose flow the device could not see: whether another core serves it and has it now, or
    /// never will.
    fn try_pass_on(&mut self, detour: &Detour<'_>) -> bool {
        let _ = detour;
        false
    }
}
