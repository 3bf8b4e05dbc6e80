//! Round-trip time and retransmission timeout (RFC 6298), in microseconds.

use crate::time::{Duration, Instant};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// Lower bound of the timeout. RFC 6298 §2.4 says one second; hosts use 200 ms (see docs/rfc.md).
pub const MIN_RTO: Duration = Duration::from_ms(200);
/// Upper bound of the timeout (RFC 6298 §2.5 wants at least 60 s).
pub const MAX_RTO: Duration = Duration::from_secs(120);
/// Before the first measurement (RFC 6298 §2.1).
pub const INITIAL_RTO: Duration = Duration::from_secs(1);
/// After a SYN had to be retransmitted (RFC 6298 §5.7).
pub const RTO_AFTER_SYN_LOSS: Duration = Duration::from_secs(3);
/// Clock granularity G of RFC 6298.
const GRANULARITY_US: u64 = 1_000;

/// Smoothed round-trip time, its variation and the timeout.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RttEstimator {
    /// SRTT, microseconds; meaningless before the first sample.
    srtt_us: u64,
    rttvar_us: u64,
    min_rtt_us: u64,
    rto: Duration,
    /// The last sample, microseconds, and how many there were.
    latest_us: u32,
    samples: u32,
    /// End of the segment being timed, and when it left; [`Instant::NEVER`]: none.
    timed_end: u64,
    timed_at: Instant,
}

impl Default for RttEstimator {
    fn default() -> Self {
        Self {
            srtt_us: 0,
            rttvar_us: 0,
            min_rtt_us: u64::MAX,
            rto: INITIAL_RTO,
            latest_us: 0,
            samples: 0,
            timed_end: 0,
            timed_at: Instant::NEVER,
        }
    }
}

impl RttEstimator {
    pub fn srtt_us(&self) -> Option<u64> {
        (self.min_rtt_us != u64::MAX).then_some(self.srtt_us)
    }

    pub const fn rttvar_us(&self) -> u64 {
        self.rttvar_us
    }

    /// How many samples there were, modulo 2^32.
    pub const fn samples(&self) -> u32 {
        self.samples
    }

    /// The last sample.
    pub fn latest(&self) -> Duration {
        Duration::from_us(u64::from(self.latest_us))
    }

    pub const fn rto(&self) -> Duration {
        self.rto
    }

    /// RFC 6298 §5.7.
    pub fn on_syn_lost(&mut self) {
        if self.srtt_us().is_none() {
            self.rto = RTO_AFTER_SYN_LOSS;
        }
    }

    /// Begins timing the segment that ends at `end` unless one is being timed.
    pub fn start_timing(&mut self, now: Instant, end: u64) {
        if !self.timed_at.is_set() {
            self.timed_end = end;
            self.timed_at = now;
        }
    }

    /// Karn's algorithm (RFC 6298 §3): what was sent twice gives no sample.
    pub fn stop_timing(&mut self) {
        self.timed_at = Instant::NEVER;
    }

    /// Takes the sample of the timed segment if `una` covers it. `true`: a sample was taken.
    pub fn on_acknowledged(&mut self, now: Instant, una: u64) -> bool {
        if !self.timed_at.is_set() || una < self.timed_end {
            return false;
        }
        let sample = now.since(self.timed_at);
        self.timed_at = Instant::NEVER;
        self.sample(sample);
        true
    }

    /// RFC 6298 §2.2 and §2.3.
    pub fn sample(&mut self, rtt: Duration) {
        let r = rtt.as_us().max(1);
        if self.srtt_us().is_none() {
            self.srtt_us = r;
            self.rttvar_us = r / 2;
        } else {
            self.rttvar_us = (3 * self.rttvar_us + self.srtt_us.abs_diff(r)) / 4;
            self.srtt_us = (7 * self.srtt_us + r) / 8;
        }
        self.min_rtt_us = self.min_rtt_us.min(r);
        self.latest_us = u32::try_from(r).unwrap_or(u32::MAX);
        self.samples = self.samples.wrapping_add(1);
        let rto_us = self.srtt_us + (4 * self.rttvar_us).max(GRANULARITY_US);
        self.rto = Duration::from_us(rto_us).max(MIN_RTO).min(MAX_RTO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_sample_sets_the_average_and_half_of_it_as_variation() {
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.rto(), INITIAL_RTO);
        rtt.sample(Duration::from_ms(400));
        assert_eq!((rtt.srtt_us(), rtt.rttvar_us()), (Some(400_000), 200_000));
        assert_eq!(rtt.rto(), Duration::from_ms(1_200));
    }

    #[test]
    fn later_samples_follow_the_weights_of_the_rfc() {
        let mut rtt = RttEstimator::default();
        rtt.sample(Duration::from_ms(400));
        rtt.sample(Duration::from_ms(480));
        assert_eq!(rtt.rttvar_us(), (3 * 200_000 + 80_000) / 4);
        assert_eq!(rtt.srtt_us(), Some((7 * 400_000 + 480_000) / 8));
    }

    #[test]
    fn a_retransmitted_segment_gives_no_sample() {
        let mut rtt = RttEstimator::default();
        rtt.start_timing(Instant::from_us(10), 100);
        rtt.stop_timing();
        assert!(!rtt.on_acknowledged(Instant::from_us(900), 100));
        assert_eq!(rtt.srtt_us(), None);
    }
}
