//! Tail loss probes (RFC 8985 §7).

use crate::Config;
use crate::tests::harness::{Script, plain, seg, with_sack};

fn sack_config() -> Config {
    Config {
        sack: true,
        ..plain()
    }
}

/// `bytes` in flight, sent at once; the round trip of the handshake was 1 ms.
fn in_flight(bytes: u64) -> Script {
    let syn_ack = seg("S.", 0, 1, b"").mss(1_000).win(60_000).sack_ok();
    let mut script = Script::established_with(&sack_config(), syn_ack);
    script.writes(bytes);
    script.sent();
    script
}

#[test]
fn the_tail_of_several_segments_is_probed_after_two_round_trips() {
    let mut script = in_flight(3_000);
    assert_eq!(script.next_timer().0, 4, "2 SRTT and 2 ms");
    assert_eq!(script.ranges(), [(2_001, 1_000)]);
    // The probe arrived, and tells that the first two did not.
    script.wait_us(1_000);
    script.acked(1, &[(2_001, 3_001)]);
    assert_eq!(script.ranges(), [(1, 1_000)]);
    assert_eq!(script.conn.info().lost, 1_000);
    script.wait_us(1_000);
    script.acked(1_001, &[(2_001, 3_001)]);
    assert_eq!(script.ranges(), [(1_001, 1_000)]);
    assert_eq!(script.conn.info().backoff, 0, "no timeout was needed");
}

#[test]
fn a_lone_segment_gives_the_peer_time_for_a_delayed_ack() {
    let mut script = in_flight(500);
    let cwnd = script.conn.info().cwnd;
    assert_eq!(
        script.next_timer().0,
        201,
        "the retransmission timer's time limits it"
    );
    assert_eq!(script.ranges(), [(1, 500)]);
    assert_eq!(script.conn.info().cwnd, cwnd, "a probe, not a timeout");
    assert_eq!(script.next_timer().0, 201);
    assert_eq!(script.ranges(), [(1, 500)]);
    assert_eq!(script.conn.info().cwnd, 1_000);
}

#[test]
fn new_data_is_the_better_probe_and_does_not_ask_the_window() {
    let mut script = with_sack();
    assert_eq!(script.next_timer().0, 4);
    assert_eq!(script.ranges(), [(10_001, 1_000)]);
    script.wait_us(1_000);
    script.acked(10_001, &[]);
    assert_eq!(script.conn.info().ssthresh, u32::MAX, "nothing was lost");
}

#[test]
fn a_probe_that_was_a_duplicate_changes_nothing() {
    let mut script = in_flight(3_000);
    script.next_timer();
    script.ranges();
    script.wait_us(500);
    script.acked(3_001, &[]);
    script.wait_us(500);
    script.acked(3_001, &[(2_001, 3_001)]);
    script.writes(3_000);
    script.sent();
    script.wait_us(1_000);
    script.acked(3_001, &[(4_001, 5_001)]);
    assert_eq!(script.conn.info().ssthresh, u32::MAX);
    let patience = script.conn.timers.reordering.since(script.now);
    assert_eq!(
        patience.as_us(),
        250,
        "a probe does not widen the reordering window"
    );
}

#[test]
fn two_acks_of_the_tail_tell_the_same_without_d_sack() {
    let mut script = in_flight(3_000);
    script.next_timer();
    script.ranges();
    script.writes(1_000);
    script.sent();
    script.acked(3_001, &[]);
    script.acked(3_001, &[]);
    script.wait_us(1_000);
    script.acked(4_001, &[]);
    assert_eq!(script.conn.info().ssthresh, u32::MAX);
}

#[test]
fn a_loss_that_the_probe_repaired_still_reduces_the_window() {
    let mut script = in_flight(8_000);
    script.next_timer();
    assert_eq!(script.ranges(), [(7_001, 1_000)]);
    script.wait_us(1_000);
    script.acked(8_001, &[]);
    script.writes(1_000);
    script.sent();
    script.wait_us(1_000);
    script.acked(9_001, &[]);
    let info = script.conn.info();
    assert_eq!(
        (info.ssthresh, info.cwnd),
        (4_000, 4_000),
        "half of the flight"
    );
}

#[test]
fn one_probe_at_a_time_and_none_without_a_new_round_trip() {
    let mut script = in_flight(3_000);
    script.next_timer();
    assert_eq!(script.ranges().len(), 1);
    assert_eq!(script.next_timer().0, 201, "then the retransmission timer");
    assert_eq!(script.ranges(), [(1, 1_000)]);
    assert_eq!(script.conn.info().backoff, 1);
}

#[test]
fn without_sack_there_is_no_probe() {
    let syn_ack = seg("S.", 0, 1, b"").mss(1_000).win(60_000);
    let mut script = Script::established_with(&plain(), syn_ack);
    script.writes(3_000);
    script.sent();
    assert_eq!(script.next_timer().0, 201);
    assert_eq!(script.ranges(), [(1, 1_000)]);
}

#[test]
fn a_probe_that_is_overtaken_by_its_ack_holds_nothing_up() {
    let mut script = in_flight(3_000);
    let deadline = script.conn.deadline().unwrap();
    script.now = deadline;
    let _ = script.times_out();
    script.acked(3_001, &[]);
    script.writes(1_000);
    script.leaves(&["P. 3001:4001 ack 1"]);
}

#[test]
fn a_probe_carries_the_fin_when_that_is_the_tail() {
    let mut script = in_flight(3_000);
    let _ = script.conn.shutdown_write(script.now);
    script.leaves(&["F. 3001:3001 ack 1"]);
    script.next_timer();
    let sent: Vec<String> = script
        .sent()
        .iter()
        .map(crate::tests::harness::text)
        .collect();
    assert_eq!(sent, ["FP. 2002:3001 ack 1"]);
}
