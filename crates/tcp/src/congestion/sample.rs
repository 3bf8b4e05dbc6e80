//! What an algorithm is told: the facts of one ACK, and of one congestion event.

use crate::time::{Duration, Instant};

/// One ACK, after the scoreboard took it in and loss was marked. Bytes where nothing else is said.
#[derive(Clone, Copy, Debug, Default)]
#[allow(dead_code, reason = "the algorithms after Reno read the rest")]
pub(crate) struct AckSample {
    pub now: Instant,
    /// By how much SND.UNA moved.
    pub acked: u32,
    /// Newly known to have arrived, cumulatively or selectively.
    pub delivered: u32,
    /// The round trip that this ACK measured.
    pub rtt: Option<Duration>,
    /// In flight after this ACK.
    pub in_flight: u32,
    /// The window held data back since the last ACK, so it is worth growing.
    pub cwnd_limited: bool,
    /// Between a loss and the ACK of what was in flight then.
    pub in_recovery: bool,
    /// Everything that was in flight at the last round's start is acknowledged.
    pub round_start: bool,
}

/// Why the window must shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Segments were lost (RFC 5681 §3.1).
    Loss,
}

/// Congestion, at most once per window of data.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "the algorithms after Reno read the rest")]
pub(crate) struct CongestionEvent {
    pub now: Instant,
    pub cause: Cause,
    /// FlightSize (RFC 5681 §2), bytes.
    pub flight: u32,
}
