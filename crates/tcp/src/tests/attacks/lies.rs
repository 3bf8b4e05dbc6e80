//! Peers that lie about what has arrived and when, to be sent more than the path carries, to make the table of what is in
//! flight dear, or to disturb the timers (Savage et al. 1999, CVE-2019-11477 to 11479, RFC 5681 §3.2, RFC 2018 §8): what a
//! lie brings is no more than what an honest peer gets, and the connection goes on.

use crate::tests::harness::{Script, plain, seg, ten_in_flight, with_sack};
use crate::{Algorithm, Config, State};

/// Everything that leaves, in segments and in bytes.
fn sent(script: &mut Script) -> (usize, u64) {
    let sent = script.ranges();
    (
        sent.len(),
        sent.iter().map(|range| u64::from(range.1)).sum(),
    )
}

/// A peer with a window of a megabyte, and all of that to send.
fn wide(config: &Config, is_with_sack: bool) -> Script {
    let config = Config {
        window_scaling: true,
        ..*config
    };
    let syn_ack = seg("S.", 0, 1, b"").wscale(7);
    let syn_ack = if is_with_sack {
        syn_ack.sack_ok()
    } else {
        syn_ack
    };
    let mut script = ten_in_flight(&config, syn_ack);
    script.writes(900_000);
    script.acked(1, &[]);
    script.sent();
    script
}

#[test]
fn spoofed_duplicates_get_no_more_than_twice_what_was_in_flight() {
    // RFC 5681 §3.2: the window is inflated by the segments that were outstanding, not by as many as the peer likes to
    // pretend.
    let mut script = wide(&plain(), false);
    let mut segments = 0;
    for _ in 0..5_000 {
        script.acked(1, &[]);
        segments += sent(&mut script).0;
    }
    assert!(segments <= 20, "{segments} for duplicates of ten");
    assert_eq!(script.conn.state(), State::Established);
    // An honest acknowledgement ends it, and the rest leaves at the rate of congestion control.
    let max = script.conn.snd.max;
    script.acked(u32::try_from(max).unwrap(), &[]);
    let (segments, _) = sent(&mut script);
    assert!((1..=10).contains(&segments), "{segments}");
}

#[test]
fn an_acknowledgement_in_pieces_is_one_for_every_algorithm() {
    for congestion in Algorithm::ALL {
        let mut config = plain();
        config.options.congestion = congestion;
        let mut total = [0; 2];
        for (bytes, step) in total.iter_mut().zip([10_000, 13]) {
            let mut script = wide(&config, false);
            script.wait_us(10_000);
            for ack in (1..10_001).step_by(step).skip(1).chain([10_001]) {
                script.acked(ack, &[]);
                *bytes += sent(&mut script).1;
            }
        }
        let [whole, pieces] = total;
        assert!(
            pieces <= whole + 1_000,
            "{congestion:?}: {pieces} bytes for pieces, {whole} for one"
        );
    }
}

#[test]
fn blocks_by_the_thousand_cost_a_bounded_table_and_nothing_of_the_connection() {
    let config = Config {
        sack: true,
        ..plain()
    };
    let mut script = wide(&config, true);
    let mut segments = 0;
    // Blocks of one byte each, every other byte: more holes than the table has runs.
    for at in (2..10_001_u32).step_by(8) {
        let blocks = [0, 2, 4, 6].map(|by| (at + by, at + by + 1));
        script.acked(1, &blocks[..3]);
        segments += sent(&mut script).0;
        assert!(script.memory.flights.runs.len() <= 1_024);
    }
    assert!(
        segments <= 1_250,
        "{segments} segments for 1,250 acknowledgements"
    );
    // Everything arrives nevertheless.
    let max = u32::try_from(script.conn.snd.max).unwrap();
    script.acked(max, &[]);
    assert!(sent(&mut script).0 > 0);
    assert_eq!(script.conn.state(), State::Established);
}

#[test]
fn duplicates_reported_by_the_thousand_change_neither_rate_nor_timers() {
    let mut liar = with_sack();
    let mut honest = with_sack();
    for script in [&mut liar, &mut honest] {
        script.wait_us(20_000);
        script.acked(5_001, &[]);
        script.sent();
    }
    let before = liar.conn.info();
    let mut segments = 0;
    for at in 0..2_000 {
        // D-SACK (RFC 2883) about what was never sent twice.
        liar.acked(5_001, &[(1 + at, 2 + at)]);
        segments += sent(&mut liar).0;
    }
    let after = liar.conn.info();
    assert_eq!(segments, 0);
    assert_eq!((after.cwnd, after.rto_us), (before.cwnd, before.rto_us));
    assert_eq!(after.ssthresh, before.ssthresh);
}

