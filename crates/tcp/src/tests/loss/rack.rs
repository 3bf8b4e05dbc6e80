//! Loss found by time (RFC 8985 §6): reordering, lost retransmissions, the window for reordering.

use crate::tests::harness::{Script, with_sack};

/// Ten segments left 20 ms ago; the round trip of the handshake, 1 ms, is the smallest seen.
fn twenty_ms_later() -> Script {
    let mut script = with_sack();
    script.wait_us(20_000);
    script
}

/// Microseconds until the reordering timer fires.
fn patience_us(script: &Script) -> u64 {
    script.conn.timers.reordering.since(script.now).as_us()
}

#[test]
fn three_segments_above_a_hole_give_it_up_at_once() {
    let mut script = twenty_ms_later();
    script.acked(1, &[(1_001, 4_001)]);
    assert_eq!(script.ranges()[0], (1, 1_000));
}

#[test]
fn one_segment_above_a_hole_waits_for_a_quarter_of_the_round_trip() {
    let mut script = twenty_ms_later();
    script.acked(1, &[(1_001, 2_001)]);
    assert_eq!(script.ranges(), [(10_001, 1_000)], "limited transmit");
    assert_eq!(patience_us(&script), 250);
    script.next_timer();
    assert_eq!(script.ranges(), [(1, 1_000)]);
}

#[test]
fn what_arrives_late_within_the_window_is_not_sent_again() {
    let mut script = twenty_ms_later();
    script.acked(1, &[(1_001, 2_001)]);
    script.ranges();
    script.wait_us(200);
    script.acked(2_001, &[]);
    let sent = script.ranges();
    assert!(sent.iter().all(|&(seq, _)| seq > 10_001), "{sent:?}");
    let info = script.conn.info();
    assert_eq!(info.reordering.0, 1);
    assert_eq!(info.retransmissions, 0);
    assert!(!script.conn.timers.reordering.is_set());
}

#[test]
fn once_reordering_was_seen_three_segments_above_do_not_suffice() {
    let mut script = twenty_ms_later();
    script.acked(1, &[(1_001, 2_001)]);
    script.wait_us(100);
    script.acked(2_001, &[]);
    script.ranges();
    script.acked(2_001, &[(3_001, 7_001)]);
    let sent = script.ranges();
    assert!(sent.iter().all(|&(seq, _)| seq > 10_001), "{sent:?}");
    assert_eq!(script.conn.info().retransmissions, 0);
    script.next_timer();
    assert_eq!(script.ranges()[0], (2_001, 1_000));
}

#[test]
fn a_retransmission_that_is_lost_is_sent_again_without_a_timeout() {
    let mut script = twenty_ms_later();
    script.acked(1, &[(1_001, 4_001)]);
    script.ranges();
    // Each further ACK lets new data out, after the retransmission.
    script.wait_us(1_000);
    script.acked(1, &[(1_001, 10_001)]);
    let sent = script.ranges();
    assert!(
        sent.iter().all(|&(seq, _)| seq >= 10_001) && !sent.is_empty(),
        "{sent:?}"
    );
    script.wait_us(20_000);
    // That arrives; the retransmission should have come before it.
    script.acked(1, &[(1_001, 11_001)]);
    assert_eq!(script.ranges()[0], (1, 1_000));
    assert_eq!(script.conn.info().backoff, 0);
    assert_eq!(script.conn.info().retransmissions, 2);
}

#[test]
fn an_ack_that_comes_sooner_than_a_round_trip_is_for_the_first_transmission() {
    let mut script = twenty_ms_later();
    script.acked(1, &[(2_001, 5_001)]);
    assert_eq!(script.ranges()[0], (1, 1_000));
    script.wait_us(100);
    script.acked(1, &[(2_001, 7_001)]);
    assert_eq!(script.ranges()[0], (1_001, 1_000));
    script.wait_us(300);
    // Segment 2 was late only; its retransmission cannot be here yet, so nothing later has arrived.
    script.acked(1, &[(1_001, 7_001)]);
    assert_eq!(script.conn.info().lost, 0, "segment 1 is given its time");
}

#[test]
fn a_duplicate_at_the_peer_widens_the_window_for_sixteen_recoveries() {
    let mut script = twenty_ms_later();
    script.acked(1, &[(1_001, 4_001)]);
    script.ranges();
    script.wait_us(400);
    // The hole was a late segment, and its retransmission the second copy.
    script.acked(4_001, &[]);
    script.ranges();
    script.wait_us(1_000);
    script.acked(10_001, &[(1, 1_001)]);
    script.ranges();
    script.wait_us(1_000);
    let una = u32::try_from(script.conn.snd.max).unwrap();
    script.writes(60_000);
    script.acked(una, &[]);
    assert!(script.ranges().len() > 3);
    script.wait_us(1_000);
    script.acked(una, &[(una + 1_000, una + 2_000)]);
    assert_eq!(patience_us(&script), 500, "two quarters of a millisecond");
    for _ in 0..16 {
        script.conn.rack.on_recovery_exit();
    }
    script.acked(una, &[(una + 1_000, una + 3_000)]);
    assert_eq!(patience_us(&script), 250);
}
