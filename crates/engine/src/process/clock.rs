//! The time of a core: microseconds of the monotonic clock, read once in a poll. See clock_gettime(2).

use rustix::time::{ClockId, clock_gettime};
use tcp::Instant;

/// A core's time when it starts.
pub const STARTED: Instant = Instant::from_us(1);

/// The moment at which a core's time was [`STARTED`], in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(u64);

impl Origin {
    /// This moment.
    pub fn now() -> Self {
        Self(clock_ns())
    }

    /// A moment that has been; this one where it lies in the future.
    pub fn at_ns(ns: u64) -> Self {
        Self(ns.min(clock_ns()))
    }

    /// Nanoseconds of the monotonic clock.
    pub fn as_ns(self) -> u64 {
        self.0
    }

    /// Microseconds since then.
    #[inline]
    pub fn elapsed_us(self) -> u64 {
        (clock_ns() - self.0) / 1_000
    }
}

/// The monotonic clock, nanoseconds. It begins at 0, and lasts for five centuries in 64 bits.
#[inline]
#[must_use]
pub fn clock_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// A core's time, which was [`STARTED`] at `origin`.
#[inline]
pub fn time_since(origin: Origin) -> Instant {
    Instant::from_us(origin.elapsed_us() + STARTED.as_us())
}
