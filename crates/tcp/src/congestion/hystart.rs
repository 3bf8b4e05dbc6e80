//! HyStart++ (RFC 9406): leave slow start when the round trip grows, before the queue overflows; grow
//! gently for some rounds first, in case it was noise.
//!
//! The round trip tells late: the first segments of a round meet the queue that a pause has emptied, and
//! they are the smallest. So conservative slow start also begins when a train of ACKs is as long as half a
//! round trip (Ha and Rhee 2011, as Linux does): then half the path is full. There the first round trip
//! that grows ends it.

use super::{AckSample, Window};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// MIN_RTT_THRESH and MAX_RTT_THRESH (RFC 9406 §4.3), microseconds.
const MIN_RTT_THRESH_US: u32 = 4_000;
const MAX_RTT_THRESH_US: u32 = 16_000;
/// MIN_RTT_DIVISOR.
const MIN_RTT_DIVISOR: u32 = 8;
/// N_RTT_SAMPLE.
const SAMPLES: u16 = 8;
/// CSS_GROWTH_DIVISOR.
const GROWTH_DIVISOR: u32 = 4;
/// CSS_ROUNDS.
const CSS_ROUNDS: u16 = 5;
/// ACKs further apart than this, microseconds, belong to no train.
const TRAIN_GAP_US: u32 = 2_000;
/// No sample in the round yet.
const UNKNOWN: u32 = u32::MAX;

/// The variables of §4.2, microseconds.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct HyStart {
    last_round_min: u32,
    current_round_min: u32,
    /// rttSampleCount.
    samples: u16,
    css_rounds: u16,
    /// cssBaselineMinRtt; [`UNKNOWN`]: in slow start proper.
    css_baseline: u32,
    /// Acknowledged in conservative slow start and not yet grown by.
    remainder: u32,
    /// Smallest round trip of all rounds.
    lowest: u32,
    /// When the first and the last ACK of the train came, microseconds modulo 2^32.
    train_began: u32,
    train_end: u32,
    /// Windows of fewer segments double whatever the delay says.
    low_segments: u32,
    reserved: u32,
}

/// [`HyStart::css_baseline`] of a stage that began with a train: no round trip is below it.
const TRAIN: u32 = 0;

impl HyStart {
    /// `low_segments`: windows of fewer segments double whatever the delay says.
    pub fn start(&mut self, low_segments: u32) {
        *self = Self {
            last_round_min: UNKNOWN,
            current_round_min: UNKNOWN,
            samples: 0,
            css_baseline: UNKNOWN,
            css_rounds: 0,
            remainder: 0,
            lowest: UNKNOWN,
            train_began: 0,
            train_end: 0,
            low_segments,
            reserved: 0,
        };
    }

    /// One ACK in the first slow start (§4.3: later ones have a better threshold).
    #[inline(always)]
    pub fn on_ack(&mut self, window: &mut Window, sample: &AckSample) {
        if let Some(rtt) = sample.rtt {
            let rtt_us = u32::try_from(rtt.as_us()).unwrap_or(UNKNOWN - 1);
            self.current_round_min = self.current_round_min.min(rtt_us);
            self.lowest = self.lowest.min(rtt_us);
            self.samples = self.samples.saturating_add(1);
        }
        if sample.cwnd_limited {
            self.grow(window, sample.acked);
        }
        let low = u64::from(self.low_segments) * u64::from(window.mss);
        let is_low = u64::from(window.cwnd) < low;
        if self.samples >= SAMPLES && !is_low {
            self.judge(window);
        }
        self.follow_train(sample, is_low);
        if sample.round_start {
            self.end_round(window, is_low);
        }
    }

    fn follow_train(&mut self, sample: &AckSample, is_low: bool) {
        let now = low(sample.now.as_us());
        if now.wrapping_sub(self.train_end) > TRAIN_GAP_US {
            self.train_began = now;
        }
        self.train_end = now;
        // On short paths trains are made by those who gather segments.
        let long = (self.lowest / 2).max(MIN_RTT_THRESH_US);
        let is_long = !is_low && now.wrapping_sub(self.train_began) > long;
        if is_long && sample.cwnd_limited && !self.in_css() && self.lowest != UNKNOWN {
            self.css_baseline = TRAIN;
            self.css_rounds = 0;
        }
    }

