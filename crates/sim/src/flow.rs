//! One TCP flow under loss, round trip by round trip: how many packets, how fast, how many of them
//! twice. Reno (RFC 5681) and CUBIC (RFC 9438), time-outs (RFC 6298), and three causes of loss.
//!
//! A round sends one window. What a round loses is repaired in the next one, with one reduction per
//! round, as SACK recovery does; where fewer than three packets behave as duplicate acknowledgements,
//! the time-out repairs it. It leaves out reordering, delayed acknowledgements and limits of windows.

use crate::rng::Rng;

/// How the window grows and shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// One packet more per round, half after a loss.
    Reno,
    /// A cubic function of the time since the last loss.
    Cubic,
}

/// What loses packets on the way, besides a full buffer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// Each packet by itself, with this probability.
    Independent(f64),
    /// Gilbert and Elliott: nothing is lost in the good state.
    Bursts {
        /// Probability per packet of leaving the good state.
        to_bad: f64,
        /// Probability per packet of leaving the bad state.
        to_good: f64,
        /// Probability of loss in the bad state.
        in_bad: f64,
    },
}

/// The narrowest link of the way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bottleneck {
    /// Its rate.
    pub packets_per_s: f64,
    /// What it can hold; the rest is lost.
    pub buffer_packets: f64,
    /// It marks (RFC 3168) while it holds more than this.
    pub mark_above_packets: Option<f64>,
}

/// A flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// How the window grows and shrinks.
    pub control: Control,
    /// What loses packets.
    pub loss: Loss,
    /// The narrowest link; none is infinitely fast.
    pub bottleneck: Option<Bottleneck>,
    /// Round trip without queues.
    pub round_trip_s: f64,
    /// Smallest retransmission time-out; none repairs without waiting.
    pub least_timeout_s: Option<f64>,
    /// First window: 10 (RFC 6928), or 2 as in the papers' time.
    pub first_window: f64,
}

/// What a flow did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Course {
    /// How long it took.
    pub seconds: f64,
    /// Packets delivered.
    pub delivered: u64,
    /// Packets sent, repetitions included: the work of whoever owns the stack.
    pub sent: u64,
    /// Reductions of the window without a time-out.
    pub recoveries: u64,
    /// Time-outs.
    pub timeouts: u64,
    /// Rounds with a mark.
    pub marked_rounds: u64,
    /// Packets per round trip.
    pub mean_window: f64,
}

/// CUBIC's C and β (RFC 9438 §4.1.2, §4.6).
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;
/// Largest window: a gigabyte in flight.
const LARGEST: f64 = 1e6;

struct State {
    window: f64,
    threshold: f64,
    /// CUBIC: the window before the last reduction, and when that was.
    peak: f64,
    reduced_at: f64,
    smoothed: Option<(f64, f64)>,
    backoff: u32,
    bad: bool,
}

impl Flow {
    /// Sends this many packets.
    pub fn run(&self, packets: u64, seed: u64) -> Course {
        let mut rng = Rng::new(seed);
        let mut state = State {
            window: self.first_window,
            threshold: LARGEST,
            peak: self.first_window,
            reduced_at: 0.0,
            smoothed: None,
            backoff: 0,
            bad: false,
        };
        let mut course = Course {
            seconds: 0.0,
            delivered: 0,
            sent: 0,
            recoveries: 0,
            timeouts: 0,
            marked_rounds: 0,
            mean_window: 0.0,
        };
        let (mut rounds, mut windows) = (0.0, 0.0);
        while course.delivered < packets {
            let window = state.window.floor().max(1.0);
            let (queue, marked) = self.queue(window);
            let mut lost = self.overflow(window);
            let count = crate::time::round(window);
            let at_risk = count - lost;
            lost += (0..at_risk)
                .map(|_| u64::from(self.loses(&mut rng, &mut state.bad)))
                .sum::<u64>();
            course.sent += count;
            course.delivered += count - lost;
            let round_trip = self.round_trip_s + queue;
            course.seconds += round_trip;
            state.measure(round_trip);
            rounds += 1.0;
            windows += window;
            if lost > 0 && count - lost < 3 && self.least_timeout_s.is_some() {
                course.timeouts += 1;
                course.seconds += state.time_out(self.least_timeout_s.unwrap_or(0.0));
            } else if lost > 0 || marked {
                course.recoveries += 1;
                course.marked_rounds += u64::from(marked);
                state.reduce(self.control, course.seconds);
            } else {
                state.backoff = 0;
                state.grow(self.control, course.seconds, round_trip);
            }
        }
        course.mean_window = windows / rounds;
        course
    }

