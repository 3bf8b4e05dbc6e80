//! Closing: RFC 9293 §3.6 and its figures, half close, orphans, TIME-WAIT.

use super::harness::{Script, plain, seg};
use crate::{ConnectionError, Events, Instant, State, TimeWaitAction};

#[test]
fn normal_close_goes_through_fin_wait_to_time_wait() {
    // RFC 9293 §3.6 figure 12, left side.
    let mut script = Script::established(&plain());
    script.conn.close(script.now);
    script.leaves(&["F. 1:1 ack 1"]);
    assert_eq!(script.conn.state(), State::FinWait1);
    script.arrives(seg(".", 1, 2, b""));
    assert_eq!(script.conn.state(), State::FinWait2);
    let events = script.arrives(seg("F.", 1, 2, b""));
    assert!(events.contains(Events::FIN | Events::TIME_WAIT));
    script.leaves(&[". 2:2 ack 2"]);
}

#[test]
fn passive_close_goes_through_close_wait_and_last_ack() {
    // RFC 9293 §3.6 figure 12, right side.
    let mut script = Script::established(&plain());
    assert!(script.arrives(seg("F.", 1, 1, b"")).contains(Events::FIN));
    script.leaves(&[". 1:1 ack 2"]);
    assert_eq!(script.conn.state(), State::CloseWait);
    script.conn.close(script.now);
    script.leaves(&["F. 1:1 ack 2"]);
    assert_eq!(script.conn.state(), State::LastAck);
    assert!(script.arrives(seg(".", 2, 2, b"")).contains(Events::CLOSED));
}

#[test]
fn simultaneous_close_goes_through_closing() {
    // RFC 9293 §3.6 figure 13.
    let mut script = Script::established(&plain());
    script.conn.close(script.now);
    script.leaves(&["F. 1:1 ack 1"]);
    script.arrives(seg("F.", 1, 1, b""));
    assert_eq!(script.conn.state(), State::Closing);
    script.leaves(&[". 2:2 ack 2"]);
    assert!(
        script
            .arrives(seg(".", 2, 2, b""))
            .contains(Events::TIME_WAIT)
    );
}

#[test]
fn fin_and_its_acknowledgement_in_one_segment_lead_to_time_wait() {
    let mut script = Script::established(&plain());
    script.conn.close(script.now);
    script.leaves(&["F. 1:1 ack 1"]);
    assert!(
        script
            .arrives(seg("F.", 1, 2, b""))
            .contains(Events::TIME_WAIT)
    );
    script.leaves(&[". 2:2 ack 2"]);
}

#[test]
fn half_close_still_receives_data() {
    let mut script = Script::established(&plain());
    script.conn.shutdown_write(script.now);
    script.leaves(&["F. 1:1 ack 1"]);
    script.arrives(seg(".", 1, 2, b""));
    assert!(
        script
            .arrives(seg("P.", 1, 2, b"late"))
            .contains(Events::READABLE)
    );
    assert_eq!(script.memory.bytes, b"late");
}

#[test]
fn the_peer_may_half_close_and_we_still_send() {
    let mut script = Script::established(&plain());
    script.arrives(seg("F.", 1, 1, b""));
    script.leaves(&[". 1:1 ack 2"]);
    script.writes(10);
    script.leaves(&["P. 1:11 ack 2"]);
}

#[test]
fn fin_rides_on_the_last_data() {
    let mut script = Script::established(&plain());
    script.writes(1_200);
    script.conn.close(script.now);
    script.leaves(&[". 1:1001 ack 1", "FP. 1001:1201 ack 1"]);
}

