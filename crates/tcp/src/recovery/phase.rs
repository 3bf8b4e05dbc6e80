//! Where loss recovery stands: its variables.

use zerocopy::{FromZeros, Immutable, KnownLayout};

/// Where loss recovery stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Nothing is being repaired.
    #[default]
    Open = 0,
    /// Fast recovery (RFC 6675 §5, RFC 6582 §3.2).
    Fast,
    /// After a retransmission timeout (RFC 5681 §3.1).
    Loss,
}

/// Whether a timeout may still turn out spurious (RFC 5682 §3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub(crate) enum Frto {
    #[default]
    Off = 0,
    /// Step 2: the first segment was sent again, and nothing came back yet.
    AwaitsAck,
    /// Step 3: new data leaves instead of what counts as lost.
    SendsNew,
}

/// State of loss recovery, in absolute positions.
#[derive(Clone, Copy, Debug, Default, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Recovery {
    /// RecoveryPoint: recovery ends when this is acknowledged.
    pub point: u64,
    pub phase: Phase,
    pub frto: Frto,
    /// The first retransmission goes out whatever the pipe holds (RFC 6675 §5 step 4.3).
    pub first_owed: bool,
    /// Without SACK: what a timeout had sent twice may still be answered (RFC 6582 §3.2 step 1).
    pub after_timeout: bool,
    /// Without SACK: a partial ACK came in this recovery (RFC 6582 §3.2 step 3).
    pub partial_seen: bool,
    pub reserved: u8,
    /// Size of the probe of the path MTU in flight, which ends at `path_probe_end` of the table; 0: none
    /// is. See `pmtud`.
    pub path_probe: u16,
    /// By how much SND.UNA moved last, bytes.
    pub last_step: u32,
    /// Duplicates that the peer reported (RFC 2883).
    pub duplicates: u32,
    /// Segments sent again in the connection's life.
    pub retransmissions: u64,
    /// Bytes that ever counted as lost.
    pub lost: u64,
}

impl Recovery {
    pub fn is_active(&self) -> bool {
        self.phase != Phase::Open
    }
}
