//! Reno: slow start, congestion avoidance and halving (RFC 5681), initial window 10 (RFC 6928). The first
//! slow start ends by HyStart++.

use super::{AckSample, CongestionEvent, Controller, Window, hystart::HyStart};
use crate::time::Instant;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Initial window for segments of `mss` bytes (RFC 6928 §2).
pub fn initial_window(mss: u32) -> u32 {
    (10 * mss).min((2 * mss).max(14_600))
}

/// Smaller windows double until something is lost, as Linux's all do: what overflows is no more than the table of
/// what is in flight can tell apart. Where losses come by chance, or beside a flow that overshoots, Reno, which
/// gains a segment in a round trip, lives on what slow start has reached.
const HYSTART_SEGMENTS: u32 = 512;

/// Reno needs nothing beyond the window, but for a sense of when slow start has done its work.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Reno {
    hystart: HyStart,
}

impl Controller for Reno {
    fn start(&mut self, _window: &mut Window, _now: Instant, _srtt_us: u64) {
        self.hystart.start(HYSTART_SEGMENTS);
    }

    fn on_ack(&mut self, window: &mut Window, sample: &AckSample) {
        if window.in_first_slow_start() && !sample.in_recovery {
            self.hystart.on_ack(window, sample);
        } else {
            on_ack(window, sample);
        }
    }

    fn on_congestion_event(&mut self, window: &mut Window, event: &CongestionEvent) {
        on_congestion(window, event);
    }

    fn on_timeout(&mut self, window: &mut Window, event: &CongestionEvent, first: bool) {
        on_timeout(window, event, first);
    }
}

/// RFC 5681 §3.1.
pub(super) fn on_ack(window: &mut Window, sample: &AckSample) {
    if !sample.cwnd_limited || sample.in_recovery {
        return;
    }
    let rest = if window.in_slow_start() {
        window.slow_start(sample.acked)
    } else {
        sample.acked
    };
    if rest > 0 {
        window.avoid(rest, window.cwnd);
    }
}

/// RFC 5681 §3.1 equation (4), then §3.2 step 2; RFC 3168 §6.1.2 wants the same for a mark. Whole segments: a part of
/// one could not leave, and would be so much more to be acknowledged before the window has one segment more.
pub(super) fn on_congestion(window: &mut Window, event: &CongestionEvent) {
    let half = event.flight / 2;
    window.reduce_to(half - half % window.mss.max(1));
}

/// RFC 5681 §3.1: the loss window is one segment; the threshold is halved once per episode.
pub(super) fn on_timeout(window: &mut Window, event: &CongestionEvent, first: bool) {
    if first {
        on_congestion(window, event);
    }
    window.collapse();
}

#[cfg(test)]
mod tests {
    use super::super::{Algorithm, Cause, Congestion, Path};
    use super::*;
    use zerocopy::FromZeros as _;

    const MSS: u32 = 1_000;

    fn reno() -> Congestion {
        let mut congestion = Congestion::new_zeroed();
        let path = Path {
            mss: MSS,
            syn_lost: false,
            srtt_us: 0,
        };
        congestion.start(Algorithm::Reno, Instant::ZERO, &path);
        congestion
    }

    fn acks(congestion: &mut Congestion, acked: u32) {
        congestion.on_ack(&AckSample {
            acked,
            delivered: acked,
            cwnd_limited: true,
            ..AckSample::default()
        });
    }

    fn loss(flight: u32) -> CongestionEvent {
        CongestionEvent {
            cause: Cause::Loss,
            flight,
        }
    }

    #[test]
    fn initial_window_is_ten_segments_up_to_the_limit_of_the_rfc() {
        assert_eq!(initial_window(1_460), 14_600);
        assert_eq!(initial_window(536), 5_360);
        assert_eq!(initial_window(9_000), 18_000);
    }

    #[test]
    fn slow_start_doubles_and_avoidance_adds_one_segment_per_window() {
        let mut reno = reno();
        let before = reno.cwnd();
        acks(&mut reno, before);
        assert_eq!(reno.cwnd(), 2 * before);
        reno.on_congestion_event(&loss(2 * before));
        assert_eq!(reno.cwnd(), before);
        acks(&mut reno, before);
        assert_eq!(reno.cwnd(), before + MSS);
    }

    #[test]
    fn one_ack_for_many_segments_stops_at_the_threshold() {
        let mut reno = reno();
        reno.on_congestion_event(&loss(40_000));
        reno.on_timeout(&loss(20_000), true);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (1_000, 10_000));
        // 9,000 bytes reach the threshold, the other 10,000 are one window of avoidance.
        acks(&mut reno, 19_000);
        assert_eq!(reno.cwnd(), 10_000 + MSS);
    }

    #[test]
    fn a_second_timeout_keeps_the_threshold() {
        let mut reno = reno();
        reno.on_timeout(&loss(40_000), true);
        reno.on_timeout(&loss(1_000), false);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (1_000, 20_000));
    }

    #[test]
    fn a_window_that_did_not_limit_does_not_grow() {
        let mut reno = reno();
        reno.on_ack(&AckSample {
            acked: 5_000,
            ..AckSample::default()
        });
        assert_eq!(reno.cwnd(), 10_000);
    }

    #[test]
    fn undo_restores_what_was_before_the_reduction_once() {
        let mut reno = reno();
        acks(&mut reno, 10_000);
        reno.on_congestion_event(&loss(20_000));
        assert_eq!(reno.cwnd(), 10_000);
        reno.undo(Instant::ZERO);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (20_000, u32::MAX));
        reno.on_timeout(&loss(20_000), true);
        reno.undo(Instant::ZERO);
        assert_eq!(reno.cwnd(), 20_000);
        reno.on_idle(Instant::ZERO, true);
        reno.undo(Instant::ZERO);
        assert_eq!(reno.cwnd(), 10_000, "nothing is left to undo");
    }
}
