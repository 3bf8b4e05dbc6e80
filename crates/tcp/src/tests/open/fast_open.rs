//! TCP Fast Open (RFC 7413): what the SYNs carry, what becomes of their data, what falls back to what.

use crate::tests::harness::{IRS, ISS, Script, plain, seg};
use crate::{Config, ConnectionError, Events, FastOpen, SeqNumber, State};
use wire::tcp::FastOpenCookie;

fn opening(fast_open: FastOpen) -> Script {
    Script::connecting(&Config {
        fast_open,
        peer_mss: 1_000,
        ..plain()
    })
}

/// A SYN with so many bytes has left.
fn sent_with_syn(bytes: u64) -> Script {
    let mut script = opening(FastOpen::Holding);
    script.writes(bytes);
    let syn = script.sent();
    assert_eq!(syn.len(), 1);
    assert_eq!(
        syn[0].header.options.fast_open,
        Some(FastOpenCookie::REQUEST),
        "whoever sends it fills in the cookie"
    );
    assert_eq!(u64::from(syn[0].len), bytes.min(960));
    script
}

/// A listener's connection whose SYN brought `data` with the right cookie.
fn serving(data: &[u8]) -> Script {
    let mut script = Script::accepting(&plain(), &seg("S", 0, 0, b"").mss(1_000));
    let Script { conn, memory, .. } = &mut script;
    let events = conn.open_fast(data, memory);
    assert!(events.contains(Events::ESTABLISHED | Events::TRANSMIT));
    script
}

#[test]
fn without_a_cookie_the_first_syn_asks_and_later_ones_do_not() {
    let mut script = opening(FastOpen::Asking);
    let syn = script.sent();
    assert_eq!(
        syn[0].header.options.fast_open,
        Some(FastOpenCookie::REQUEST)
    );
    assert_eq!(syn[0].len, 0);
    script.next_timer();
    assert_eq!(script.sent()[0].header.options.fast_open, None);
}

#[test]
fn with_a_cookie_the_syn_waits_for_the_first_bytes() {
    let mut script = opening(FastOpen::Holding);
    script.leaves(&[]);
    assert_eq!(script.conn.deadline(), None);
    script.writes(500);
    script.leaves(&["S 0:500"]);
    script.leaves(&[]);
}

#[test]
fn a_program_that_has_nothing_to_say_gets_its_syn_all_the_same() {
    let mut script = opening(FastOpen::Holding);
    script.conn.shutdown_write(script.now);
    script.leaves(&["S 0:0"]);
}

#[test]
fn what_the_syn_cannot_take_follows_the_handshake() {
    let mut script = sent_with_syn(2_000);
    script.arrives(seg("S.", 0, 961, b"").mss(1_000));
    script.leaves(&[". 961:1961 ack 1", "P. 1961:2001 ack 1"]);
}

#[test]
fn data_that_the_syn_ack_acknowledges_is_done() {
    let mut script = sent_with_syn(500);
    let events = script.arrives(seg("S.", 0, 501, b"").mss(1_000));
    assert!(events.contains(Events::ESTABLISHED | Events::WRITABLE));
    assert_eq!(script.conn.acknowledged(), 500);
    assert_eq!(script.conn.fast_open(), FastOpen::Accepted);
    assert!(script.conn.info().syn_data);
    script.leaves(&[". 501:501 ack 1"]);
    assert_eq!(script.conn.deadline(), None);
}

#[test]
fn data_that_it_does_not_acknowledge_leaves_at_once() {
    let mut script = sent_with_syn(500);
    script.arrives(seg("S.", 0, 1, b"").mss(1_000));
    assert!(!script.conn.info().syn_data);
    script.leaves(&["P. 1:501 ack 1"]);
    script.arrives(seg(".", 1, 501, b""));
    assert_eq!(script.conn.acknowledged(), 500);
}