    /// Time in the bottleneck's queue, and whether it marks.
    fn queue(&self, window: f64) -> (f64, bool) {
        let Some(link) = &self.bottleneck else {
            return (0.0, false);
        };
        let fits = link.packets_per_s * self.round_trip_s;
        let held = (window - fits).clamp(0.0, link.buffer_packets);
        let marked = link.mark_above_packets.is_some_and(|mark| held > mark);
        (held / link.packets_per_s, marked)
    }

    /// What the bottleneck's buffer cannot hold.
    fn overflow(&self, window: f64) -> u64 {
        self.bottleneck.as_ref().map_or(0, |link| {
            let fits = link.packets_per_s * self.round_trip_s + link.buffer_packets;
            crate::time::round((window - fits).max(0.0)).min(crate::time::round(window))
        })
    }

    fn loses(&self, rng: &mut Rng, bad: &mut bool) -> bool {
        match self.loss {
            Loss::Independent(p) => rng.chance(p),
            Loss::Bursts {
                to_bad,
                to_good,
                in_bad,
            } => {
                *bad = if *bad {
                    !rng.chance(to_good)
                } else {
                    rng.chance(to_bad)
                };
                *bad && rng.chance(in_bad)
            }
        }
    }
}

impl State {
    /// RFC 6298 §2.
    fn measure(&mut self, round_trip: f64) {
        self.smoothed = Some(match self.smoothed {
            None => (round_trip, round_trip / 2.0),
            Some((mean, variation)) => (
                mean + (round_trip - mean) / 8.0,
                variation + ((round_trip - mean).abs() - variation) / 4.0,
            ),
        });
    }

    /// How long the time-out waits; the window starts again (RFC 5681 §3.1).
    fn time_out(&mut self, least: f64) -> f64 {
        let (mean, variation) = self.smoothed.unwrap_or((1.0, 0.5));
        let wait = (mean + 4.0 * variation).max(least) * f64::from(1_u32 << self.backoff.min(6));
        self.backoff += 1;
        self.threshold = (self.window / 2.0).max(2.0);
        self.window = 1.0;
        wait
    }

    fn reduce(&mut self, control: Control, now: f64) {
        let kept = match control {
            Control::Reno => 0.5,
            Control::Cubic => CUBIC_BETA,
        };
        // RFC 9438 §4.7: a flow that did not reach its last peak leaves room to a new one.
        self.peak = if self.window < self.peak {
            self.window * (1.0 + kept) / 2.0
        } else {
            self.window
        };
        self.reduced_at = now;
        self.threshold = (self.window * kept).max(2.0);
        self.window = self.threshold;
    }

    fn grow(&mut self, control: Control, now: f64, round_trip: f64) {
        let window = if self.window < self.threshold {
            (self.window * 2.0).min(self.threshold)
        } else {
            match control {
                Control::Reno => self.window + 1.0,
                Control::Cubic => self.cubic(now, round_trip),
            }
        };
        self.window = window.min(LARGEST);
    }

