//! What a socket is ready for, and where it stands.

bitflags::bitflags! {
    /// Event bits, with the values that poll and epoll share.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Readiness: u32 {
        /// Bytes, the end of the stream, or a connection to accept.
        const IN = 0x001;
        /// Urgent data.
        const PRI = 0x002;
        /// Room to send, or a send that fails at once.
        const OUT = 0x004;
        /// An error waits to be fetched.
        const ERR = 0x008;
        /// Both directions are over.
        const HUP = 0x010;
        /// Nothing more will come from the peer.
        const RDHUP = 0x2000;
    }
}

/// Where a socket stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Neither connected nor listening yet.
    Idle,
    /// A connect is under way.
    Connecting,
    /// The connection stands, or stood and may still move bytes in one direction.
    Connected,
    /// Accepting connections.
    Listening,
    /// Over: refused, reset, timed out, finished in both directions, or its engine is gone. What has
    /// arrived before can still be read.
    Closed,
}
