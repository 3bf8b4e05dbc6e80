//! What a connection tells its owner: events, and why it failed.

use bitflags::bitflags;

bitflags! {
    /// What a call changed, for whoever owns the connection.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Events: u32 {
        /// The three-way handshake is complete.
        const ESTABLISHED = 1;
        /// More bytes are readable: see [`Connection::readable_end`].
        const READABLE = 1 << 1;
        /// Bytes were acknowledged: see [`Connection::acknowledged`].
        const WRITABLE = 1 << 2;
        /// The peer's FIN was reached in order.
        const FIN = 1 << 3;
        /// The connection failed: see [`Connection::error`].
        const ERROR = 1 << 4;
        /// Both directions are done; [`Connection::time_wait`] gives the compact record to keep.
        const TIME_WAIT = 1 << 5;
        /// Nothing is left to do: the slot may be freed once [`Connection::poll_transmit`] is empty.
        const CLOSED = 1 << 6;
        /// The urgent pointer moved (RFC 9293 §3.8.5).
        const URGENT = 1 << 7;
        /// Something may be ready to send: call [`Connection::poll_transmit`].
        const TRANSMIT = 1 << 8;
    }
}

/// Why a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer answered our SYN with a reset.
    Refused,
    /// The peer reset an established connection.
    Reset,
    /// Retransmissions, probes or the user timeout ran out.
    TimedOut,
    /// No route or no neighbour for the peer's address.
    HostUnreachable,
    /// A router said that the network is unreachable.
    NetworkUnreachable,
    /// The peer's host does not speak TCP (ICMP).
    ProtocolUnreachable,
    /// The peer reset a connection that it had closed for its part: only sending was left.
    BrokenPipe,
    /// An administrator forbids it (ICMP).
    Prohibited,
    /// The peer, or a router, does not understand our headers (ICMP).
    Protocol,
    /// A source route cannot be followed (ICMP).
    SourceRouteFailed,
    /// The router knows of no such host (ICMP).
    HostUnknown,
    /// We are isolated (ICMP).
    HostIsolated,
}

impl ConnectionError {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Refused => 1,
            Self::Reset => 2,
            Self::TimedOut => 3,
            Self::HostUnreachable => 4,
            Self::NetworkUnreachable => 5,
            Self::ProtocolUnreachable => 6,
            Self::BrokenPipe => 7,
            Self::Prohibited => 8,
            Self::Protocol => 9,
            Self::SourceRouteFailed => 10,
            Self::HostUnknown => 11,
            Self::HostIsolated => 12,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Refused),
            2 => Some(Self::Reset),
            3 => Some(Self::TimedOut),
            4 => Some(Self::HostUnreachable),
            5 => Some(Self::NetworkUnreachable),
            6 => Some(Self::ProtocolUnreachable),
            7 => Some(Self::BrokenPipe),
            8 => Some(Self::Prohibited),
            9 => Some(Self::Protocol),
            10 => Some(Self::SourceRouteFailed),
            11 => Some(Self::HostUnknown),
            12 => Some(Self::HostIsolated),
            _ => None,
        }
    }
}
