//! Fast recovery as a whole: how much leaves (RFC 9937), when it begins again, what a peer that renounces
//! or lies can do (RFC 2018 §8).

use crate::Repair;
use crate::tests::harness::{Script, plain, seg, ten_in_flight, with_sack};

/// Twenty segments in flight from 10,001 on, more written, and the window the limit; ssthresh is not set yet.
pub(super) fn twenty_in_flight() -> Script {
    let mut script = with_sack();
    script.writes(60_000);
    script.wait_us(20_000);
    script.acked(10_001, &[]);
    assert_eq!(script.ranges().len(), 20);
    script.wait_us(20_000);
    script
}

#[test]
fn half_as_much_leaves_as_arrives_while_the_window_comes_down() {
    let mut script = twenty_in_flight();
    let mut sent = Vec::new();
    // The first of twenty is lost, the others are reported one by one.
    for held in 1..20 {
        script.acked(10_001, &[(11_001, 11_001 + held * 1_000)]);
        sent.push(script.ranges().len());
        script.wait_us(100);
    }
    // Two of limited transmit, then the retransmission, then one for every second ACK until ten are in flight.
    assert_eq!(sent[..3], [1, 1, 1]);
    assert_eq!(sent[3..].iter().sum::<usize>(), 7, "{sent:?}");
    assert!(
        sent[3..].windows(2).all(|pair| pair[0] + pair[1] <= 1 + 1),
        "{sent:?}"
    );
    script.acked(32_001, &[]);
    let info = script.conn.info();
    assert!(!script.conn.recovery.is_active());
    assert_eq!(
        info.ssthresh, 10_000,
        "half of twenty, without limited transmit"
    );
    assert!((10_000..=13_000).contains(&info.cwnd), "{}", info.cwnd);
}

#[test]
fn heavy_loss_is_repaired_by_slow_start_up_to_the_threshold() {
    let mut script = twenty_in_flight();
    // Only the last three of twenty arrive.
    script.acked(10_001, &[(27_001, 30_001)]);
    let mut repaired = script.ranges().len();
    assert!((1..=4).contains(&repaired), "{repaired}");
    let mut una = 10_001;
    while una < 27_001 {
        script.wait_us(20_000);
        una += 1_000;
        script.acked(una, &[(27_001, 30_001)]);
        let sent = script.ranges();
        assert!(sent.len() <= 2, "one more than arrived, at most: {sent:?}");
        repaired += sent.iter().filter(|&&(seq, _)| seq < 30_001).count();
    }
    assert_eq!(repaired, 17, "each hole once");
    assert_eq!(script.conn.info().ssthresh, 10_000);
}

#[test]
fn losses_beyond_the_recovery_point_begin_another_recovery() {
    let mut script = twenty_in_flight();
    script.acked(10_001, &[(11_001, 30_001)]);
    script.ranges();
    let first = script.conn.info().ssthresh;
    script.wait_us(20_000);
    // The hole is repaired; of the new data the first segment is lost.
    script.acked(30_001, &[(31_001, 34_001)]);
    script.ranges();
    assert!(script.conn.recovery.is_active());
    assert!(script.conn.info().ssthresh < first);
}

#[test]
fn a_peer_that_renounces_gets_everything_again() {
    let mut script = with_sack();
    script.wait_us(20_000);
    script.acked(1, &[(2_001, 10_001)]);
    script.ranges();
    script.wait_us(20_000);
    // The holes are filled, and yet the ACK stops where the peer said that it holds data.
    script.acked(2_001, &[]);
    script.ranges();
    let (wait_ms, _) = script.next_timer();
    assert!(
        (10..=20).contains(&wait_ms),
        "soon, not at once: {wait_ms} ms"
    );
    assert_eq!(script.ranges()[0], (2_001, 1_000));
    assert_eq!(script.conn.snd.sent.sacked(), 0);
    for segment in 2_u32..10 {
        script.wait_us(20_000);
        script.acked(segment * 1_000 + 1_001, &[]);
        script.ranges();
    }
    assert_eq!(script.conn.acknowledged(), 10_000);
}

#[test]
fn an_ack_that_comes_late_clears_the_suspicion() {
    let mut script = with_sack();
    script.wait_us(20_000);
    script.acked(1, &[(2_001, 10_001)]);
    script.ranges();
    script.wait_us(20_000);
    script.acked(2_001, &[]);
    script.wait_us(2_000);
    script.acked(10_001, &[]);
    script.ranges();
    assert_eq!(script.conn.info().backoff, 0);
    let retransmissions = script.conn.info().retransmissions;
    assert_eq!(retransmissions, 2, "the two holes");
}

