//! The two sides of the stack: [`Egress`] takes the frames that leave, [`Host`] owns the windows and
//! hears what happens to connections and listeners. The `engine` implements both.

use crate::detour::Detour;
use crate::interface::InterfaceId;
use crate::tables::{ConnectionId, ListenerId};
use crate::udp::{Datagram, DatagramError};
use core::net::{IpAddr, SocketAddr};
use tcp::{ConnectionError, Events, SocketOptions, State};

/// What the caller knows about a received frame besides its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RxMeta {
    /// State of the TCP or UDP checksum.
    pub checksum: RxChecksum,
    /// Payload of each of the packets that the device, or a sender on this machine, left in one frame, if
    /// it is such a one: it may be longer than its IPv4 header can say.
    pub segment_bytes: Option<u16>,
}

/// How far the TCP or UDP checksum of a received frame has been taken care of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxChecksum {
    /// Nobody looked.
    #[default]
    Unknown,
    /// The device found it right.
    Verified,
    /// The field holds only the sum of the pseudo header: the sender is on this machine, the
    /// payload never left memory.
    Partial,
}

/// What an interface can take in one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressCaps {
    /// Largest IP packet that the interface cuts into segments itself, bytes; 0: it cannot. Of IPv6 it
    /// gets none beyond what 16 bits can say.
    pub max_segment_bytes: u32,
}

/// The interface cannot take the frame now; the stack offers it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// A checksum that the device, or who stands in for it, must complete: the field holds the sum of
/// the pseudo header (as `VIRTIO_NET_HDR_F_NEEDS_CSUM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Where summing begins, bytes from the start of the frame.
    pub start: u16,
    /// Where the field is, bytes from `start`.
    pub offset: u16,
}

/// A frame that leaves: headers here, payload wherever it is.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Where it leaves.
    pub interface: InterfaceId,
    /// Everything up to the payload.
    pub headers: &'a [u8],
    /// The payload.
    pub payload: Payload<'a>,
    /// A checksum to complete.
    pub checksum: Option<PartialChecksum>,
    /// Payload of each segment that the device is to cut; `None`: the frame is one packet.
    pub segment_size: Option<u16>,
}

/// The payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// None.
    None,
    /// These bytes.
    Bytes(&'a [u8]),
    /// A span of a send window.
    Window {
        /// The connection.
        connection: ConnectionId,
        /// Its owner's token.
        owner: u64,
        /// Stream offset of the first byte.
        offset: u64,
        /// Number of bytes.
        len: u32,
    },
}

/// Takes the frames that leave.
pub trait Egress {
    /// What `interface` can do.
    fn caps(&self, interface: InterfaceId) -> EgressCaps;

    /// Sends one frame, or refuses it for now.
    ///
    /// # Errors
    /// [`Busy`]: the frame was not taken.
    fn transmit(&mut self, frame: &Frame<'_>) -> Result<(), Busy>;

    /// Somebody must find the hardware address of `address` on an interface with
    /// [`crate::Resolution::External`]; the answer comes through [`crate::Stack::set_neighbour`].
    fn resolve(&mut self, interface: InterfaceId, address: IpAddr) {
        let _ = (interface, address);
    }
}

/// What the owner of a connection may want to know when something has changed.
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
    /// An ACK leaves when the program has consumed all there is.
    pub ack_waits: bool,
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
    /// Token that the host wants to hear for this connection.
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

/// IP header fields that a program may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpOptions {
    /// `IP_TTL`.
    pub ttl: u8,
    /// `IP_TOS`; the two ECN bits are ignored.
    pub tos: u8,
}

impl Default for IpOptions {
    fn default() -> Self {
        // RFC 1122 §3.2.1.7 leaves the value open; 64 is what the assigned numbers recommend.
        Self { ttl: 64, tos: 0 }
    }
}

/// Owns the windows; hears of events. No method may call the stack.
pub trait Host {
    /// Places received payload at stream offset `offset` of the owner's receive window.
    fn receive(&mut self, owner: u64, offset: u64, data: &[u8]);

    /// A segment with the urgent bit is about to be taken in: before [`Host::receive`] gets what is in it.
    fn on_urgent(&mut self, owner: u64) {
        let _ = owner;
    }

    /// Something changed: at least one of `events`.
    fn on_events(
        &mut self,
        connection: ConnectionId,
        owner: u64,
        events: Events,
        view: &ConnectionView,
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
    fn on_accept_ready(&mut self, listener: ListenerId, listener_owner: u64, ready: u32);

    /// The connection is gone, its windows are free. Comes exactly once, and for a connection that a
    /// program holds only after it was closed.
    fn on_released(&mut self, connection: ConnectionId, owner: u64);

    /// A datagram for the socket of `owner`; `false`: there is no room for it, it is lost.
    fn on_datagram(&mut self, owner: u64, datagram: &Datagram<'_>) -> bool {
        let _ = (owner, datagram);
        false
    }

    /// Something became known about a datagram that the socket of `owner` has sent.
    fn on_datagram_error(&mut self, owner: u64, error: &DatagramError<'_>) {
        let _ = (owner, error);
    }

    /// Whether a new connection to `remote` may use this local port: the host may have to reserve it
    /// elsewhere, and lets go of it in [`Host::on_released`], or another core may serve what arrives there.
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
