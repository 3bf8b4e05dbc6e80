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
/// Of the clock that our timestamps carry.
pub(crate) const CLOCK_TICK: Duration = Duration::from_ms(1);
/// Fraction bits of the averages, so that a small weight still moves them.
const FRACTION: u32 = 12;
/// The smallest round trip is that of the last one or two spans of this length (RFC 8985 §6.2 step 1
/// leaves the filter open).
const MIN_RTT_SPAN: Duration = Duration::from_secs(300);
const NO_RTT: u32 = u32::MAX;

/// Smoothed round-trip time, its variation and the timeout.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RttEstimator {
    /// SRTT and RTTVAR, microseconds with [`FRACTION`] bits; meaningless before the first sample.
    srtt: u64,
    rttvar: u64,
    rto: Duration,
    /// Smallest samples of this span and of the one before, microseconds.
    min_us: u32,
    older_min_us: u32,
    span_began: Instant,
    /// The last sample, microseconds, and how many there were.
    latest_us: u32,
    samples: u32,
    /// The round ends when this position is acknowledged.
    round_end: u64,
    /// Samples in this round; logarithm of those in the last one.
    round_samples: u32,
    round_weight: u32,
    /// When the SYN left that is being timed; [`Instant::NEVER`]: none.
    syn_sent: Instant,
}

impl Default for RttEstimator {
    fn default() -> Self {
        Self {
            srtt: 0,
            rttvar: 0,
            rto: INITIAL_RTO,
            min_us: NO_RTT,
            older_min_us: NO_RTT,
            span_began: Instant::ZERO,
            latest_us: 0,
            samples: 0,
            round_end: 0,
            round_samples: 0,
            round_weight: 0,
            syn_sent: Instant::NEVER,
        }
    }
}

impl RttEstimator {
    pub fn srtt_us(&self) -> Option<u64> {
        (self.srtt > 0).then_some(self.srtt >> FRACTION)
    }

    pub fn srtt(&self) -> Option<Duration> {
        self.srtt_us().map(Duration::from_us)
    }

    pub const fn rttvar_us(&self) -> u64 {
        self.rttvar >> FRACTION
    }

    /// The smallest round trip of late.
    pub fn min_rtt(&self) -> Option<Duration> {
        let us = self.min_us.min(self.older_min_us);
        (us != NO_RTT).then(|| Duration::from_us(u64::from(us)))
    }

    /// How many samples there were, modulo 2^32.
    pub const fn samples(&self) -> u32 {
        self.samples
    }

