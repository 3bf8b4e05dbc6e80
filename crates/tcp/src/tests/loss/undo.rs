//! False alarms: what Eifel (RFC 3522), D-SACK (RFC 3708) and F-RTO (RFC 5682) take back, and what not.

use crate::Config;
use crate::tests::harness::{Script, plain, seg, ten_in_flight, with_sack};

const UNTOUCHED: (u32, u32) = (10_000, u32::MAX);

fn window(script: &Script) -> (u32, u32) {
    let info = script.conn.info();
    (info.cwnd, info.ssthresh)
}

/// Timestamps, no SACK. Our clock read 1 when the ten segments left.
fn with_timestamps() -> Script {
    let config = Config {
        timestamps: true,
        mss: 1_012,
        ..plain()
    };
    let mut script = Script::established_with(
        &config,
        seg("S.", 0, 1, b"").mss(1_012).win(60_000).ts(900, 0),
    );
    script.limits.mss = 1_012;
    script.limits.max_payload = 1_012;
    script.writes(20_000);
    assert_eq!(script.sent().len(), 10);
    script
}

/// The retransmission timer fires, after the probe that precedes it.
fn times_out(script: &mut Script) {
    while script.conn.info().backoff == 0 {
        script.next_timer();
        let sent = script.ranges();
        assert_eq!(sent.len(), 1, "{sent:?}");
    }
}

#[test]
fn a_timeout_is_undone_when_the_first_ack_echoes_an_older_timestamp() {
    let mut script = with_timestamps();
    let before = window(&script);
    times_out(&mut script);
    assert_eq!(script.conn.info().cwnd, 1_000);
    script.wait_us(50_000);
    // The ACK of the first transmission was delayed by a quarter of a second.
    script.arrives(seg(".", 1, 1_001, b"").win(60_000).ts(901, 1));
    let (cwnd, ssthresh) = window(&script);
    assert!(cwnd >= before.0 && ssthresh == u32::MAX);
    let sent = script.ranges();
    assert!(
        sent.iter().all(|&(seq, _)| seq >= 10_001),
        "no go-back: {sent:?}"
    );
}

#[test]
fn a_timeout_stands_when_the_ack_echoes_the_retransmission() {
    let mut script = with_timestamps();
    times_out(&mut script);
    let stamp = u32::try_from(script.now.as_us() / 1_000).unwrap();
    script.wait_us(1_000);
    script.arrives(seg(".", 1, 1_001, b"").win(60_000).ts(901, stamp));
    assert_eq!(script.conn.info().ssthresh, 5_000);
}

#[test]
fn a_fast_retransmit_is_undone_when_the_late_segment_is_acknowledged() {
    let mut script = with_timestamps();
    let before = window(&script);
    script.wait_us(10_000);
    for _ in 0..3 {
        script.arrives(seg(".", 1, 1, b"").win(60_000).ts(901, 1));
    }
    assert_eq!(script.ranges()[0], (1, 1_000));
    script.wait_us(1_000);
    script.arrives(seg(".", 1, 4_001, b"").win(60_000).ts(902, 1));
    let (cwnd, ssthresh) = window(&script);
    assert!(
        cwnd >= before.0 && ssthresh == before.1,
        "{cwnd} {ssthresh}"
    );
}

#[test]
fn d_sacks_for_all_that_was_sent_again_undo_the_reduction() {
    let mut script = with_sack();
    script.wait_us(20_000);
    script.acked(1, &[(2_001, 5_001)]);
    assert_eq!(script.ranges()[0], (1, 1_000));
    script.acked(1, &[(2_001, 7_001)]);
    assert_eq!(script.ranges()[0], (1_001, 1_000));
    script.wait_us(300);
    script.acked(7_001, &[]);
    script.wait_us(300);
    script.acked(10_001, &[(1, 1_001)]);
    assert!(script.conn.info().ssthresh < 10_000, "one of two");
    script.acked(10_001, &[(1_001, 2_001)]);
    let (cwnd, ssthresh) = window(&script);
    assert!(
        cwnd >= UNTOUCHED.0 && ssthresh == UNTOUCHED.1,
        "{cwnd} {ssthresh}"
    );
}

