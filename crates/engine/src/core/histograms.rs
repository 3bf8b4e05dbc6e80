//! What an engine core tells of values that vary: how many there were of each size, and their sum.

use super::EngineCore;
use serde_json::{Value, json};
use stack::Histogram;

/// Bounds of the buckets are [`Histogram::bounds`].
pub(super) fn of(core: &EngineCore) -> Value {
    json!({
        "tcp_round_trip_us": told(core.layer.stack.round_trips()),
        "poll_us": told(&core.polls),
        "rx_burst_frames": told(&core.layer.bursts.to_histogram()),
    })
}

fn told(histogram: &Histogram) -> Value {
    json!({ "counts": histogram.counts().collect::<Vec<_>>(), "sum": histogram.sum() })
}
