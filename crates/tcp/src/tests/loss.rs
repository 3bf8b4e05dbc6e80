//! Loss: fast retransmit and recovery with and without SACK, timeouts, congestion window.

mod probe;
mod rack;
mod recovery;
mod undo;

use super::harness::{Script, plain, seg, ten_in_flight, with_sack};
use recovery::twenty_in_flight;

#[test]
fn the_third_duplicate_ack_retransmits_without_sack() {
    let mut script = ten_in_flight(&plain(), seg("S.", 0, 1, b""));
    for _ in 0..2 {
        script.arrives(seg(".", 1, 1, b"").win(60_000));
        // RFC 3042 limited transmit: one new segment for each.
        assert_eq!(script.sent().len(), 1);
    }
    script.arrives(seg(".", 1, 1, b"").win(60_000));
    assert_eq!(script.ranges()[0], (1, 1_000));
    // Half of ten: what limited transmit added does not count (RFC 5681 §3.2 step 2).
    assert_eq!(script.conn.info().ssthresh, 5_000);
}

#[test]
fn three_duplicates_of_small_segments_retransmit_without_sack() {
    let mut config = plain();
    config.options.nodelay = true;
    let mut script = Script::established(&config);
    for _ in 0..4 {
        script.writes(100);
        assert_eq!(script.sent().len(), 1);
    }
    // The first one brings another window and counts for nothing.
    for _ in 0..3 {
        script.acked(1, &[]);
        script.leaves(&[]);
    }
    script.acked(1, &[]);
    let first = script.ranges();
    assert_eq!(first.first().map(|range| range.0), Some(1), "{first:?}");
}

#[test]
fn a_partial_ack_retransmits_the_next_hole_without_sack() {
    let mut script = ten_in_flight(&plain(), seg("S.", 0, 1, b""));
    for _ in 0..3 {
        script.arrives(seg(".", 1, 1, b"").win(60_000));
        script.sent();
    }
    script.arrives(seg(".", 1, 4_001, b"").win(60_000));
    assert_eq!(script.ranges()[0], (4_001, 1_000));
    script.arrives(seg(".", 1, 12_001, b"").win(60_000));
    assert!(!script.conn.recovery.is_active());
}

#[test]
fn what_was_too_long_for_the_path_leaves_again_at_once_and_shorter() {
    let mut script = ten_in_flight(&plain(), seg("S.", 0, 1, b""));
    let window = script.conn.info().cwnd;
    let events = script.too_big(600);
    assert!(events.contains(crate::Events::TRANSMIT));
    script.limits.mss = 600;
    script.limits.max_payload = 600;
    let sent = script.ranges();
    assert_eq!(sent[..2], [(1, 600), (601, 600)]);
    assert!(sent.iter().all(|&(_, len)| len <= 600), "{sent:?}");
    assert_eq!(script.conn.info().cwnd, window, "no sign of congestion");
    // Nothing in flight is as long as this.
    let again = script.too_big(20_000);
    assert!(again.is_empty());
}

#[test]
fn sack_retransmits_each_hole_once_and_nothing_else() {
    let mut script = with_sack();
    // Segments 1 and 5 of ten are lost.
    script.wait_us(20_000);
    script.arrives(seg(".", 1, 1, b"").win(60_000).sack(1_001, 4_001));
    let sent = script.ranges();
    assert_eq!(sent[0], (1, 1_000), "three segments above the hole: lost");
    script.wait_us(100);
    script.arrives(
        seg(".", 1, 1, b"")
            .win(60_000)
            .sack(5_001, 10_001)
            .sack(1_001, 4_001),
    );
    let sent = script.ranges();
    assert_eq!(sent[0], (4_001, 1_000));
    assert!(
        sent.iter().skip(1).all(|&(seq, _)| seq >= 10_001),
        "{sent:?}"
    );
    script.arrives(seg(".", 1, 10_001, b"").win(60_000));
    let sent = script.ranges();
    assert!(sent.iter().all(|&(seq, _)| seq >= 10_001), "{sent:?}");
}

