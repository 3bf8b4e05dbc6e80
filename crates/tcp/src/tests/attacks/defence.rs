//! Peers that lie to gain something, or to hold something: windows opened by splitting acknowledgements, memory
//! held behind a closed window, acknowledgements that answer each other for ever.

use crate::tests::harness::{Memory, Script, plain, seg, ten_in_flight};
use crate::{ConnectionError, Events, Instant, SeqNumber, State, connect::isn};

#[test]
fn an_acknowledgement_in_pieces_opens_the_window_no_further_than_a_whole_one() {
    let start = || ten_in_flight(&plain(), seg("S.", 0, 1, b""));
    let mut whole = start();
    whole.acked(4_001, &[]);
    let mut pieces = start();
    for ack in (10..4_001).step_by(13).chain([4_001]) {
        pieces.acked(ack, &[]);
    }
    assert_eq!(pieces.conn.info().cwnd, whole.conn.info().cwnd);
    let sent = |script: &mut Script| script.ranges().iter().map(|range| range.1).sum::<u32>();
    assert_eq!(sent(&mut pieces), sent(&mut whole));
}

#[test]
fn a_peer_that_keeps_its_window_closed_does_not_keep_an_orphan() {
    let mut script = Script::established(&plain());
    script.writes(2_000);
    script.sent();
    script.arrives(seg(".", 1, 2_001, b"").win(0));
    script.writes(5_000);
    script.conn.close(script.now);
    script.leaves(&[]);
    let mut probes = 0;
    loop {
        let (_, events) = script.next_timer();
        if events.contains(Events::CLOSED) {
            break;
        }
        probes += script.sent().len();
        script.arrives(seg(".", 1, 2_001, b"").win(0));
        assert!(probes < 100, "for ever");
    }
    assert_eq!(probes, 8);
    assert_eq!(script.conn.error(), Some(ConnectionError::TimedOut));
}

#[test]
fn a_living_program_behind_a_closed_window_waits_as_long_as_the_peer_answers() {
    let mut script = Script::established(&plain());
    script.arrives(seg(".", 1, 1, b"").win(0));
    script.writes(5_000);
    script.sent();
    for _ in 0..50 {
        script.next_timer();
        assert_eq!(script.sent().len(), 1);
        script.arrives(seg(".", 1, 1, b"").win(0));
    }
    assert_eq!(script.conn.state(), State::Established);
}

#[test]
fn a_window_that_is_taken_back_with_bytes_in_flight_is_a_closed_one() {
    // RFC 9293 §3.8.6.1 (MUST-37): the connection stays open as long as the peer answers, RFC 1122 §4.2.2.16 (MUST-34):
    // whatever the peer has done to its window.
    let mut script = Script::established(&plain());
    script.writes(3_000);
    assert_eq!(script.sent().len(), 3);
    for _ in 0..50 {
        script.arrives(seg(".", 1, 1, b"").win(0));
        let (_, events) = script.next_timer();
        assert!(
            !events.contains(Events::CLOSED),
            "at {} us",
            script.now.as_us()
        );
        assert!(script.sent().len() <= 1, "one segment probes");
    }
    assert_eq!(script.conn.state(), State::Established);
    script.arrives(seg(".", 1, 1_001, b"").win(30_000));
    assert!(!script.sent().is_empty());
    // Who answers no more is given up.
    script.arrives(seg(".", 1, 1_001, b"").win(0));
    let mut tries = 0;
    while script.conn.state() != State::Closed {
        script.next_timer();
        tries += script.sent().len();
        assert!(tries < 100, "for ever");
    }
    assert_eq!(script.conn.error(), Some(ConnectionError::TimedOut));
}

#[test]
fn two_ends_that_do_not_agree_stop_telling_each_other_so() {
    // As after a forged segment moved one of them: each finds the other's acknowledgements impossible.
    let mut ends = [Script::established(&plain()), Script::established(&plain())];
    ends[0].arrives(seg(".", 500_000_000, 1, b""));
    let mut told = 0;
    loop {
        let before = told;
        for end in 0..2 {
            let sent = ends[end].sent();
            told += sent.len();
            for transmit in sent {
                let mut header = transmit.header;
                header.seq = header.seq.wrapping_add(500_000_000);
                header.ack = header.ack.wrapping_add(500_000_000);
                let mut nowhere = Memory::default();
                let other = &mut ends[1 - end];
                let now = other.now;
                other.conn.handle_segment(now, &header, &[], &mut nowhere);
            }
        }
        if told == before {
            break;
        }
        assert!(told < 100, "for ever");
    }
    assert!((1..=20).contains(&told), "{told}");
}

#[test]
fn clocks_in_timestamps_tell_nothing_of_each_other() {
    let address = |port: u16| core::net::SocketAddr::from(([10, 0, 0, 1], port));
    let offset = |key: [u8; 16], port| isn::timestamp_offset(&key, address(port), address(80));
    assert_ne!(offset([1; 16], 1), offset([1; 16], 2));
    assert_ne!(offset([1; 16], 1), offset([2; 16], 1));
    let iss = crate::initial_sequence(&[1; 16], address(1), address(80), Instant::ZERO);
    assert_ne!(
        SeqNumber(offset([1; 16], 1)),
        iss,
        "purposes are kept apart"
    );
}
