//! The event bits that poll(2) and epoll(7) share (`EPOLLIN == POLLIN` and so on), and where a socket
//! stands. Which bits hold in which state `client` decides.

/// Readable, or end of stream, or a connection to accept.
pub const IN: u32 = 0x001;
/// Urgent data.
pub const PRI: u32 = 0x002;
/// Writable.
pub const OUT: u32 = 0x004;
/// An error waits to be fetched; always reported.
pub const ERR: u32 = 0x008;
/// Both directions are over; always reported.
pub const HUP: u32 = 0x010;
/// As [`IN`].
pub const RDNORM: u32 = 0x040;
/// As [`OUT`].
pub const WRNORM: u32 = 0x100;
/// As [`OUT`], of UDP sockets.
pub const WRBAND: u32 = 0x200;
/// The peer sent its FIN, or the program shut its reading side.
pub const RDHUP: u32 = 0x2000;

/// Reported whether asked for or not.
pub const ALWAYS: u32 = ERR | HUP;

/// Where a socket stands, as far as readiness and errno depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Connect has begun and is not decided (SYN-SENT).
    Connecting,
    /// Established, and all states after it in which data may still move.
    Connected,
    /// Over: refused, reset, timed out, or both directions finished and acknowledged (CLOSE).
    Closed,
    /// Accepting connections.
    Listening,
}
