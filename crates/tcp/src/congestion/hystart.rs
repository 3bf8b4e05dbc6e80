//! HyStart++ (RFC 9406): leave slow start when the round trip grows, before the queue overflows; grow
//! gently for some rounds first, in case it was noise.

use super::{AckSample, Window};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// MIN_RTT_THRESH and MAX_RTT_THRESH (RFC 9406 §4.3), microseconds.
const MIN_RTT_THRESH_US: u32 = 4_000;
const MAX_RTT_THRESH_US: u32 = 16_000;
/// MIN_RTT_DIVISOR.
const MIN_RTT_DIVISOR: u32 = 8;
/// N_RTT_SAMPLE.
const SAMPLES: u32 = 8;
/// CSS_GROWTH_DIVISOR.
const GROWTH_DIVISOR: u32 = 4;
/// CSS_ROUNDS.
const CSS_ROUNDS: u32 = 5;
/// No sample in the round yet.
const UNKNOWN: u32 = u32::MAX;

/// The variables of §4.2, microseconds.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct HyStart {
    last_round_min: u32,
    current_round_min: u32,
    /// rttSampleCount.
    samples: u32,
    /// cssBaselineMinRtt; [`UNKNOWN`]: in slow start proper.
    css_baseline: u32,
    css_rounds: u32,
    /// Acknowledged in conservative slow start and not yet grown by.
    remainder: u32,
}

impl HyStart {
    pub fn start(&mut self) {
        *self = Self {
            last_round_min: UNKNOWN,
            current_round_min: UNKNOWN,
            samples: 0,
            css_baseline: UNKNOWN,
            css_rounds: 0,
            remainder: 0,
        };
    }

    /// One ACK in the first slow start (§4.3: later ones have a better threshold).
    pub fn on_ack(&mut self, window: &mut Window, sample: &AckSample) {
        if let Some(rtt) = sample.rtt {
            let rtt_us = u32::try_from(rtt.as_us()).unwrap_or(UNKNOWN - 1);
            self.current_round_min = self.current_round_min.min(rtt_us);
            self.samples += 1;
        }
        if sample.cwnd_limited {
            self.grow(window, sample.acked);
        }
        if self.samples >= SAMPLES {
            self.judge();
        }
        if sample.round_start {
            self.end_round(window);
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

    fn judge(&mut self) {
        if self.in_css() {
            if self.current_round_min < self.css_baseline {
                // The delay was noise: back to slow start.
                self.css_baseline = UNKNOWN;
                self.css_rounds = 0;
            }
        } else if self.last_round_min != UNKNOWN && self.current_round_min != UNKNOWN {
            let threshold =
                (self.last_round_min / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH_US, MAX_RTT_THRESH_US);
            if self.current_round_min >= self.last_round_min.saturating_add(threshold) {
                self.css_baseline = self.current_round_min;
                self.css_rounds = 0;
            }
        }
    }

    fn end_round(&mut self, window: &mut Window) {
        // One ACK for many segments leaves fewer than eight samples: then the round is judged by all it has.
        if self.samples > 0 && self.samples < SAMPLES {
            self.judge();
        }
        if self.in_css() {
            self.css_rounds += 1;
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

#[cfg(test)]
mod tests {
    use super::super::Window;
    use super::*;
    use crate::time::Duration;
    use zerocopy::FromZeros as _;

    const MSS: u32 = 1_000;

    fn start() -> (HyStart, Window) {
        let mut hystart = HyStart::new_zeroed();
        hystart.start();
        (hystart, Window::initial(MSS, false))
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
}
