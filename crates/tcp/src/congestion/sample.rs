//! What an algorithm is told: the facts of one ACK, and of one congestion event.

use crate::time::{Duration, Instant};

/// One ACK, after the scoreboard took it in and loss was marked. Bytes where nothing else is said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckSample {
    pub now: Instant,
    /// By how much SND.UNA moved.
    pub acked: u32,
    /// Newly known to have arrived, cumulatively or selectively.
    pub delivered: u32,
    /// C.delivered: all that has arrived.
    pub delivered_total: u64,
    /// Newly marked as lost.
    pub lost: u32,
    /// Of what was delivered, how much the network had marked (RFC 3168, RFC 9768).
    pub ece: u32,
    /// The round trip that this ACK measured.
    pub rtt: Option<Duration>,
    /// The smoothed round trip, microseconds.
    pub srtt_us: u64,
    /// The delivery rate, when a sampled segment has arrived.
    pub rate: Option<RateSample>,
    /// In flight after this ACK.
    pub in_flight: u32,
    /// The window held data back since the last ACK, so it is worth growing.
    pub cwnd_limited: bool,
    /// Between a loss and the ACK of what was in flight then.
    pub in_recovery: bool,
    /// Everything that was in flight at the last round's start is acknowledged.
    pub round_start: bool,
}

/// A sample of the delivery rate (draft-ietf-ccwg-bbr §4.1): what arrived between the departure of a
/// segment and its acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateSample {
    /// Bytes per second; 0: the interval was too short to say.
    pub rate: u64,
    /// rs.delivered, bytes.
    pub delivered: u32,
    /// C.delivered when the segment left.
    pub prior_delivered: u64,
    /// In flight then, with the segment, bytes.
    pub tx_in_flight: u32,
    /// Lost since then, bytes.
    pub lost: u32,
    /// The program was the limit then.
    pub app_limited: bool,
}

/// Why the window must shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Segments were lost (RFC 5681 §3.1).
    Loss,
    /// The network marked segments (RFC 3168 §6.1.2).
    Ecn,
}

/// Congestion, at most once per window of data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CongestionEvent {
    pub cause: Cause,
    /// FlightSize (RFC 5681 §2), bytes.
    pub flight: u32,
}
