//! BBR's phases, on a path made of arithmetic: one ACK a round trip, for what the path carried in it.

use super::super::{Algorithm, Congestion, Path, RateSample, view};
use super::*;
use crate::time::Duration;
use zerocopy::FromZeros as _;

const MSS: u32 = 1_000;
/// 8 Mbit/s.
const BW: u64 = 1_000_000;
const RTT_US: u64 = 50_000;
/// What the path holds.
const BDP: u32 = 50_000;

struct Flow {
    congestion: Congestion,
    now: Instant,
    delivered: u64,
    /// What the path carries, bytes per second.
    bw: u64,
    /// Of 1,000 bytes sent, how many are lost and how many marked.
    lost: u32,
    marked: u32,
    app_limited: bool,
    cwnd_limited: bool,
    rtt_us: u64,
}

impl Flow {
    fn new() -> Self {
        let now = Instant::from_us(1_000_000);
        let mut congestion = Congestion::new_zeroed();
        let path = Path {
            mss: MSS,
            syn_lost: false,
            srtt_us: RTT_US,
        };
        congestion.start(Algorithm::Bbr, now, &path);
        Self {
            congestion,
            now,
            delivered: 0,
            bw: BW,
            lost: 0,
            marked: 0,
            app_limited: false,
            cwnd_limited: true,
            rtt_us: RTT_US,
        }
    }

    /// A flow that has found out about its path and cruises.
    fn cruising() -> Self {
        let mut flow = Self::new();
        flow.rounds_until(Phase::Cruise, 40);
        flow
    }

    fn bbr(&mut self) -> &mut Bbr {
        view(&mut self.congestion.area)
    }

    fn phase(&mut self) -> Phase {
        self.bbr().phase()
    }

    /// One round trip: what is in flight is the window or what pacing let out.
    fn round(&mut self) {
        self.now += Duration::from_us(self.rtt_us);
        let paced = self.congestion.pacing_rate().unwrap() * self.rtt_us / 1_000_000;
        let in_flight = u64::from(self.congestion.cwnd()).min(paced.max(u64::from(4 * MSS)));
        let carried = (self.bw * self.rtt_us / 1_000_000).min(in_flight);
        let delivered = u32::try_from(carried).unwrap();
        let in_flight = u32::try_from(in_flight).unwrap();
        let lost = in_flight / 1_000 * self.lost;
        let prior_delivered = self.delivered;
        self.delivered += carried;
        self.congestion.on_ack(&AckSample {
            now: self.now,
            acked: delivered,
            delivered,
            delivered_total: self.delivered,
            lost,
            ece: delivered / 1_000 * self.marked,
            rtt: Some(Duration::from_us(self.rtt_us)),
            srtt_us: self.rtt_us,
            rate: Some(RateSample {
                rate: carried * 1_000_000 / self.rtt_us,
                delivered,
                prior_delivered,
                tx_in_flight: in_flight,
                lost,
                app_limited: self.app_limited,
            }),
            in_flight,
            cwnd_limited: self.cwnd_limited,
            in_recovery: lost > 0,
            round_start: true,
        });
    }

    /// Rounds until the phase is reached; fails after `limit`.
    #[track_caller]
    fn rounds_until(&mut self, phase: Phase, limit: u32) -> u32 {
        for rounds in 0..limit {
            if self.phase() == phase {
                return rounds;
            }
            self.round();
        }
        panic!("{:?} instead of {phase:?}", self.phase());
    }

    fn pacing_in_percent(&self) -> u64 {
        self.congestion.pacing_rate().unwrap() * 100 / BW
    }
}

#[test]
fn startup_finds_the_bandwidth_and_ends_three_rounds_later() {
    let mut flow = Flow::new();
    let rounds = flow.rounds_until(Phase::Drain, 20);
    // 10 to 50 segments take three doublings, then three rounds without a quarter more.
    assert!((5..=8).contains(&rounds), "{rounds}");
    assert_eq!(flow.bbr().max_bw(), BW);
    // Half of the bandwidth, less the margin of 1 %.
    assert_eq!(flow.pacing_in_percent(), 49);
}

