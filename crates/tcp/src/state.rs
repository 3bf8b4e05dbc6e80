//! The states of a connection (RFC 9293 §3.3.2).
//!
//! LISTEN is not here: a listener is a row in the `stack`'s table, not a connection.

use zerocopy::{FromZeros, Immutable, IntoBytes, KnownLayout};

/// State of one connection.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromZeros, IntoBytes, Immutable, KnownLayout,
)]
#[repr(u8)]
pub enum State {
    /// No connection.
    #[default]
    Closed = 0,
    /// A SYN was sent, none came back.
    SynSent,
    /// Both SYNs are out, ours is not acknowledged.
    SynReceived,
    /// Data flows.
    Established,
    /// We sent a FIN that is not acknowledged.
    FinWait1,
    /// Our FIN is acknowledged; the peer may still send.
    FinWait2,
    /// The peer sent its FIN; we may still send.
    CloseWait,
    /// Both sent a FIN at once; ours is not acknowledged.
    Closing,
    /// The peer's FIN came first, ours is not acknowledged.
    LastAck,
    /// Both FINs are acknowledged; old segments die out.
    TimeWait,
}

impl State {
    /// Whether the three-way handshake is complete and the connection still exists.
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, Self::Closed | Self::SynSent | Self::SynReceived)
    }

    /// Whether the program may still hand over data to send.
    pub const fn can_send(self) -> bool {
        matches!(
            self,
            Self::SynSent | Self::SynReceived | Self::Established | Self::CloseWait
        )
    }

    /// Whether data from the peer is still taken in.
    pub const fn can_receive(self) -> bool {
        matches!(
            self,
            Self::SynReceived | Self::Established | Self::FinWait1 | Self::FinWait2
        )
    }

    /// Name as `ss` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "UNCONN",
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECV",
            Self::Established => "ESTAB",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::CloseWait => "CLOSE-WAIT",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST-ACK",
            Self::TimeWait => "TIME-WAIT",
        }
    }
}

/// What a connection has to do with Fast Open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub enum FastOpen {
    /// Nothing.
    #[default]
    Off = 0,
    /// The first SYN asks for a cookie.
    Asking,
    /// There is a cookie: the SYN waits for the program's first bytes and takes them along.
    Holding,
    /// The SYN has left with a cookie.
    Sent,
    /// The peer has taken data of our SYN.
    Accepted,
    /// The peer's cookie was right: its data is there, and ours need not wait for the handshake.
    Serving,
    /// As `Serving`, and the handshake is over.
    Served,
}

/// Whether the first SYN-ACK tells a cookie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub(crate) enum TellsCookie {
    #[default]
    No = 0,
    Yes,
    /// In the form that the SYN had.
    AsExperiment,
}
