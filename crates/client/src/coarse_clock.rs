//! Time that costs no more than a look into memory, and is some milliseconds behind.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds on CLOCK_MONOTONIC_COARSE.
pub(crate) fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let (seconds, nanoseconds) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds * 1_000 + nanoseconds / 1_000_000
}