#[test]
fn startup_ends_early_where_much_is_lost() {
    let mut flow = Flow::new();
    flow.bw = 100_000_000;
    for _ in 0..4 {
        flow.round();
    }
    assert_eq!(flow.phase(), Phase::Startup);
    flow.lost = 100;
    flow.round();
    assert_ne!(flow.phase(), Phase::Startup);
    assert_ne!(flow.bbr().inflight_hi, INFINITE);
}

#[test]
fn startup_ends_after_two_rounds_with_half_of_it_marked() {
    let mut flow = Flow::new();
    flow.bw = 100_000_000;
    flow.marked = 600;
    flow.round();
    assert_eq!(flow.phase(), Phase::Startup);
    flow.round();
    assert_ne!(flow.phase(), Phase::Startup);
}

#[test]
fn an_application_limit_does_not_end_startup() {
    let mut flow = Flow::new();
    flow.app_limited = true;
    flow.bw = 100_000;
    for _ in 0..20 {
        flow.round();
    }
    assert_eq!(flow.phase(), Phase::Startup);
}

#[test]
fn the_window_is_two_bandwidth_delay_products_and_the_batch_of_an_ack() {
    let mut flow = Flow::cruising();
    flow.round();
    let cwnd = flow.congestion.cwnd();
    // And one more, because ACKs come in batches of a whole round trip here (§5.5.9).
    assert!((3 * BDP - MSS..=3 * BDP).contains(&cwnd), "{cwnd}");
    assert_eq!(flow.pacing_in_percent(), 99);
}

#[test]
fn a_cycle_gives_way_cruises_refills_and_probes() {
    let mut flow = Flow::cruising();
    let rounds = flow.rounds_until(Phase::Refill, 100);
    // Two to three seconds (§5.3.3.5), or as many rounds as there are segments: here 50 of 50 ms.
    assert!((38..=60).contains(&rounds), "{rounds}");
    assert_eq!(flow.pacing_in_percent(), 99);
    flow.round();
    assert_eq!(flow.phase(), Phase::Up);
    assert_eq!(flow.pacing_in_percent(), 123);
    // Three rounds without a quarter more: nothing to be had.
    let rounds = flow.rounds_until(Phase::Down, 10);
    assert!((3..=4).contains(&rounds), "{rounds}");
    assert_eq!(flow.pacing_in_percent(), 89);
}

#[test]
fn a_probe_finds_new_bandwidth() {
    let mut flow = Flow::cruising();
    flow.bw = 2 * BW;
    for _ in 0..400 {
        flow.round();
    }
    assert!(
        flow.bbr().max_bw() > BW * 19 / 10,
        "{}",
        flow.bbr().max_bw()
    );
}

#[test]
fn lost_bandwidth_is_forgotten_after_two_cycles() {
    let mut flow = Flow::cruising();
    flow.bw = BW / 2;
    for _ in 0..200 {
        flow.round();
    }
    let max_bw = flow.bbr().max_bw();
    assert!(max_bw <= BW / 2 + BW / 100, "{max_bw}");
}

#[test]
fn loss_while_probing_bounds_the_flight() {
    let mut flow = Flow::cruising();
    flow.rounds_until(Phase::Up, 100);
    flow.lost = 50;
    flow.round();
    assert_eq!(flow.phase(), Phase::Down);
    let bound = flow.bbr().inflight_hi;
    assert!((BDP * 7 / 10..=BDP * 5 / 4).contains(&bound), "{bound}");
    flow.lost = 0;
    flow.rounds_until(Phase::Cruise, 10);
    flow.round();
    // §5.6.4.7: fifteen percent of headroom for others.
    assert!(flow.congestion.cwnd() <= bound * 85 / 100 + MSS);
}

#[test]
fn loss_below_two_percent_bounds_nothing_for_long() {
    let mut flow = Flow::cruising();
    flow.rounds_until(Phase::Up, 100);
    flow.lost = 15;
    flow.round();
    assert_eq!(flow.bbr().inflight_hi, INFINITE);
}

#[test]
fn loss_while_cruising_lowers_the_short_term_bounds_until_the_next_probe() {
    let mut flow = Flow::cruising();
    flow.lost = 50;
    flow.bw = BW / 2;
    flow.round();
    flow.round();
    assert!(flow.bbr().bw() <= BW * 7 / 10, "{}", flow.bbr().bw());
    assert!(flow.congestion.cwnd() < 3 * BDP);
    flow.lost = 0;
    flow.bw = BW;
    flow.rounds_until(Phase::Refill, 100);
    assert_eq!(flow.bbr().bw_lo, INFINITE_BW);
    assert_eq!(flow.bbr().inflight_lo, INFINITE);
}

