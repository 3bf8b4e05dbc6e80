//! Two connections on a bad cable: bytes delivered are the bytes sent, in bounded virtual time.

use crate::tests::cable::{Pair, Weather};
use crate::{Config, State, TransmitLimits};
use proptest::prelude::*;

const CALM: Weather = Weather {
    loss_per_mille: 0,
    duplicate_per_mille: 0,
    delay_us: 100,
    jitter_us: 0,
};

fn limits(max_payload: u32) -> TransmitLimits {
    TransmitLimits {
        mss: 1_460,
        max_payload,
    }
}

/// Both ends write `bytes` in chunks, read what comes, close; returns the pair after both closed.
fn exchange(
    config: [Config; 2],
    weather: Weather,
    limits: TransmitLimits,
    seed: u64,
    bytes: [u64; 2],
) -> Pair {
    let pair = Pair::new(config, weather, limits, seed);
    exchange_over(pair, bytes, |_| ())
}

/// [`exchange`] over a cable that exists; `check` looks at the pair after every event.
pub fn exchange_over(mut pair: Pair, bytes: [u64; 2], check: impl Fn(&mut Pair)) -> Pair {
    pair.run(3_600, |pair| {
        check(pair);
        let mut done = true;
        for (end, &bytes) in bytes.iter().enumerate() {
            let conn = &mut pair.ends[end];
            let written = conn.snd.written_offset();
            let room = conn.acknowledged() + u64::from(conn.snd.capacity);
            let next = bytes.min(room).min(written + 7_001);
            if conn.state().can_send() && !conn.snd.fin_requested {
                conn.handle_written(pair.now, next).unwrap();
                if next == bytes {
                    conn.shutdown_write(pair.now);
                }
            }
            conn.handle_consumed(pair.now, conn.readable_end()).unwrap();
            done &= matches!(conn.state(), State::TimeWait | State::Closed);
            assert_eq!(conn.error(), None);
        }
        // The last ACK may be lost on the way to a peer in LAST-ACK; TIME-WAIT would answer it.
        done || (0..2).all(|end| {
            pair.ends[end].fin_received()
                && pair.ends[1 - end].snd.fin_requested
                && pair.ends[end].readable_end() == bytes[1 - end]
        })
    });
    for end in 0..2 {
        assert_eq!(pair.memories[end].bytes.len() as u64, bytes[1 - end]);
        let wrong = pair.memories[end]
            .bytes
            .iter()
            .enumerate()
            .find(|&(i, &b)| b != Pair::byte(1 - end, i as u64));
        assert_eq!(wrong, None);
    }
    pair
}

#[test]
fn a_clean_cable_needs_no_retransmission() {
    let pair = exchange(
        [Config::default(); 2],
        CALM,
        limits(1_460),
        1,
        [1_000_000, 300_000],
    );
    assert_eq!(
        pair.ends[0].info().retransmissions + pair.ends[1].info().retransmissions,
        0
    );
}

#[test]
fn large_segments_carry_a_megabyte_in_few() {
    let pair = exchange(
        [Config::default(); 2],
        CALM,
        limits(64_000),
        1,
        [1_000_000, 0],
    );
    assert!(pair.segments < 300, "{} segments", pair.segments);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let weather = Weather {
        loss_per_mille: 30,
        duplicate_per_mille: 10,
        delay_us: 5_000,
        jitter_us: 3_000,
    };
    let trace = |seed| {
        let pair = exchange(
            [Config::default(); 2],
            weather,
            limits(1_460),
            seed,
            [200_000, 50_000],
        );
        (pair.now, pair.segments, pair.ends[0].info())
    };
    assert_eq!(trace(42), trace(42));
    assert_ne!(trace(42), trace(44));
}

#[test]
fn simultaneous_open_over_a_cable_carries_data() {
    let mut pair = Pair::new([Config::default(); 2], CALM, limits(1_460), 3);
    pair.ends[1] = crate::Connection::connect(
        &Config::default(),
        crate::SeqNumber(crate::tests::harness::IRS),
        pair.now,
    );
    pair.ends[0] = crate::Connection::connect(
        &Config::default(),
        crate::SeqNumber(crate::tests::harness::ISS),
        pair.now,
    );
    pair.run(60, |pair| {
        for end in &mut pair.ends {
            if end.state() == State::Established && end.snd.written_offset() == 0 {
                end.handle_written(pair.now, 10_000).unwrap();
            }
        }
        pair.ends.iter().all(|end| end.readable_end() == 10_000)
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn bytes_delivered_are_the_bytes_sent(
        seed: u64,
        loss in 0_u64..150,
        duplicate in 0_u64..100,
        delay_us in 10_u64..50_000,
        jitter_us in 0_u64..20_000,
        sack: [bool; 2],
        timestamps: [bool; 2],
        scaling: [bool; 2],
        large: bool,
        capacity_log in 11_u32..18,
        bytes in [0_u64..200_000, 0_u64..60_000],
    ) {
        let weather = Weather { loss_per_mille: loss, duplicate_per_mille: duplicate, delay_us, jitter_us };
        let config = |end: usize| Config {
            sack: sack[end],
            timestamps: timestamps[end],
            window_scaling: scaling[end],
            receive_capacity: 1 << capacity_log,
            send_capacity: 1 << capacity_log,
            ..Config::default()
        };
        exchange([config(0), config(1)], weather, limits(if large { 64_000 } else { 1_460 }), seed, bytes);
    }
}
