//! Thousands of cables that lose, duplicate and reorder: the bytes arrive, the table of what is in flight
//! stays whole, and nobody waits longer than the protocol allows.

use super::{Pair, Weather, pair::exchange_over};
use crate::{Config, Connection, Duration, State, TransmitLimits, send::flight_pool::OneBlock};

/// The longest back-off there is.
const LONGEST: Duration = Duration::from_secs(120);

fn check(pair: &mut Pair) {
    pair.check_flights();
    for end in &pair.ends {
        let info = end.info();
        let is_live = !matches!(info.state, State::Closed | State::TimeWait);
        if info.flight > 0 && is_live {
            let deadline = end.deadline().expect("what is in flight is watched");
            assert!(deadline.since(pair.now) <= LONGEST, "{info:?}");
        }
        assert!(end.pipe() <= info.flight);
        assert!(info.cwnd > 0 || !info.state.is_synchronized());
    }
}

/// A cable and two ends drawn from `seed`.
fn pair(seed: u64) -> (Pair, [u64; 2]) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let weather = Weather {
        loss_per_mille: [0, 1, 10, 50, 150][usize::try_from(draw(5)).unwrap()],
        duplicate_per_mille: [0, 0, 20, 200][usize::try_from(draw(4)).unwrap()],
        delay_us: [20, 500, 10_000, 60_000][usize::try_from(draw(4)).unwrap()],
        jitter_us: [0, 100, 5_000, 80_000][usize::try_from(draw(4)).unwrap()],
    };
    let mut config = || Config {
        sack: draw(4) > 0,
        timestamps: draw(3) > 0,
        window_scaling: draw(3) > 0,
        receive_capacity: 1 << (12 + draw(6)),
        send_capacity: 1 << (12 + draw(6)),
        ..Config::default()
    };
    let configs = [config(), config()];
    let limits = TransmitLimits {
        mss: 1_460,
        max_payload: if draw(2) == 0 { 1_460 } else { 64_000 },
    };
    let mut pair = Pair::new(configs, weather, limits, seed);
    pair.cuts = draw(3) > 0;
    let bytes = [draw(120_000), draw(20_000)];
    for memory in &mut pair.memories {
        // No block for the flight, one that is soon full, one for every segment.
        memory.flights = OneBlock::of([0, 16, 1_024][usize::try_from(draw(3)).unwrap()]);
    }
    (pair, bytes)
}

#[test]
fn thousands_of_bad_cables_deliver_every_byte() {
    for seed in 0..2_500 {
        let (pair, bytes) = pair(seed);
        let result = std::panic::catch_unwind(|| exchange_over(pair, bytes, check));
        assert!(result.is_ok(), "seed {seed}");
    }
}

#[test]
fn the_same_seed_repeats_every_figure() {
    let trace = |seed| {
        let (pair, bytes) = pair(seed);
        let pair = exchange_over(pair, bytes, |_| ());
        (pair.now, pair.segments, pair.ends.map(|end| end.info()))
    };
    for seed in 0..40 {
        assert_eq!(trace(seed), trace(seed), "seed {seed}");
    }
}

/// Segments that both ends sent again.
fn retransmissions(ends: &[Connection; 2]) -> u64 {
    ends.iter().map(|end| end.info().retransmissions).sum()
}

fn on(weather: Weather, seed: u64) -> Pair {
    let limits = TransmitLimits {
        mss: 1_460,
        max_payload: 1_460,
    };
    let pair = Pair::new([Config::default(); 2], weather, limits, seed);
    exchange_over(pair, [300_000, 0], check)
}

#[test]
fn a_cable_that_only_reorders_costs_few_retransmissions() {
    let weather = Weather {
        loss_per_mille: 0,
        duplicate_per_mille: 0,
        delay_us: 20_000,
        jitter_us: 4_000,
    };
    let again: u64 = (0..20)
        .map(|seed| retransmissions(&on(weather, seed).ends))
        .sum();
    // 20 transfers of 206 segments; three duplicate ACKs would repeat many of them.
    assert!(again < 120, "{again} segments sent again");
}

#[test]
fn what_is_lost_is_sent_again_and_hardly_anything_else() {
    let weather = Weather {
        loss_per_mille: 20,
        duplicate_per_mille: 0,
        delay_us: 20_000,
        jitter_us: 0,
    };
    let (mut again, mut lost) = (0, 0);
    for seed in 0..40 {
        let pair = on(weather, seed);
        again += pair.ends[0].info().retransmissions;
        lost += pair.lost;
    }
    // Each loss once; a few probes and timeouts, for lost ACKs and for the last segments.
    assert!(
        again >= lost && again <= lost + lost / 8,
        "{again} for {lost}"
    );
}

#[test]
fn a_cable_that_only_duplicates_costs_no_retransmission() {
    let weather = Weather {
        loss_per_mille: 0,
        duplicate_per_mille: 300,
        delay_us: 20_000,
        jitter_us: 0,
    };
    for seed in 0..20 {
        let pair = on(weather, seed);
        // The other end repeats its SYN-ACK for a SYN that came twice.
        assert_eq!(pair.ends[0].info().retransmissions, 0, "seed {seed}");
    }
}

#[test]
fn random_loss_is_repaired_without_waiting_for_the_timer() {
    let weather = Weather {
        loss_per_mille: 10,
        duplicate_per_mille: 0,
        delay_us: 20_000,
        jitter_us: 0,
    };
    let mut slowest = 0;
    for seed in 0..20 {
        let pair = on(weather, seed);
        slowest = slowest.max(pair.now.as_us() / 1_000);
    }
    // Some 25 round trips of 40 ms; a timeout in every transfer would show.
    assert!(slowest < 1_800, "{slowest} ms");
}
