//! DCTCP (RFC 8257): the window shrinks by the share of bytes that the network marked, so that queues in a
//! data centre stay short. Everything else is Reno's; without ECN nothing but Reno is left.

use super::{
    AckSample, Cause, CongestionEvent, CongestionInfo, Controller, Window, reno, window::scaled,
};
use crate::time::Instant;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One in the unit of DCTCP.Alpha.
const ONE: u64 = 1_024;
/// The estimation gain g = 1/16 (RFC 8257 §4.2).
const GAIN: u64 = 16;

/// The variables of RFC 8257 §3.3, bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Dctcp {
    acked: u64,
    marked: u64,
    /// DCTCP.Alpha in 1/1024, times the gain's divisor so that small shares do not vanish.
    alpha: u64,
}

impl Dctcp {
    pub(super) fn info(&self) -> CongestionInfo {
        CongestionInfo::Dctcp {
            alpha: u32::try_from(self.alpha / GAIN).unwrap_or(u32::MAX),
            marked: self.marked,
            acked: self.acked,
            is_enabled: true,
            is_receiving_marks: false,
        }
    }
}

impl Controller for Dctcp {
    /// §3.3: begin careful, with everything marked.
    fn start(&mut self, _window: &mut Window, _now: Instant, _srtt_us: u64) {
        self.alpha = ONE * GAIN;
    }

    fn on_ack(&mut self, window: &mut Window, sample: &AckSample) {
        self.acked += u64::from(sample.delivered);
        self.marked += u64::from(sample.ece);
        if sample.round_start {
            // §3.3 steps 5 to 7, once per window of data.
            let share = self.marked.min(self.acked) * ONE * GAIN / self.acked.max(1);
            self.alpha = self.alpha - self.alpha / GAIN + share / GAIN;
            self.acked = 0;
            self.marked = 0;
        }
        if sample.ece == 0 {
            reno::on_ack(window, sample);
        }
    }

    fn on_congestion_event(&mut self, window: &mut Window, event: &CongestionEvent) {
        match event.cause {
            // §3.3 step 9: cwnd × (1 − α / 2).
            Cause::Ecn => {
                let keep = 2 * ONE * GAIN - self.alpha.min(ONE * GAIN);
                window.reduce_to(scaled(window.cwnd, (keep, 2 * ONE * GAIN)));
            }
            // §3.5: loss as in Reno.
            Cause::Loss => reno::on_congestion(window, event),
        }
    }

    fn on_timeout(&mut self, window: &mut Window, event: &CongestionEvent, first: bool) {
        reno::on_timeout(window, event, first);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Algorithm, Congestion, Path};
    use super::*;
    use proptest::prelude::*;
    use zerocopy::FromZeros as _;

    const MSS: u32 = 1_000;

    fn dctcp() -> Congestion {
        let mut congestion = Congestion::new_zeroed();
        let path = Path {
            mss: MSS,
            syn_lost: false,
            srtt_us: 0,
        };
        congestion.start(Algorithm::Dctcp, Instant::ZERO, &path);
        congestion
    }

    /// A window of data, `marked` of 1,000 bytes of it marked; then the reaction, as `ecn` would.
    fn round(congestion: &mut Congestion, marked: u32) {
        let window = congestion.cwnd();
        let ece = window / 1_000 * marked;
        congestion.on_ack(&AckSample {
            acked: window,
            delivered: window,
            ece,
            round_start: true,
            cwnd_limited: true,
            ..AckSample::default()
        });
        if ece > 0 {
            congestion.on_congestion_event(&CongestionEvent {
                cause: Cause::Ecn,
                flight: window,
            });
        }
    }

    #[test]
    fn the_first_mark_halves_and_later_ones_count_by_their_share() {
        let mut flow = dctcp();
        for _ in 0..4 {
            round(&mut flow, 0);
        }
        assert_eq!(flow.cwnd(), 160 * MSS);
        // Alpha began at one and lost a sixteenth in each of four rounds.
        round(&mut flow, 1_000);
        assert!((80 * MSS..100 * MSS).contains(&flow.cwnd()));
        for _ in 0..200 {
            round(&mut flow, 0);
        }
        let before = flow.cwnd();
        // A fifth marked once: alpha is 0.2 / 16.
        round(&mut flow, 200);
        let cut = before - flow.cwnd();
        assert!(
            (before / 200..before / 130).contains(&cut),
            "{cut} of {before}"
        );
    }

    #[test]
    fn what_it_believes_is_told_until_the_round_ends() {
        let mut flow = dctcp();
        let told = |flow: &Congestion| match flow.info() {
            CongestionInfo::Dctcp {
                alpha,
                marked,
                acked,
                ..
            } => (alpha, marked, acked),
            other => panic!("{other:?}"),
        };
        assert_eq!(told(&flow), (1_024, 0, 0));
        round(&mut flow, 0);
        assert_eq!(told(&flow), (960, 0, 0), "a sixteenth less");
        flow.on_ack(&AckSample {
            acked: 3_000,
            delivered: 3_000,
            ece: 1_000,
            ..AckSample::default()
        });
        assert_eq!(told(&flow), (960, 1_000, 3_000));
    }

    #[test]
    fn loss_halves_as_in_reno() {
        let mut flow = dctcp();
        for _ in 0..4 {
            round(&mut flow, 0);
        }
        flow.on_congestion_event(&CongestionEvent {
            cause: Cause::Loss,
            flight: 160 * MSS,
        });
        assert_eq!(flow.cwnd(), 80 * MSS);
    }

    proptest! {
        #[test]
        fn alpha_follows_the_formula_of_the_rfc(marks in proptest::collection::vec(0_u32..=1_000, 1..200)) {
            let mut dctcp = Dctcp { acked: 0, marked: 0, alpha: ONE * GAIN };
            let mut window = Window::initial(MSS, false);
            let mut alpha = 1.0;
            for marked in marks {
                dctcp.on_ack(&mut window, &AckSample {
                    acked: 1_000,
                    delivered: 1_000,
                    ece: marked,
                    round_start: true,
                    ..AckSample::default()
                });
                alpha = alpha * 15.0 / 16.0 + f64::from(marked) / 1_000.0 / 16.0;
            }
            let ours = dctcp.alpha as f64 / (ONE * GAIN) as f64;
            prop_assert!((ours - alpha).abs() < 0.003, "{ours} {alpha}");
        }
    }
}