#[test]
fn data_of_which_it_acknowledges_a_part_goes_on_from_there() {
    let mut script = sent_with_syn(500);
    script.arrives(seg("S.", 0, 201, b"").mss(1_000));
    assert_eq!(script.conn.acknowledged(), 200);
    script.leaves(&["P. 201:501 ack 1"]);
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_is_refused() {
    let mut script = sent_with_syn(500);
    script.arrives(seg("S.", 0, 502, b"").mss(1_000));
    script.leaves(&["R 502:502", "S 0:0"]);
    assert_eq!(script.conn.state(), State::SynSent);
}

#[test]
fn a_lost_syn_goes_again_without_its_data() {
    let mut script = sent_with_syn(500);
    assert_eq!(script.next_timer().0, 1_000);
    let again = script.sent();
    assert_eq!((again[0].len, again[0].header.options.fast_open), (0, None));
    assert!(script.conn.lost_syn_data());
    script.arrives(seg("S.", 0, 1, b"").mss(1_000));
    script.leaves(&["P. 1:501 ack 1"]);
}

#[test]
fn a_late_answer_to_the_first_syn_still_counts() {
    let mut script = sent_with_syn(500);
    script.next_timer();
    script.sent();
    script.arrives(seg("S.", 0, 501, b"").mss(1_000));
    assert_eq!(script.conn.acknowledged(), 500);
    assert!(!script.conn.lost_syn_data());
    script.leaves(&[". 501:501 ack 1"]);
}

#[test]
fn a_syn_ack_may_bring_an_answer() {
    let mut script = sent_with_syn(500);
    let events = script.arrives(seg("S.", 0, 501, b"hello").mss(1_000));
    assert!(events.contains(Events::READABLE));
    assert_eq!(script.memory.bytes, b"hello");
    script.leaves(&[". 501:501 ack 6"]);
}

#[test]
fn without_fast_open_the_data_of_a_syn_ack_is_left_for_later() {
    let mut script = Script::connecting(&plain());
    script.sent();
    script.arrives(seg("S.", 0, 1, b"hello").mss(1_000));
    assert!(script.memory.bytes.is_empty());
    script.leaves(&[". 1:1 ack 1"]);
}

#[test]
fn silence_three_times_in_a_row_makes_fast_open_suspect() {
    let mut script = sent_with_syn(500);
    for _ in 0..2 {
        script.next_timer();
        script.sent();
        assert!(!script.conn.suspects_fast_open());
    }
    script.next_timer();
    assert!(script.conn.suspects_fast_open());
}

#[test]
fn syns_that_cross_start_anew_without_fast_open() {
    let mut script = sent_with_syn(500);
    script.arrives(seg("S", 0, 0, b"").mss(1_000));
    script.leaves(&["S. 0:0 ack 1"]);
    script.arrives(seg("S.", 0, 1, b"").mss(1_000));
    assert_eq!(script.conn.state(), State::Established);
    script.leaves(&["P. 1:501 ack 1"]);
}

#[test]
fn a_right_cookie_delivers_the_data_and_answers_it() {
    let mut script = serving(b"GET /");
    assert_eq!(script.memory.bytes, b"GET /");
    assert_eq!(script.conn.readable_end(), 5);
    script.leaves(&["S. 0:0 ack 6"]);
}

#[test]
fn the_program_may_answer_before_the_handshake_is_over() {
    let mut script = serving(b"GET /");
    script.leaves(&["S. 0:0 ack 6"]);
    script.writes(300);
    script.leaves(&["P. 1:301 ack 6"]);
    script.arrives(seg(".", 6, 301, b""));
    assert_eq!(script.conn.state(), State::Established);
    assert_eq!(script.conn.acknowledged(), 300);
    assert!(script.conn.info().syn_data);
}

#[test]
fn and_close() {
    let mut script = serving(b"GET /");
    script.leaves(&["S. 0:0 ack 6"]);
    script.consumes_all();
    script.writes(300);
    script.conn.close(script.now);
    script.leaves(&["FP. 1:301 ack 6"]);
    script.arrives(seg(".", 6, 302, b""));
    assert_eq!(script.conn.state(), State::FinWait2);
}

#[test]
fn until_then_only_the_syn_ack_is_repeated() {
    let mut script = serving(b"GET /");
    script.leaves(&["S. 0:0 ack 6"]);
    script.writes(300);
    script.sent();
    for _ in 0..6 {
        script.next_timer();
        script.leaves(&["S. 0:0 ack 6"]);
    }
    let (_, events) = script.next_timer();
    assert!(events.contains(Events::ERROR));
    assert_eq!(script.conn.error(), Some(ConnectionError::TimedOut));
}

#[test]
fn an_answer_that_was_lost_is_repeated_after_the_handshake() {
    let mut script = serving(b"GET /");
    script.leaves(&["S. 0:0 ack 6"]);
    script.writes(300);
    script.sent();
    script.arrives(seg(".", 6, 1, b""));
    script.next_timer();
    script.leaves(&["P. 1:301 ack 6"]);
}

#[test]
fn a_syn_that_comes_once_more_gets_the_same_answer() {
    let mut script = serving(b"GET /");
    script.leaves(&["S. 0:0 ack 6"]);
    script.arrives(seg("S", 0, 0, b"").mss(1_000));
    script.leaves(&["S. 0:0 ack 6"]);
    script.arrives(seg("S", 0, 0, b"GET /").mss(1_000));
    script.leaves(&["S. 0:0 ack 6"]);
    assert_eq!(script.memory.bytes, b"GET /");
}

#[test]
fn no_more_of_a_syns_data_is_taken_than_was_offered() {
    let config = Config {
        receive_capacity: 1_024,
        ..plain()
    };
    let mut script = Script::accepting(&config, &seg("S", 0, 0, b""));
    let Script { conn, memory, .. } = &mut script;
    conn.open_fast(&[7; 1_400], memory);
    assert_eq!(script.conn.readable_end(), 1_000);
    script.leaves(&["S. 0:0 ack 1001"]);
}

#[test]
fn a_cookie_is_told_in_the_first_syn_ack_only() {
    let mut script = Script::accepting(&plain(), &seg("S", 0, 0, b""));
    script.conn.tell_cookie(false);
    let first = script.sent();
    assert_eq!(
        first[0].header.options.fast_open,
        Some(FastOpenCookie::REQUEST)
    );
    script.next_timer();
    assert_eq!(script.sent()[0].header.options.fast_open, None);
    assert_eq!(SeqNumber(first[0].header.seq), SeqNumber(ISS));
    assert_eq!(first[0].header.ack, IRS.wrapping_add(1));
}

#[test]
fn a_deferring_listener_takes_the_syns_data_for_data() {
    let mut config = plain();
    config.options.defer_accept = 3;
    let mut script = Script::accepting(&config, &seg("S", 0, 0, b""));
    let Script { conn, memory, .. } = &mut script;
    conn.open_fast(b"GET", memory);
    script.sent();
    script.arrives(seg(".", 4, 1, b""));
    assert_eq!(script.conn.state(), State::Established);
}