#[test]
fn a_peer_that_renounces_again_and_again_is_sent_one_segment_for_each_lie() {
    let mut script = with_sack();
    let mut acks = 0;
    let mut segments = 0;
    for _ in 0..200 {
        script.wait_us(15_000);
        // It holds all but the first byte of the second segment, then asks for what it held.
        script.acked(1, &[(1_001, 10_001)]);
        script.acked(1_001, &[]);
        acks += 2;
        script.times_out();
        segments += sent(&mut script).0;
        if script.conn.state() == State::Closed {
            break;
        }
    }
    assert!(segments <= acks + 30, "{segments} for {acks}");
}

#[test]
fn an_echo_that_cannot_be_moves_no_timer() {
    let config = Config {
        timestamps: true,
        ..plain()
    };
    // What the peer echoes, relative to what it should.
    for lie in [
        0,
        1,
        1_000,
        1 << 30,
        (1 << 31) - 1,
        1 << 31,
        u32::MAX - 1_000,
        u32::MAX,
    ] {
        let mut script = ten_in_flight(&config, seg("S.", 0, 1, b"").ts(1, 0));
        script.wait_us(30_000);
        let now = u32::try_from(script.now.as_us() / 1_000).unwrap();
        let mut ack = seg(".", 1, 1_989, b"").win(60_000);
        ack = ack.ts(2, now.wrapping_add(lie));
        script.arrives(ack);
        let info = script.conn.info();
        // The first segment's time is known by our own table.
        assert!(info.rto_us >= 200_000, "{lie}: {}", info.rto_us);
        assert!(info.rto_us <= 1_000_000, "{lie}: {}", info.rto_us);
        // What was sent again is timed by the echo alone: not with this one.
        script.next_timer();
        script.sent();
        script.wait_us(5_000);
        let now = u32::try_from(script.now.as_us() / 1_000).unwrap();
        let ack = seg(".", 1, 2_977, b"").win(60_000);
        script.arrives(ack.ts(3, now.wrapping_add(lie)));
        let rto_us = script.conn.info().rto_us;
        assert!((200_000..=3_000_000).contains(&rto_us), "{lie}: {rto_us}");
        assert_eq!(script.conn.state(), State::Established);
    }
}

#[test]
fn timestamps_of_a_wild_clock_stop_the_peer_itself_and_nobody_else() {
    let config = Config {
        timestamps: true,
        ..plain()
    };
    let mut script = Script::established_with(&config, seg("S.", 0, 1, b"").mss(1_000).ts(1, 0));
    script.arrives(seg(".", 1, 1, b"a").ts(1 << 30, 0));
    assert_eq!(script.conn.readable_end(), 1);
    // RFC 7323 §5.3 R1: older is acknowledged and dropped, at the rate of challenges.
    let mut answers = 0;
    for _ in 0..1_000 {
        script.arrives(seg(".", 2, 1, b"b").ts(5, 0));
        answers += sent(&mut script).0;
    }
    assert_eq!(script.conn.readable_end(), 1);
    assert!(answers <= 11, "{answers}");
    script.arrives(seg(".", 2, 1, b"c").ts((1 << 30) + 1, 0));
    assert_eq!(script.conn.readable_end(), 2);
}

#[test]
fn a_syn_is_challenged_at_a_limited_rate_whatever_it_brings() {
    // RFC 5961 §4.2, §7: not by way of the answer to a retransmission either, which has no limit.
    for (name, flags, payload) in [
        ("bare", "S", &b""[..]),
        ("with data", "S", &b"evil"[..]),
        ("with FIN", "SF", &b""[..]),
        ("with all", "SFP.", &b"evil"[..]),
    ] {
        for seq in [1, 100, 0x8000_0000, 0xffff_f000] {
            let mut script = Script::established(&plain());
            let mut answers = 0;
            for _ in 0..200 {
                script.arrives(seg(flags, seq, 1, payload));
                answers += sent(&mut script).0;
            }
            assert!((1..=10).contains(&answers), "{name} at {seq}: {answers}");
            assert_eq!(script.conn.state(), State::Established);
            assert_eq!(script.conn.readable_end(), 0);
        }
    }
}