#[test]
fn recovery_halves_the_window_once() {
    let mut script = with_sack();
    script.arrives(seg(".", 1, 1, b"").win(60_000).sack(3_001, 10_001));
    script.sent();
    assert_eq!(script.conn.info().cwnd, 5_000);
    script.arrives(seg(".", 1, 1_001, b"").win(60_000).sack(3_001, 10_001));
    script.sent();
    assert_eq!(script.conn.info().cwnd, 5_000);
}

#[test]
fn what_a_batch_of_acks_has_freed_before_we_could_answer_was_in_flight() {
    let mut script = twenty_in_flight();
    // The 19th of twenty is lost; the ACKs of the others come together, and nothing can leave between them.
    script.acked(28_001, &[]);
    script.acked(28_001, &[(29_001, 30_001)]);
    let window = script.conn.info().cwnd;
    assert_eq!(window, 38_000, "slow start");
    script.wait_us(20_000);
    script.times_out();
    assert!(script.conn.recovery.is_active());
    assert_eq!(script.conn.info().ssthresh, window / 2);
}

#[test]
fn while_the_program_is_the_limit_the_flight_is_halved_and_not_the_window() {
    let mut script = twenty_in_flight();
    // All of the 80,000 bytes that were written.
    for end in [30_001, 70_001, 80_001] {
        script.acked(end, &[]);
        script.ranges();
        script.wait_us(20_000);
    }
    assert!(script.conn.info().cwnd >= 40_000);
    // Eight segments are all there is to send now; the first of them is lost.
    script.writes(8_000);
    assert_eq!(script.ranges().len(), 8);
    script.wait_us(20_000);
    script.acked(80_001, &[(81_001, 88_001)]);
    assert_eq!(script.conn.info().ssthresh, 4_000);
}

#[test]
fn a_timeout_forgets_the_scoreboard_and_starts_with_one_segment() {
    // RFC 2018 §8: the receiver may have renounced what it SACKed.
    let mut script = with_sack();
    script.arrives(seg(".", 1, 1, b"").win(60_000).sack(9_001, 10_001));
    script.sent();
    script.next_timer();
    assert_eq!(script.ranges(), [(1, 1_000)]);
    assert_eq!(script.conn.info().cwnd, 1_000);
    script.arrives(seg(".", 1, 1_001, b"").win(60_000));
    assert_eq!(script.ranges(), [(1_001, 1_000), (2_001, 1_000)]);
}

#[test]
fn after_a_timeout_what_is_sacked_again_is_skipped() {
    let mut script = with_sack();
    script.next_timer();
    assert_eq!(script.ranges(), [(10_001, 1_000)], "the tail loss probe");
    script.next_timer();
    assert_eq!(script.ranges(), [(1, 1_000)]);
    script.wait_us(1_000);
    script.arrives(seg(".", 1, 1_001, b"").win(60_000).sack(2_001, 10_001));
    let sent = script.ranges();
    assert!(
        sent.iter().all(|&(seq, _)| seq >= 11_001),
        "F-RTO: {sent:?}"
    );
    script.wait_us(1_000);
    script.arrives(seg(".", 1, 1_001, b"").win(60_000).sack(2_001, 12_001));
    let sent = script.ranges();
    assert_eq!(sent[0], (1_001, 1_000));
    assert!(sent[1..].iter().all(|&(seq, _)| seq >= 12_001), "{sent:?}");
}

#[test]
fn blocks_that_lie_are_ignored() {
    let mut script = with_sack();
    script.arrives(
        seg(".", 1, 1, b"")
            .win(60_000)
            .sack(50_001, 90_001)
            .sack(4_001, 2_001),
    );
    assert!(script.conn.snd.sent.sacked() == 0);
    assert_eq!(script.conn.state(), crate::State::Established);
}

#[test]
fn duplicate_acks_with_data_or_a_new_window_do_not_count() {
    let mut script = ten_in_flight(&plain(), seg("S.", 0, 1, b""));
    for i in 0..3 {
        script.arrives(seg(".", 1 + i, 1, b"x").win(60_000));
        script.arrives(seg(".", 2 + i, 1, b"").win(60_100 + u16::try_from(i).unwrap()));
    }
    assert!(!script.conn.recovery.is_active());
}