    fn in_css(&self) -> bool {
        self.css_baseline != UNKNOWN
    }

    /// §4.2 without its limit L: see docs/rfc.md on stretch ACKs.
    fn grow(&mut self, window: &mut Window, acked: u32) {
        if !self.in_css() {
            window.slow_start(acked);
            return;
        }
        let total = self.remainder.saturating_add(acked);
        self.remainder = total % GROWTH_DIVISOR;
        window.slow_start(total / GROWTH_DIVISOR);
    }

    fn judge(&mut self, window: &mut Window) {
        if self.css_baseline == TRAIN {
            if self.current_round_min >= self.lowest.saturating_add(threshold(self.lowest)) {
                window.ssthresh = window.cwnd;
            }
        } else if self.in_css() {
            if self.current_round_min < self.css_baseline {
                // The delay was noise: back to slow start.
                self.css_baseline = UNKNOWN;
                self.css_rounds = 0;
            }
        } else if self.last_round_min != UNKNOWN && self.current_round_min != UNKNOWN {
            let threshold = threshold(self.last_round_min);
            if self.current_round_min >= self.last_round_min.saturating_add(threshold) {
                self.css_baseline = self.current_round_min;
                self.css_rounds = 0;
            }
        }
    }

    fn end_round(&mut self, window: &mut Window, is_low: bool) {
        // One ACK for many segments leaves fewer than eight samples: then the round is judged by all it has.
        if self.samples > 0 && self.samples < SAMPLES && !is_low {
            self.judge(window);
        }
        if self.in_css() {
            self.css_rounds = self.css_rounds.saturating_add(1);
            if self.css_rounds >= CSS_ROUNDS {
                window.ssthresh = window.cwnd;
            }
        }
        if self.samples > 0 {
            self.last_round_min = self.current_round_min;
        }
        self.current_round_min = UNKNOWN;
        self.samples = 0;
    }
}

/// By how much the round trip must grow (§4.2).
fn threshold(rtt_us: u32) -> u32 {
    (rtt_us / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH_US, MAX_RTT_THRESH_US)
}

