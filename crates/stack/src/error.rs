//! Why a socket operation was refused. Each value is one errno at the shim; errno itself is not here.

use thiserror::Error;

/// Why an operation of [`crate::Stack`] was refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// `EADDRINUSE`: another listener or connection holds the local address.
    #[error("the local address is in use")]
    AddressInUse,
    /// `EADDRNOTAVAIL`: not an own address, or no ephemeral port is left for the destination.
    #[error("the local address or a port for it is not available")]
    AddressNotAvailable,
    /// `ENETUNREACH`: no route leads to the destination.
    #[error("no route to the destination")]
    NetworkUnreachable,
    /// `ENOBUFS`: a table of the engine is full.
    #[error("a table of the stack is full")]
    NoMemory,
    /// `EINVAL`: an argument makes no sense, or an offset lies outside its window.
    #[error("invalid argument")]
    InvalidArgument,
    /// `EBADF`: no such connection, listener, interface or route; the identifier may be stale.
    #[error("no such object")]
    NotFound,
    /// `EACCES`: broadcast without permission.
    #[error("the socket may not send to a broadcast address")]
    AccessDenied,
    /// `EMSGSIZE`: the datagram is longer than what can be sent in one piece.
    #[error("the message is too long")]
    MessageTooLong,
    /// `EDESTADDRREQ`: neither the call nor the socket names a peer.
    #[error("a destination is required")]
    DestinationRequired,
    /// `EPROTONOSUPPORT`: the stack was started without the protocol.
    #[error("the protocol is left out")]
    ProtocolNotSupported,
    /// `EAFNOSUPPORT`: the stack was started without IPv6.
    #[error("IPv6 is left out")]
    FamilyNotSupported,
    /// `EPIPE`: the sending direction is shut down.
    #[error("the sending direction is closed")]
    BrokenPipe,
    /// `EOPNOTSUPP`: Fast Open is switched off.
    #[error("the operation is switched off")]
    NotSupported,
}