#[test]
fn the_window_grows_by_slow_start_only_while_it_limits() {
    let mut script = ten_in_flight(&plain(), seg("S.", 0, 1, b""));
    script.arrives(seg(".", 1, 10_001, b"").win(60_000));
    assert_eq!(script.conn.info().cwnd, 20_000);
    script.sent();
    script.arrives(seg(".", 1, 20_001, b"").win(60_000));
    let cwnd = script.conn.info().cwnd;
    script.writes(10);
    script.sent();
    script.arrives(seg(".", 1, 20_011, b"").win(60_000));
    assert_eq!(
        script.conn.info().cwnd,
        cwnd,
        "ten bytes were not limited by the window"
    );
}

#[test]
fn an_idle_connection_restarts_with_the_initial_window() {
    let mut script = ten_in_flight(&plain(), seg("S.", 0, 1, b""));
    script.arrives(seg(".", 1, 10_001, b"").win(60_000));
    script.sent();
    script.arrives(seg(".", 1, 20_001, b"").win(60_000));
    assert!(script.conn.info().cwnd > 10_000);
    script.wait_us(5_000_000);
    script.writes(1);
    assert_eq!(script.conn.info().cwnd, 10_000);
}

#[test]
fn after_a_timeout_duplicate_acks_for_what_it_repaired_mean_nothing() {
    // RFC 6582 §3.2 step 1: "recover" must be passed, not only reached.
    let mut script = ten_in_flight(&plain(), seg("S.", 0, 1, b""));
    script.next_timer();
    assert_eq!(script.ranges(), [(1, 1_000)]);
    script.wait_us(1_000);
    script.acked(10_001, &[]);
    let ssthresh = script.conn.info().ssthresh;
    assert!(!script.ranges().is_empty());
    // The peer had the rest already, and answers each copy.
    for _ in 0..5 {
        script.acked(10_001, &[]);
    }
    assert!(!script.conn.recovery.is_active());
    assert_eq!(script.conn.info().ssthresh, ssthresh);
}

#[test]
fn without_sack_only_two_segments_leave_for_duplicates_that_prove_nothing() {
    // RFC 3042 §2, while RFC 6582 §3.2 step 1 forbids fast retransmit.
    let mut script = ten_in_flight(&plain(), seg("S.", 0, 1, b""));
    script.writes(40_000);
    script.next_timer();
    script.ranges();
    script.wait_us(1_000);
    script.acked(10_001, &[]);
    script.ranges();
    let mut sent = 0;
    for _ in 0..20 {
        script.acked(10_001, &[]);
        sent += script.ranges().len();
    }
    assert_eq!(sent, 2);
    assert!(!script.conn.recovery.is_active());
}

#[test]
fn after_fast_recovery_duplicates_for_the_next_segment_count_at_once() {
    let mut script = ten_in_flight(&plain(), seg("S.", 0, 1, b""));
    script.writes(40_000);
    for _ in 0..3 {
        script.acked(1, &[]);
    }
    script.ranges();
    script.wait_us(1_000);
    let point = u32::try_from(script.conn.recovery.point).unwrap();
    script.acked(point, &[]);
    assert!(!script.ranges().is_empty());
    for _ in 0..3 {
        script.acked(point, &[]);
    }
    assert!(script.ranges().contains(&(point, 1_000)));
}

#[test]
fn of_partial_acks_only_the_first_restarts_the_timer() {
    // RFC 6582 §3.2 step 3 and §4: many holes are repaired sooner after a timeout.
    let mut script = ten_in_flight(&plain(), seg("S.", 0, 1, b""));
    for _ in 0..3 {
        script.acked(1, &[]);
    }
    script.ranges();
    let mut una = 1;
    let mut deadlines = Vec::new();
    for _ in 0..4 {
        script.wait_us(40_000);
        una += 1_000;
        script.acked(una, &[]);
        assert_eq!(script.ranges()[0], (una, 1_000));
        deadlines.push(script.conn.timers.retransmit);
    }
    assert!(deadlines.iter().all(|&deadline| deadline == deadlines[0]));
}
