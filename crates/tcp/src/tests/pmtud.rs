//! A path that swallows large segments without a word (RFC 4821, RFC 8899).

use super::{
    cable::{Pair, Weather},
    harness::{Script, plain},
};
use crate::{Config, Duration, State, TransmitLimits};
use proptest::prelude::*;

const WEATHER: Weather = Weather {
    loss_per_mille: 0,
    duplicate_per_mille: 0,
    delay_us: 50_000,
    jitter_us: 0,
};

/// Windows are small so that a minute is not millions of segments.
fn config() -> Config {
    Config {
        receive_capacity: 1 << 15,
        send_capacity: 1 << 15,
        ..Config::default()
    }
}

fn pair(config: Config, weather: Weather, seed: u64) -> Pair {
    let limits = TransmitLimits {
        mss: 1_460,
        max_payload: 64_000,
    };
    let mut pair = Pair::new([config; 2], weather, limits, seed);
    pair.cuts = true;
    pair.run(60, |pair| {
        pair.ends
            .iter()
            .all(|end| end.state() == State::Established)
    });
    pair
}

/// Lets end 0 write without pause for so long; returns how much the other end got.
fn flood(pair: &mut Pair, ms: u64) -> u64 {
    let before = pair.ends[1].readable_end();
    let until = pair.now + Duration::from_ms(ms);
    pair.run(3_600 * 24, |pair| {
        let [writer, reader] = &mut pair.ends;
        let end = writer.acknowledged() + u64::from(writer.snd.capacity);
        writer.handle_written(pair.now, end).unwrap();
        reader
            .handle_consumed(pair.now, reader.readable_end())
            .unwrap();
        pair.now >= until
    });
    pair.ends[1].readable_end() - before
}

/// What end 0 puts into a full packet now, headers included.
fn packet_len(pair: &Pair) -> u32 {
    let options_len = if pair.ends[0].rcv.timestamps { 12 } else { 0 };
    u32::from(pair.ends[0].snd.segment_payload) + options_len + 40
}

#[test]
fn a_path_that_swallows_full_segments_is_found_out_and_used() {
    for mtu in [1_492, 1_400, 1_300, 1_100, 700, 576] {
        for sack in [true, false] {
            let config = Config { sack, ..config() };
            let mut pair = pair(config, WEATHER, 1);
            flood(&mut pair, 1_000);
            assert_eq!(packet_len(&pair), 1_500);
            pair.mtu = mtu;
            flood(&mut pair, 60_000);
            let found = packet_len(&pair);
            assert!(
                found <= mtu && found + 32 > mtu,
                "{found} of {mtu} with SACK {sack}"
            );
            let swallowed = pair.swallowed;
            assert!(flood(&mut pair, 10_000) > 400_000, "{mtu}");
            assert!(pair.swallowed <= swallowed + 1, "the search has ended");
        }
    }
}

#[test]
fn a_path_that_grows_is_used_within_ten_minutes() {
    let mut pair = pair(config(), WEATHER, 1);
    flood(&mut pair, 1_000);
    pair.mtu = 1_280;
    flood(&mut pair, 30_000);
    assert!(packet_len(&pair) <= 1_280);
    pair.mtu = 1_500;
    // All is acknowledged when the program pauses.
    pair.run(60, |pair| {
        pair.ends[0].sent() == pair.ends[0].acknowledged()
    });
    pair.now += Duration::from_secs(600);
    flood(&mut pair, 5_000);
    assert_eq!(packet_len(&pair), 1_500);
}

#[test]
fn darkness_is_not_taken_for_a_small_path() {
    let mut pair = pair(config(), WEATHER, 1);
    flood(&mut pair, 1_000);
    pair.mtu = 0;
    flood(&mut pair, 20_000);
    pair.mtu = u32::MAX;
    flood(&mut pair, 40_000);
    assert_eq!(packet_len(&pair), 1_500);
}

#[test]
fn the_loss_of_a_probe_is_not_congestion() {
    let mut pair = pair(config(), WEATHER, 1);
    flood(&mut pair, 1_000);
    pair.mtu = 1_300;
    // Until the smaller segments get through.
    while packet_len(&pair) > 1_300 || pair.ends[0].timers.retries > 0 {
        flood(&mut pair, 100);
    }
    let threshold = pair.ends[0].congestion.ssthresh();
    let (lost, swallowed) = (pair.ends[0].timers.retries, pair.swallowed);
    flood(&mut pair, 10_000);
    assert!(pair.swallowed > swallowed + 1, "probes were lost");
    assert!(pair.ends[0].congestion.ssthresh() >= threshold);
    assert_eq!((lost, pair.ends[0].timers.retries), (0, 0));
}

#[test]
fn small_segments_that_are_lost_say_nothing_of_the_path() {
    let mut s = Script::established(&plain());
    s.writes(400);
    for _ in 0..8 {
        s.sent();
        s.next_timer();
    }
    s.sent();
    s.acked(401, &[]);
    s.writes(10_000);
    let sizes: Vec<u32> = s.sent().iter().map(|sent| sent.len).collect();
    assert_eq!(sizes, [1_000], "the peer's MSS");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn bytes_arrive_whatever_the_path_swallows(
        seed: u64,
        loss in 0_u64..40,
        jitter_us in 0_u64..5_000,
        mtus in proptest::collection::vec((prop::sample::select(vec![576_u32, 800, 1_100, 1_280, 1_492, 1_500]), 10_u64..20_000), 1..5),
        sack: bool,
        timestamps: bool,
    ) {
        let config = Config { sack, timestamps, ..config() };
        let weather = Weather { loss_per_mille: loss, jitter_us, ..WEATHER };
        let mut pair = pair(config, weather, seed);
        for (mtu, ms) in mtus {
            pair.mtu = mtu;
            flood(&mut pair, ms);
            pair.check_flights();
        }
        prop_assert!(flood(&mut pair, 120_000) > 50_000);
        let readable = usize::try_from(pair.ends[1].readable_end()).unwrap();
        let wrong = pair.memories[1].bytes[..readable].iter().enumerate().find(|&(at, &byte)| byte != Pair::byte(0, at as u64));
        prop_assert_eq!(wrong, None);
    }
}