#[test]
fn a_d_sack_for_what_was_not_sent_again_is_the_networks() {
    let mut script = with_sack();
    script.wait_us(20_000);
    script.acked(1, &[(1_001, 5_001)]);
    script.ranges();
    script.wait_us(20_000);
    script.acked(5_001, &[(1_001, 2_001)]);
    script.acked(5_001, &[(2_001, 3_001)]);
    assert!(script.conn.info().ssthresh < 10_000);
}

#[test]
fn f_rto_finds_a_spurious_timeout_by_data_that_was_not_sent_again() {
    let mut script = with_sack();
    times_out(&mut script);
    let highest = u32::try_from(script.conn.snd.max).unwrap();
    assert_eq!(script.conn.info().cwnd, 1_000);
    script.wait_us(50_000);
    script.acked(1_001, &[]);
    let sent = script.ranges();
    assert!(!sent.is_empty() && sent.len() <= 2, "{sent:?}");
    assert!(
        sent.iter().all(|&(seq, _)| seq >= highest),
        "step 2 b: {sent:?}"
    );
    script.wait_us(1_000);
    // Step 3 b: the second segment left only once, long ago.
    script.acked(2_001, &[]);
    let (cwnd, ssthresh) = window(&script);
    assert!(cwnd >= 10_000 && ssthresh == u32::MAX, "{cwnd} {ssthresh}");
    assert_eq!(script.conn.info().lost, 0);
}

#[test]
fn f_rto_finds_a_real_timeout_when_only_the_new_data_arrives() {
    let mut script = with_sack();
    times_out(&mut script);
    let highest = u32::try_from(script.conn.snd.max).unwrap();
    script.wait_us(1_000);
    script.acked(1_001, &[]);
    assert!(script.ranges().iter().all(|&(seq, _)| seq >= highest));
    script.wait_us(1_000);
    script.acked(1_001, &[(highest, highest + 1_000)]);
    assert_eq!(script.ranges()[0], (1_001, 1_000), "step 3 a");
    assert_eq!(
        script.conn.info().ssthresh,
        5_000,
        "half of the window, of which the tail probe was no part"
    );
}

#[test]
fn without_new_data_to_send_recovery_is_the_usual_one() {
    let mut script = with_sack_and(10_000);
    times_out(&mut script);
    script.wait_us(1_000);
    script.acked(1_001, &[]);
    assert_eq!(script.ranges()[0], (1_001, 1_000), "RFC 5682 §3.1 step 2 a");
}

#[test]
fn an_ack_of_everything_after_a_timeout_ends_it() {
    let mut script = with_sack_and(10_000);
    times_out(&mut script);
    script.wait_us(1_000);
    script.acked(10_001, &[]);
    assert_eq!(script.ranges(), []);
    assert!(!script.conn.recovery.is_active());
    assert_eq!(script.conn.deadline(), None);
}

fn with_sack_and(bytes: u64) -> Script {
    let config = Config {
        sack: true,
        ..plain()
    };
    let syn_ack = seg("S.", 0, 1, b"").mss(1_000).win(60_000).sack_ok();
    let mut script = Script::established_with(&config, syn_ack);
    script.writes(bytes);
    script.sent();
    script
}

#[test]
fn without_sack_f_rto_needs_a_second_ack_that_moves() {
    let mut script = ten_in_flight(&plain(), seg("S.", 0, 1, b""));
    times_out(&mut script);
    script.wait_us(1_000);
    script.acked(1_001, &[]);
    assert!(script.ranges().iter().all(|&(seq, _)| seq >= 10_001));
    script.acked(2_001, &[]);
    assert_eq!(script.conn.info().ssthresh, u32::MAX);
}