#[test]
fn fin_waits_for_data_that_the_window_holds_back() {
    let mut script = Script::established_with(&plain(), seg("S.", 0, 1, b"").mss(1_000).win(1_000));
    script.writes(1_500);
    script.conn.close(script.now);
    script.leaves(&[". 1:1001 ack 1"]);
    script.arrives(seg(".", 1, 1_001, b"").win(1_000));
    script.leaves(&["FP. 1001:1501 ack 1"]);
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut script = Script::established(&plain());
    script.conn.close(script.now);
    script.leaves(&["F. 1:1 ack 1"]);
    script.next_timer();
    script.leaves(&["F. 1:1 ack 1"]);
}

#[test]
fn closing_with_unread_data_resets() {
    // RFC 2525 §2.17.
    let mut script = Script::established(&plain());
    script.arrives(seg("P.", 1, 1, b"unread"));
    assert!(script.conn.close(script.now).contains(Events::CLOSED));
    script.leaves(&["R. 1:1 ack 7"]);
}

#[test]
fn data_for_an_orphan_is_answered_with_a_reset() {
    let mut script = Script::established(&plain());
    script.conn.close(script.now);
    script.leaves(&["F. 1:1 ack 1"]);
    assert!(
        script
            .arrives(seg("P.", 1, 2, b"late"))
            .contains(Events::CLOSED)
    );
    script.leaves(&["R 2:2"]);
}

#[test]
fn data_is_refused_once_both_sides_are_shut() {
    let mut script = Script::established(&plain());
    script.conn.shutdown_read();
    script.arrives(seg("P.", 1, 1, b"taken"));
    assert_eq!(script.conn.readable_end(), 5, "the writing side is open");
    script.arrives(seg("P.", 6, 1, b"this"));
    script.sent();
    script.conn.shutdown_write(script.now);
    script.leaves(&["F. 1:1 ack 10"]);
    script.arrives(seg("P.", 6, 2, b"this"));
    script.leaves(&[". 2:2 ack 10"]);
    assert_eq!(script.conn.state(), State::FinWait2, "it was taken before");
    let events = script.arrives(seg("P.", 10, 2, b"late"));
    assert!(events.contains(Events::ERROR | Events::CLOSED));
    script.leaves(&["R 2:2"]);
    assert_eq!(script.conn.error(), Some(ConnectionError::Reset));
}

#[test]
fn what_comes_after_a_half_close_is_taken_by_who_still_reads() {
    let mut script = Script::established(&plain());
    script.conn.shutdown_write(script.now);
    script.leaves(&["F. 1:1 ack 1"]);
    script.arrives(seg("P.", 1, 2, b"late"));
    assert_eq!(script.conn.readable_end(), 4);
}

#[test]
fn an_orphan_in_fin_wait_2_is_given_up_after_a_minute() {
    let mut script = Script::established(&plain());
    script.conn.close(script.now);
    script.leaves(&["F. 1:1 ack 1"]);
    script.arrives(seg(".", 1, 2, b""));
    let (wait_ms, events) = script.next_timer();
    assert_eq!(wait_ms, 60_000);
    assert!(events.contains(Events::CLOSED));
}

#[test]
fn an_owned_connection_waits_in_fin_wait_2_without_limit() {
    let mut script = Script::established(&plain());
    script.conn.shutdown_write(script.now);
    script.leaves(&["F. 1:1 ack 1"]);
    script.arrives(seg(".", 1, 2, b""));
    assert_eq!(script.conn.deadline(), None);
}

#[test]
fn data_after_the_fin_is_not_taken() {
    let mut script = Script::established(&plain());
    script.arrives(seg("F.", 1, 1, b"ab"));
    script.sent();
    script.arrives(seg("P.", 4, 1, b"cd"));
    assert_eq!(script.conn.readable_end(), 2);
    assert_eq!(script.memory.bytes, b"ab");
}

#[test]
fn a_fin_that_comes_early_counts_when_the_hole_is_filled() {
    let mut script = Script::established(&plain());
    assert!(!script.arrives(seg("F.", 3, 1, b"cd")).contains(Events::FIN));
    let events = script.arrives(seg(".", 1, 1, b"ab"));
    assert!(events.contains(Events::FIN | Events::READABLE));
    assert_eq!(script.memory.bytes, b"abcd");
}

