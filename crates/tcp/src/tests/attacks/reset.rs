//! Resets and what must not count as one (RFC 5961), answers to segments of no connection.

use crate::tests::harness::{IRS, ISS, Script, plain, seg};
use crate::{ConnectionError, Events, State, reset_reply};
use wire::tcp::Flags;

#[test]
fn a_reset_at_the_expected_number_ends_the_connection() {
    let mut script = Script::established(&plain());
    assert!(
        script
            .arrives(seg("R", 1, 0, b""))
            .contains(Events::ERROR | Events::CLOSED)
    );
    assert_eq!(script.conn.error(), Some(ConnectionError::Reset));
    script.leaves(&[]);
}

#[test]
fn a_reset_after_more_than_the_window_was_taken_is_at_the_expected_number() {
    // 65,000 bytes were offered, all that there is room for is taken (Linux `tcp_sequence`).
    let mut script = Script::established(&plain());
    script.arrives(seg(".", 1, 1, &[9; 40_000]));
    script.arrives(seg(".", 40_001, 1, &[9; 25_500]));
    script.arrives(seg("R", 65_501, 0, b""));
    assert_eq!(script.conn.error(), Some(ConnectionError::Reset));
}

#[test]
fn a_reset_after_the_peers_fin_is_a_broken_pipe() {
    let mut script = Script::established(&plain());
    script.arrives(seg("F.", 1, 1, b""));
    script.arrives(seg("R", 2, 0, b""));
    assert_eq!(script.conn.error(), Some(ConnectionError::BrokenPipe));
}

#[test]
fn a_peer_that_is_known_to_be_gone_counts_as_one_that_has_reset() {
    let mut script = Script::established(&plain());
    assert!(
        script
            .conn
            .handle_peer_gone()
            .contains(Events::ERROR | Events::CLOSED)
    );
    assert_eq!(script.conn.error(), Some(ConnectionError::Reset));
    script.leaves(&[]);

    let mut script = Script::established(&plain());
    script.arrives(seg("F.", 1, 1, b""));
    script.sent();
    script.conn.handle_peer_gone();
    assert_eq!(script.conn.error(), Some(ConnectionError::BrokenPipe));
}

#[test]
fn a_reset_elsewhere_in_the_window_is_challenged() {
    let mut script = Script::established(&plain());
    script.arrives(seg("R", 100, 0, b""));
    script.leaves(&[". 1:1 ack 1"]);
    assert_eq!(script.conn.state(), State::Established);
}

#[test]
fn a_reset_outside_the_window_is_dropped() {
    let mut script = Script::established(&plain());
    script.arrives(seg("R", 200_000, 0, b""));
    script.leaves(&[]);
    assert_eq!(script.conn.state(), State::Established);
}

#[test]
fn a_syn_in_the_middle_is_challenged() {
    let mut script = Script::established(&plain());
    for number in [0, 1, 50] {
        script.arrives(seg("S", number, 0, b""));
        script.leaves(&[". 1:1 ack 1"]);
    }
    assert_eq!(script.conn.state(), State::Established);
}

#[test]
fn acknowledgements_of_the_future_and_of_the_far_past_are_challenged() {
    let mut script = Script::established(&plain());
    script.writes(10);
    script.sent();
    script.arrives(seg("P.", 1, 500, b"evil"));
    script.leaves(&[". 11:11 ack 1"]);
    assert_eq!(script.conn.readable_end(), 0);
}

#[test]
fn challenge_acks_are_limited() {
    let mut script = Script::established(&plain());
    let mut answers = 0;
    for _ in 0..1_000 {
        script.arrives(seg("R", 100, 0, b""));
        answers += script.sent().len();
    }
    assert_eq!(answers, 10);
}

#[test]
fn a_reset_takes_a_half_open_passive_connection_away() {
    let mut script = Script::accepting(&plain(), &seg("S", 0, 0, b""));
    script.leaves(&["S. 0:0 ack 1"]);
    assert!(script.arrives(seg("R", 1, 0, b"")).contains(Events::CLOSED));
}

#[test]
fn replies_to_segments_of_no_connection_follow_the_rfc() {
    let with_ack = seg(".", 7, 99, b"");
    let reply = reset_reply(&with_ack.header, 0).unwrap();
    assert_eq!((reply.flags, reply.seq), (Flags::RST, ISS + 99));
    let syn = seg("S", 7, 0, b"");
    let reply = reset_reply(&syn.header, 3).unwrap();
    assert_eq!(reply.flags, Flags::RST | Flags::ACK);
    assert_eq!((reply.seq, reply.ack), (0, IRS.wrapping_add(7 + 4)));
    assert_eq!(reset_reply(&seg("R", 7, 0, b"").header, 0), None);
}
