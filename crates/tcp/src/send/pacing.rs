//! Pacing: the earliest departure of the next segment, so that a window leaves as a stream and not at once.
//!
//! Only algorithms that ask for a rate are paced, and programs that set `SO_MAX_PACING_RATE`. What leaves at
//! once, the quantum, is a millisecond of the rate in whole segments: fast paths still send 64 KiB.

use crate::{
    connection::Connection,
    time::{Duration, Instant},
};

/// Largest quantum: what a device cuts at once.
const QUANTUM_MAX: u64 = 64 * 1024;
/// Smallest quantum, segments.
const QUANTUM_MIN_SEGMENTS: u32 = 2;
/// Below this rate one segment is enough (draft-ietf-ccwg-bbr §5.6.3), bytes per second.
const SLOW: u64 = 1_200_000 / 8;
/// Time lost by waking up late that may be made up for.
const SLACK_US: u64 = 1_000;

/// Bytes to send at once at `rate` bytes per second; all that a device takes where nothing is paced.
pub(crate) fn quantum(rate: u64, mss: u32) -> u32 {
    let least = if rate < SLOW {
        mss
    } else {
        QUANTUM_MIN_SEGMENTS * mss
    };
    let millisecond = (rate / 1_000).min(QUANTUM_MAX);
    u32::try_from(millisecond).unwrap_or(least).max(least)
}

impl Connection {
    /// Bytes per second at which segments may leave: the algorithm's rate and the program's limit.
    pub(crate) fn pacing_rate(&self) -> Option<u64> {
        let limit = Some(self.options.max_pacing_rate).filter(|&rate| rate > 0);
        match (self.congestion.pacing_rate(), limit) {
            (Some(rate), Some(limit)) => Some(rate.min(limit)),
            (rate, limit) => rate.or(limit),
        }
    }

    /// Whether no rate limits it.
    #[inline]
    pub(crate) fn is_unpaced(&self) -> bool {
        self.congestion.pacing_rate().is_none() && self.options.max_pacing_rate == 0
    }

    /// How much may leave now, bytes; `None`: the next segment's time has not come, and a timer waits
    /// for it.
    pub(crate) fn pacing_allowance(&mut self, now: Instant) -> Option<u64> {
        let Some(rate) = self.pacing_rate() else {
            return Some(u64::MAX);
        };
        if now < self.departure {
            self.timers.pacing = self.departure;
            return None;
        }
        self.timers.pacing = Instant::NEVER;
        Some(u64::from(quantum(
            rate,
            u32::from(self.snd.segment_payload),
        )))
    }

    /// `bytes` have left: the next segment departs when they are through at the pacing rate.
    #[inline]
    pub(crate) fn on_departed(&mut self, now: Instant, bytes: u64) {
        let Some(rate) = self.pacing_rate() else {
            return;
        };
        let earliest = Instant::from_us(now.as_us().saturating_sub(SLACK_US));
        let us = bytes.saturating_mul(1_000_000).div_ceil(rate.max(1));
        self.departure = self.departure.max(earliest) + Duration::from_us(us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantum_is_a_millisecond_in_bounds() {
        assert_eq!(quantum(100_000, 1_000), 1_000, "slow paths: one segment");
        assert_eq!(quantum(1_000_000, 1_000), 2_000);
        assert_eq!(quantum(12_500_000, 1_000), 12_500, "100 Mbit/s");
        assert_eq!(quantum(1 << 40, 1_000), 64 * 1024);
    }
}