#[test]
fn close_before_the_handshake_ends_is_silent_or_follows_it() {
    let mut script = Script::connecting(&plain());
    script.leaves(&["S 0:0"]);
    assert!(script.conn.close(script.now).contains(Events::CLOSED));
    script.leaves(&[]);

    let mut script = Script::accepting(&plain(), &seg("S", 0, 0, b""));
    script.leaves(&["S. 0:0 ack 1"]);
    script.conn.close(script.now);
    script.arrives(seg(".", 1, 1, b""));
    script.leaves(&["F. 1:1 ack 1"]);
    assert_eq!(script.conn.state(), State::FinWait1);
}

#[test]
fn abort_sends_a_reset() {
    let mut script = Script::established(&plain());
    script.writes(5);
    assert!(script.conn.abort().contains(Events::CLOSED));
    script.leaves(&["R. 1:1 ack 1"]);
}

#[test]
fn abort_right_after_the_handshake_acknowledges_it_first() {
    // Else the peer has a reset in SYN-RECEIVED and forgets the connection (RFC 9293 §3.10.7.4): its program would never
    // accept what this one was told is established. Linux sends that ACK before connect(2) returns.
    let mut script = Script::connecting(&plain());
    script.leaves(&["S 0:0"]);
    script.arrives(seg("S.", 0, 1, b""));
    assert!(script.conn.abort().contains(Events::CLOSED));
    script.leaves(&[". 1:1 ack 1", "R. 1:1 ack 1"]);
}

#[test]
fn time_wait_answers_a_repeated_fin_and_resets_elsewhere_are_ignored() {
    let mut script = Script::established(&plain());
    script.conn.close(script.now);
    script.sent();
    script.arrives(seg("F.", 1, 2, b""));
    script.sent();
    let mut record = script.conn.time_wait(script.now);
    let first = record.deadline();
    script.wait_us(1_000_000);
    let fin = seg("F.", 1, 2, b"");
    let TimeWaitAction::Reply(reply) = record.handle_segment(script.now, &fin.header, 0) else {
        panic!("a repeated FIN is acknowledged")
    };
    assert_eq!(reply.ack, fin.header.seq.wrapping_add(1));
    assert!(record.deadline() > first);
    for (seq, action) in [
        (1, TimeWaitAction::Ignore),
        (2, TimeWaitAction::Reset),
        (3, TimeWaitAction::Ignore),
    ] {
        let reset = seg("R", seq, 0, b"");
        assert_eq!(
            record.handle_segment(script.now, &reset.header, 0),
            action,
            "{seq}"
        );
    }
}

#[test]
fn time_wait_reopens_for_a_later_syn_only() {
    let mut script = Script::established(&plain());
    script.conn.close(script.now);
    script.sent();
    script.arrives(seg("F.", 1, 2, b""));
    let mut record = script.conn.time_wait(script.now);
    let old = seg("S", 0, 0, b"");
    assert!(!matches!(
        record.handle_segment(Instant::from_us(2_000_000), &old.header, 0),
        TimeWaitAction::Reopen { .. }
    ));
    let new = seg("S", 70_000, 0, b"");
    assert!(matches!(
        record.handle_segment(Instant::from_us(2_000_000), &new.header, 0),
        TimeWaitAction::Reopen { .. }
    ));
}

#[test]
fn an_unanswered_fin_of_an_orphan_ends_in_a_timeout() {
    let mut script = Script::established(&plain());
    script.conn.close(script.now);
    script.sent();
    for _ in 0..20 {
        let (_, events) = script.next_timer();
        script.sent();
        if events.contains(Events::CLOSED) {
            assert_eq!(script.conn.error(), Some(ConnectionError::TimedOut));
            return;
        }
    }
    panic!("an orphan retransmits for ever");
}