#[test]
fn marks_lower_the_flight_in_proportion() {
    let (mut few, mut many) = (Flow::cruising(), Flow::cruising());
    few.marked = 100;
    many.marked = 400;
    for flow in [&mut few, &mut many] {
        for _ in 0..8 {
            flow.round();
        }
    }
    assert!(few.congestion.cwnd() < 3 * BDP);
    assert!(many.congestion.cwnd() < few.congestion.cwnd());
    assert_eq!(few.bbr().bw_lo, INFINITE_BW, "marks say nothing about rate");
}

#[test]
fn every_five_seconds_the_queue_is_drained_to_see_the_round_trip() {
    let mut flow = Flow::new();
    flow.rtt_us = RTT_US;
    flow.round();
    // A queue of its own that never goes away by itself.
    flow.rtt_us = RTT_US + 10_000;
    flow.rounds_until(Phase::ProbeRtt, 200);
    let since = flow.now.as_us() - 1_000_000;
    assert!((5_000_000..5_300_000).contains(&since), "{since}");
    flow.round();
    assert!(flow.congestion.cwnd() <= BDP / 2 + 8 * MSS);
    flow.rtt_us = RTT_US + 1_000;
    let rounds = flow.rounds_until(Phase::Cruise, 20);
    assert!((4..=8).contains(&rounds), "200 ms: {rounds}");
    assert!(flow.congestion.cwnd() >= BDP, "the window is as before");
}

#[test]
fn a_timeout_leaves_one_segment_and_the_model() {
    let mut flow = Flow::cruising();
    let (max_bw, cwnd) = (flow.bbr().max_bw(), flow.congestion.cwnd());
    let event = CongestionEvent {
        cause: Cause::Loss,
        flight: BDP,
    };
    flow.congestion.on_timeout(&event, true);
    assert_eq!(flow.congestion.cwnd(), MSS);
    flow.congestion.on_recovery_exit(flow.now);
    assert_eq!(flow.congestion.cwnd(), cwnd);
    assert_eq!(flow.bbr().max_bw(), max_bw);
}

#[test]
fn a_spurious_timeout_takes_nothing() {
    let mut flow = Flow::cruising();
    let cwnd = flow.congestion.cwnd();
    let event = CongestionEvent {
        cause: Cause::Loss,
        flight: BDP,
    };
    flow.congestion.on_timeout(&event, true);
    flow.bbr().inflight_lo = 4 * MSS;
    flow.congestion.undo(flow.now);
    assert_eq!(flow.congestion.cwnd(), cwnd);
    assert_eq!(flow.bbr().inflight_lo, INFINITE);
}

#[test]
fn sending_again_after_silence_starts_at_the_known_rate_without_a_probe() {
    let mut flow = Flow::cruising();
    flow.now += Duration::from_secs(30);
    flow.congestion.on_idle(flow.now, true);
    assert_eq!(flow.pacing_in_percent(), 99);
    flow.round();
    assert_ne!(flow.phase(), Phase::ProbeRtt);
    assert!(flow.congestion.cwnd() > BDP);
}

#[test]
fn a_silence_in_the_middle_of_probing_the_round_trip_ends_the_probe_when_its_time_is_over() {
    // draft-ietf-ccwg-bbr §5.4.1, BBRCheckProbeRTTDone.
    let mut flow = Flow::new();
    flow.round();
    flow.rtt_us = RTT_US + 10_000;
    flow.rounds_until(Phase::ProbeRtt, 200);
    while flow.bbr().probe_rtt_done_us == 0 {
        flow.round();
    }
    let small = flow.congestion.cwnd();
    // Too early: the probe goes on.
    flow.congestion.on_idle(flow.now, false);
    assert_eq!(flow.phase(), Phase::ProbeRtt);
    assert_eq!(flow.congestion.cwnd(), small);
    flow.now += Duration::from_ms(300);
    flow.congestion.on_idle(flow.now, false);
    assert_eq!(flow.phase(), Phase::Cruise);
    assert!(flow.congestion.cwnd() >= BDP, "the window is as before");
    flow.round();
    assert_ne!(flow.phase(), Phase::ProbeRtt, "no new one at once");
}