#[test]
fn a_timeout_keeps_what_is_held_unless_it_begins_at_the_hole() {
    let mut script = with_sack();
    script.wait_us(20_000);
    script.acked(1, &[(9_001, 10_001)]);
    script.ranges();
    while script.conn.info().backoff == 0 {
        script.next_timer();
        script.ranges();
    }
    assert_eq!(script.conn.info().cwnd, 1_000);
    assert!(script.conn.snd.sent.sacked() >= 1_000);
    let mut again = Vec::new();
    for segment in 1_u32..9 {
        script.wait_us(20_000);
        script.acked(segment * 1_000 + 1, &[(9_001, 10_001)]);
        again.extend(script.ranges());
    }
    assert!(!again.contains(&(9_001, 1_000)), "{again:?}");
}

#[test]
fn what_was_too_large_for_the_path_goes_again_at_once_and_smaller() {
    let mut script = with_sack();
    let before = script.conn.info();
    script.wait_us(1_000);
    script.limits.mss = 600;
    script.limits.max_payload = 600;
    let events = script.too_big(600);
    assert!(events.contains(crate::Events::TRANSMIT));
    let sent = script.ranges();
    assert_eq!(sent[..3], [(1, 600), (601, 600), (1_201, 600)]);
    assert!(sent.iter().all(|&(_, len)| len <= 600));
    script.wait_us(20_000);
    script.acked(10_001, &[]);
    let after = script.conn.info();
    assert!(!script.conn.recovery.is_active());
    assert!(
        after.cwnd >= before.cwnd && after.ssthresh == before.ssthresh,
        "no congestion"
    );
}

#[test]
fn the_answer_to_a_duplicate_measures_no_round_trip() {
    // The peer had everything; its ACKs were lost for half a minute, and its echo is as old.
    let config = crate::Config {
        sack: true,
        timestamps: true,
        ..crate::tests::harness::plain()
    };
    let syn_ack = seg("S.", 0, 1, b"")
        .mss(1_000)
        .win(60_000)
        .sack_ok()
        .ts(900, 0);
    let mut script = Script::established_with(&config, syn_ack);
    script.writes(3_000);
    script.sent();
    while script.now.as_us() < 12_000_000 {
        script.next_timer();
        script.ranges();
    }
    script.wait_us(1_000);
    script.arrives(
        seg(".", 1, 2_965, b"")
            .win(60_000)
            .ts(30_000, 1)
            .sack(1, 989),
    );
    assert!(
        script.conn.info().rto_us < 1_000_000,
        "{}",
        script.conn.info().rto_us
    );
}

#[test]
fn an_echo_from_before_the_flight_measures_no_round_trip() {
    let config = crate::Config {
        timestamps: true,
        ..crate::tests::harness::plain()
    };
    let syn_ack = seg("S.", 0, 1, b"").mss(1_000).win(60_000).ts(900, 0);
    let mut script = Script::established_with(&config, syn_ack);
    script.wait_us(60_000_000);
    script.writes(100);
    script.sent();
    script.next_timer();
    script.ranges();
    script.wait_us(1_000);
    script.arrives(seg(".", 1, 101, b"").win(60_000).ts(901, 7));
    assert!(
        script.conn.info().rto_us < 300_000,
        "{}",
        script.conn.info().rto_us
    );
}

#[test]
fn what_is_done_about_loss_can_be_asked() {
    let mut script = with_sack();
    let asked = |script: &Script| {
        let info = script.conn.info();
        (info.repair, info.counters.duplicates_reported)
    };
    assert_eq!(asked(&script), (Repair::Open, 0));
    assert_eq!(script.conn.info().min_rtt_us, Some(1_000), "the handshake");
    script.acked(1, &[(1_001, 5_001)]);
    assert_eq!(asked(&script), (Repair::Recovery, 0));
    script.sent();
    script.acked(10_001, &[]);
    script.acked(10_001, &[(1, 1_001)]);
    assert_eq!(asked(&script), (Repair::Open, 1));
    for _ in 0..3 {
        // A probe of the tail comes first (RFC 8985 §7).
        script.sent();
        script.next_timer();
    }
    assert_eq!(asked(&script), (Repair::Loss, 1));

    let mut script = ten_in_flight(&plain(), seg("S.", 0, 1, b""));
    script.arrives(seg(".", 1, 1, b"").win(60_000));
    assert_eq!(asked(&script), (Repair::Disorder, 0), "one duplicate");
}