    /// RFC 9438 §4.2 and §4.3.
    fn cubic(&self, now: f64, round_trip: f64) -> f64 {
        let reduced = self.peak * CUBIC_BETA;
        let k = ((self.peak - reduced) / CUBIC_C).cbrt();
        let since = now - self.reduced_at;
        let curve = CUBIC_C * (since + round_trip - k).powi(3) + self.peak;
        let friendly = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);
        let reno = reduced + friendly * since / round_trip;
        curve.max(reno).clamp(self.window, self.window * 1.5)
    }
}

/// Packets per round trip of Reno under independent loss, without time-outs: √(3/2p).
pub fn square_root_law(loss: f64) -> f64 {
    (1.5 / loss).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(control: Control, loss: Loss) -> Flow {
        Flow {
            control,
            loss,
            bottleneck: None,
            round_trip_s: 0.05,
            least_timeout_s: Some(0.2),
            first_window: 10.0,
        }
    }

    #[test]
    fn reno_keeps_to_the_square_root_law() {
        for p in [1e-3, 1e-4] {
            let course = flow(Control::Reno, Loss::Independent(p)).run(3_000_000, 1);
            let ratio = course.mean_window / square_root_law(p);
            assert!((ratio - 1.0).abs() < 0.15, "{p}: {ratio}");
        }
    }

    #[test]
    fn cubic_outruns_reno_on_a_long_path_with_rare_loss() {
        let window = |control| {
            flow(control, Loss::Independent(1e-5))
                .run(3_000_000, 1)
                .mean_window
        };
        assert!(window(Control::Cubic) > 1.3 * window(Control::Reno));
    }

    #[test]
    fn work_grows_as_equation_5_says_with_and_without_time_outs() {
        let p = 0.05;
        for least_timeout_s in [None, Some(0.2)] {
            let flow = Flow {
                least_timeout_s,
                ..flow(Control::Reno, Loss::Independent(p))
            };
            let course = flow.run(300_000, 2);
            let inflation = course.sent as f64 / course.delivered as f64;
            assert!((inflation * (1.0 - p) - 1.0).abs() < 0.01, "{inflation}");
        }
    }

    #[test]
    fn time_outs_and_not_processing_make_loss_slow() {
        let rate = |least_timeout_s| {
            let flow = Flow {
                least_timeout_s,
                ..flow(Control::Reno, Loss::Independent(0.1))
            };
            let course = flow.run(50_000, 3);
            course.delivered as f64 / course.seconds
        };
        let (waiting, at_once) = (rate(Some(0.2)), rate(None));
        assert!(waiting < 0.8 * at_once, "{waiting} {at_once}");
    }

    #[test]
    fn bursts_lose_what_they_say() {
        let loss = Loss::Bursts {
            to_bad: 0.001,
            to_good: 0.1,
            in_bad: 0.5,
        };
        let course = flow(Control::Cubic, loss).run(2_000_000, 4);
        let lost = 1.0 - course.delivered as f64 / course.sent as f64;
        // A share of 0.001/(0.001+0.1) of the packets meets the bad state.
        assert!((lost / (0.5 * 0.001 / 0.101) - 1.0).abs() < 0.05, "{lost}");
    }

    #[test]
    fn a_bottleneck_is_filled_and_marks_in_place_of_dropping() {
        let link = Bottleneck {
            packets_per_s: 10_000.0,
            buffer_packets: 500.0,
            mark_above_packets: None,
        };
        let run = |mark_above_packets| {
            let bottleneck = Some(Bottleneck {
                mark_above_packets,
                ..link
            });
            let flow = Flow {
                bottleneck,
                ..flow(Control::Cubic, Loss::Independent(0.0))
            };
            flow.run(1_000_000, 5)
        };
        let (drops, marks) = (run(None), run(Some(50.0)));
        for course in [drops, marks] {
            let rate = course.delivered as f64 / course.seconds;
            assert!(rate > 8_500.0 && rate <= 10_050.0, "{rate}");
        }
        assert!(drops.sent > drops.delivered);
        assert!(marks.marked_rounds > 0);
        assert!(marks.sent - marks.delivered < drops.sent - drops.delivered);
    }
}
