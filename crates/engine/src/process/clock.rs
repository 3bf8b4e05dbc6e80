//! The time of a core: microseconds of the monotonic clock, read once in a poll.

use std::time::Instant as StdInstant;
use tcp::Instant;

/// A core's time when it starts.
pub const STARTED: Instant = Instant::from_us(1);

/// A core's time, which was [`STARTED`] at `origin`.
pub fn time_since(origin: StdInstant) -> Instant {
    Instant::from_us(elapsed_us(origin) + STARTED.as_us())
}

/// Microseconds since `origin`, without the division of 128 bits that `Duration::as_micros` is.
pub(crate) fn elapsed_us(origin: StdInstant) -> u64 {
    let elapsed = origin.elapsed();
    elapsed.as_secs() * 1_000_000 + u64::from(elapsed.subsec_micros())
}
