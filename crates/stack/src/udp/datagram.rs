//! Datagrams and errors as programs see them.

use crate::link::interface::InterfaceId;
use core::net::{IpAddr, SocketAddr};

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// By which interface.
    pub interface: InterfaceId,
    /// The number by which programs name it.
    pub scope_id: u32,
    /// Who sent it.
    pub source: SocketAddr,
    /// For which address and port.
    pub destination: SocketAddr,
    /// Type of service.
    pub tos: u8,
    /// Time to live as it arrived.
    pub ttl: u8,
    /// Its payload.
    pub payload: &'a [u8],
    /// Several datagrams stand in it one after the other, each with so many bytes but the last; 0: it is
    /// one.
    pub segment_bytes: u16,
}

/// A datagram to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// Where to; `None`: the connected peer.
    pub destination: Option<SocketAddr>,
    /// Own address to send from; `None`: as bound or routed.
    pub source: Option<IpAddr>,
    /// Interface; `None`: as routed.
    pub interface: Option<InterfaceId>,
    /// Type of service, if other than the socket's.
    pub tos: Option<u8>,
    /// Time to live, if other than the socket's.
    pub ttl: Option<u8>,
    /// Cut the payload into datagrams of so many bytes; 0: it is one.
    pub segment_bytes: u16,
}

/// Why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The interface is busy: offer it again.
    Busy,
    /// It will never go.
    Refused(crate::Error),
}

/// Something became known about a datagram that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramError<'a> {
    /// What.
    pub kind: DatagramErrorKind,
    /// Whether a connected socket's next call shall fail with it; others are told of it only in their error
    /// queue (RFC 1122 §4.1.3.3).
    pub is_hard: bool,
    /// The socket has an error queue (`IP_RECVERR`).
    pub is_queued: bool,
    /// Whom the datagram was for.
    pub destination: SocketAddr,
    /// Who reported it; `None`: this host.
    pub offender: Option<IpAddr>,
    /// Type and code of the ICMP message.
    pub icmp: (u8, u8),
    /// The MTU of the next hop, with [`DatagramErrorKind::TooBig`].
    pub mtu: u16,
    /// As much of the payload as was quoted.
    pub payload: &'a [u8],
}

/// What an ICMP message means for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramErrorKind {
    /// Nobody listens on the port.
    PortUnreachable,
    /// The host does not speak UDP.
    ProtocolUnreachable,
    /// No way to the host.
    HostUnreachable,
    /// No way to the network.
    NetworkUnreachable,
    /// The host is down, says a router.
    HostUnknown,
    /// The host is isolated.
    HostIsolated,
    /// A router or the host forbids it.
    Prohibited,
    /// The source route failed.
    SourceRouteFailed,
    /// It did not fit the path.
    TooBig,
    /// A header field was wrong.
    Protocol,
}