fn low(us: u64) -> u32 {
    let [a, b, c, d, ..] = us.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::super::Window;
    use super::*;
    use crate::time::{Duration, Instant};
    use zerocopy::FromZeros as _;

    const MSS: u32 = 1_000;

    fn start() -> (HyStart, Window) {
        let mut hystart = HyStart::new_zeroed();
        hystart.start(0);
        (hystart, Window::initial(MSS, false))
    }

    #[test]
    fn a_low_window_doubles_whatever_the_delay_says() {
        let (mut hystart, mut window) = start();
        hystart.start(64);
        round(&mut hystart, &mut window, 40);
        for rtt_ms in [60, 80, 100, 120] {
            assert!(window.cwnd < 64 * MSS && !hystart.in_css());
            round(&mut hystart, &mut window, rtt_ms);
        }
        // Sixty now: the round in which it is no longer low counts.
        train(&mut hystart, &mut window, 1_000_000, 1_000, 40);
        assert!(hystart.in_css());
    }

    /// A round of ten ACKs of one segment, all with the same round trip.
    fn round(hystart: &mut HyStart, window: &mut Window, rtt_ms: u64) {
        for ack in 1..=10 {
            hystart.on_ack(
                window,
                &AckSample {
                    acked: MSS,
                    rtt: Some(Duration::from_ms(rtt_ms)),
                    cwnd_limited: true,
                    round_start: ack == 10,
                    ..AckSample::default()
                },
            );
        }
    }

    #[test]
    fn a_steady_round_trip_keeps_slow_start() {
        let (mut hystart, mut window) = start();
        for _ in 0..20 {
            round(&mut hystart, &mut window, 50);
        }
        assert_eq!(window.cwnd, 210 * MSS);
        assert!(window.in_slow_start());
    }

    #[test]
    fn five_rounds_of_longer_round_trips_end_it() {
        let (mut hystart, mut window) = start();
        round(&mut hystart, &mut window, 40);
        let before = window.cwnd;
        // An eighth of 40 ms is 5 ms: 44 ms pass, 46 ms do not.
        round(&mut hystart, &mut window, 44);
        assert_eq!(window.cwnd, before + 10 * MSS);
        round(&mut hystart, &mut window, 50);
        assert!(hystart.in_css());
        let before = window.cwnd;
        for _ in 0..4 {
            assert!(window.in_slow_start());
            round(&mut hystart, &mut window, 51);
        }
        assert!(!window.in_slow_start());
        assert_eq!(window.cwnd, before + 10 * MSS, "a quarter of forty");
    }

    #[test]
    fn a_shorter_round_trip_in_between_takes_it_back() {
        let (mut hystart, mut window) = start();
        round(&mut hystart, &mut window, 40);
        round(&mut hystart, &mut window, 60);
        assert!(hystart.in_css());
        round(&mut hystart, &mut window, 41);
        assert!(!hystart.in_css());
        let before = window.cwnd;
        round(&mut hystart, &mut window, 41);
        assert_eq!(window.cwnd, before + 10 * MSS);
    }

    #[test]
    fn the_threshold_has_a_floor_and_a_ceiling() {
        for (base_ms, still, beyond) in [(1, 4, 5), (40, 44, 45), (400, 415, 416)] {
            let judge = |rtt_ms| {
                let (mut hystart, mut window) = start();
                round(&mut hystart, &mut window, base_ms);
                round(&mut hystart, &mut window, rtt_ms);
                hystart.in_css()
            };
            assert!(!judge(still), "{base_ms}");
            assert!(judge(beyond), "{base_ms}");
        }
    }

    #[test]
    fn one_ack_per_round_is_judged_at_its_end() {
        let (mut hystart, mut window) = start();
        for rtt_ms in [40, 40, 60] {
            hystart.on_ack(
                &mut window,
                &AckSample {
                    acked: 40 * MSS,
                    rtt: Some(Duration::from_ms(rtt_ms)),
                    cwnd_limited: true,
                    round_start: true,
                    ..AckSample::default()
                },
            );
        }
        assert!(hystart.in_css());
    }

    /// ACKs of one segment each, `gap_us` apart, all of one round and with the same round trip.
    fn train(hystart: &mut HyStart, window: &mut Window, from_us: u64, gap_us: u64, acks: u64) {
        for ack in 0..acks {
            hystart.on_ack(
                window,
                &AckSample {
                    now: Instant::from_us(from_us + ack * gap_us),
                    acked: MSS,
                    rtt: Some(Duration::from_ms(20)),
                    cwnd_limited: true,
                    ..AckSample::default()
                },
            );
        }
    }

    #[test]
    fn a_train_of_acks_as_long_as_half_a_round_trip_ends_doubling() {
        let (mut hystart, mut window) = start();
        train(&mut hystart, &mut window, 1_000_000, 1_000, 11);
        assert!(!hystart.in_css(), "10 ms are half of 20");
        train(&mut hystart, &mut window, 1_011_000, 1_000, 1);
        assert!(hystart.in_css());
        let before = window.cwnd;
        train(&mut hystart, &mut window, 1_012_000, 1_000, 8);
        assert_eq!(window.cwnd, before + 2 * MSS);
    }

    #[test]
    fn acks_with_pauses_between_them_are_no_train() {
        let (mut hystart, mut window) = start();
        train(&mut hystart, &mut window, 1_000_000, 2_001, 100);
        for round in 0..10 {
            train(
                &mut hystart,
                &mut window,
                2_000_000 + round * 20_000,
                100,
                100,
            );
        }
        assert!(!hystart.in_css());
    }

    #[test]
    fn the_first_longer_round_trip_after_a_train_ends_slow_start() {
        let (mut hystart, mut window) = start();
        train(&mut hystart, &mut window, 1_000_000, 1_000, 15);
        round(&mut hystart, &mut window, 23);
        assert!(window.in_slow_start(), "less than the least threshold");
        round(&mut hystart, &mut window, 25);
        assert!(!window.in_slow_start());
        assert_eq!(window.ssthresh, window.cwnd);
    }
}