    /// The last sample, microseconds.
    pub const fn latest_us(&self) -> u32 {
        self.latest_us
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

    /// A SYN or SYN-ACK leaves for the first time. What follows it is timed by the table of `sent`.
    pub fn start_timing(&mut self, now: Instant) {
        self.syn_sent = now;
    }

    /// Karn's algorithm (RFC 6298 §3): what was sent twice gives no sample.
    pub fn stop_timing(&mut self) {
        self.syn_sent = Instant::NEVER;
    }

    /// The SYN that was timed is acknowledged.
    pub fn on_syn_acknowledged(&mut self, now: Instant) {
        if self.syn_sent.is_set() {
            let sample = now.since(self.syn_sent);
            self.stop_timing();
            self.sample(now, sample, 0, 0);
        }
    }

    /// A round trip of `rtt`, told by the ACK of `una`, when everything below `max` has been sent.
    ///
    /// RFC 6298 §2.2 and §2.3, with weights divided by the samples of a round (RFC 7323 appendix G): an
    /// ACK for every second segment must not forget the variation within a single round trip. Counted
    /// over the last round instead of estimated, since one ACK may stand for 64 KiB.
    #[inline]
    pub fn sample(&mut self, now: Instant, rtt: Duration, una: u64, max: u64) {
        let us = u32::try_from(rtt.as_us()).unwrap_or(NO_RTT - 1).max(1);
        if una >= self.round_end {
            self.round_weight = self.round_samples.max(1).next_power_of_two().ilog2();
            self.round_samples = 0;
            self.round_end = max;
        }
        self.round_samples = self.round_samples.saturating_add(1);
        let r = u64::from(us) << FRACTION;
        if self.srtt == 0 {
            self.srtt = r;
            self.rttvar = r / 2;
        } else {
            let deviation = self.srtt.abs_diff(r);
            self.rttvar = moved(self.rttvar, deviation, 2 + self.round_weight);
            self.srtt = moved(self.srtt, r, 3 + self.round_weight).max(1);
        }
        self.latest_us = us;
        self.samples = self.samples.wrapping_add(1);
        self.note_minimum(now, us);
        // RFC 6298 §2.3 with G = 200 ms, as hosts do: a steady round trip leaves RTTVAR near zero.
        let spread = Duration::from_us((4 * self.rttvar) >> FRACTION).max(MIN_RTO);
        self.rto = (Duration::from_us(self.srtt >> FRACTION) + spread).min(MAX_RTO);
    }

    fn note_minimum(&mut self, now: Instant, us: u32) {
        if now.since(self.span_began) > MIN_RTT_SPAN {
            self.older_min_us = self.min_us;
            self.min_us = NO_RTT;
            self.span_began = now;
        }
        self.min_us = self.min_us.min(us);
    }
}

/// `average` moved towards `value` by one part in 2^`shift`.
fn moved(average: u64, value: u64, shift: u32) -> u64 {
    average - (average >> shift) + (value >> shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_ms(ms)
    }

    fn at(ms: u64) -> Instant {
        Instant::from_us(ms * 1_000)
    }

    #[test]
    fn first_sample_sets_the_average_and_half_of_it_as_variation() {
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.rto(), INITIAL_RTO);
        rtt.sample(at(400), ms(400), 1, 2);
        assert_eq!((rtt.srtt_us(), rtt.rttvar_us()), (Some(400_000), 200_000));
        assert_eq!(rtt.rto(), ms(1_200));
    }

    #[test]
    fn later_samples_follow_the_weights_of_the_rfc() {
        let mut rtt = RttEstimator::default();
        rtt.sample(at(400), ms(400), 1, 2);
        rtt.sample(at(880), ms(480), 2, 3);
        assert_eq!(rtt.rttvar_us(), (3 * 200_000 + 80_000) / 4);
        assert_eq!(rtt.srtt_us(), Some((7 * 400_000 + 480_000) / 8));
    }

    #[test]
    fn many_samples_in_a_round_weigh_about_as_much_as_one() {
        let (mut many, mut one) = (RttEstimator::default(), RttEstimator::default());
        let mut una = 0;
        for round in 0..20 {
            let rtt = ms(100 + 50 * (round % 2));
            one.sample(at(round), rtt, una, una + 64);
            for _ in 0..64 {
                many.sample(at(round), rtt, una, una + 64);
                una += 1;
            }
        }
        let spread = (one.rttvar_us() / 1_000, many.rttvar_us() / 1_000);
        assert!(spread.0.abs_diff(spread.1) < 12, "{spread:?} ms");
        assert!(many.rto() > ms(200) + ms(100));
    }

    #[test]
    fn a_syn_that_was_sent_twice_gives_no_sample() {
        let mut rtt = RttEstimator::default();
        rtt.start_timing(Instant::from_us(10));
        rtt.stop_timing();
        rtt.on_syn_acknowledged(Instant::from_us(900));
        assert_eq!(rtt.srtt_us(), None);
    }

    #[test]
    fn a_steady_round_trip_leaves_room_before_the_timeout() {
        let mut rtt = RttEstimator::default();
        for round in 0..100 {
            rtt.sample(at(round), ms(300), round, round + 1);
        }
        assert_eq!(rtt.rto(), ms(500));
    }

    #[test]
    fn the_smallest_round_trip_is_forgotten_after_ten_minutes() {
        let mut rtt = RttEstimator::default();
        rtt.sample(at(0), ms(10), 1, 2);
        rtt.sample(at(400_000), ms(50), 2, 3);
        assert_eq!(rtt.min_rtt(), Some(ms(10)));
        rtt.sample(at(800_000), ms(60), 3, 4);
        assert_eq!(rtt.min_rtt(), Some(ms(50)));
    }
}
