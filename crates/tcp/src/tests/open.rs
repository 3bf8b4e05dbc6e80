//! Opening: RFC 9293 §3.5 and its figures, options of the SYN.

mod fast_open;

use super::harness::{IRS, LIMITS, Script, plain, seg};
use crate::{Config, ConnectionError, Events, State};
use wire::tcp::Flags;

#[test]
fn active_open_sends_syn_and_acknowledges_the_answer() {
    let mut script = Script::connecting(&plain());
    script.leaves(&["S 0:0"]);
    let events = script.arrives(seg("S.", 0, 1, b""));
    assert!(events.contains(Events::ESTABLISHED));
    script.leaves(&[". 1:1 ack 1"]);
    assert_eq!(script.conn.state(), State::Established);
}

#[test]
fn passive_open_answers_syn_and_is_established_by_the_ack() {
    let mut script = Script::accepting(&plain(), &seg("S", 0, 0, b""));
    script.leaves(&["S. 0:0 ack 1"]);
    assert!(
        script
            .arrives(seg(".", 1, 1, b""))
            .contains(Events::ESTABLISHED)
    );
    assert_eq!(script.conn.state(), State::Established);
    script.leaves(&[]);
}

#[test]
fn congestion_control_begins_the_same_on_both_ends_of_a_handshake() {
    let mut active = Script::connecting(&plain());
    active.leaves(&["S 0:0"]);
    active.arrives(seg("S.", 0, 1, b""));
    let mut passive = Script::accepting(&plain(), &seg("S", 0, 0, b""));
    passive.leaves(&["S. 0:0 ack 1"]);
    passive.arrives(seg(".", 1, 1, b""));
    let begun = |script: &Script| format!("{:?}", script.conn.congestion);
    assert_eq!(begun(&active), begun(&passive));
}

#[test]
fn the_acknowledgement_of_a_syn_ack_may_carry_data() {
    let mut script = Script::accepting(&plain(), &seg("S", 0, 0, b""));
    script.leaves(&["S. 0:0 ack 1"]);
    let events = script.arrives(seg("P.", 1, 1, b"hello"));
    assert!(events.contains(Events::ESTABLISHED | Events::READABLE));
    assert_eq!(script.memory.bytes, b"hello");
}

#[test]
fn simultaneous_open_establishes_both_ends() {
    // RFC 9293 §3.5 figure 8.
    let mut script = Script::connecting(&plain());
    script.leaves(&["S 0:0"]);
    script.arrives(seg("S", 0, 0, b""));
    assert_eq!(script.conn.state(), State::SynReceived);
    script.leaves(&["S. 0:0 ack 1"]);
    assert!(
        script
            .arrives(seg("S.", 0, 1, b""))
            .contains(Events::ESTABLISHED)
    );
    assert_eq!(script.conn.state(), State::Established);
}

#[test]
fn an_old_duplicate_syn_ack_is_reset_and_the_open_goes_on() {
    // RFC 9293 §3.5 figure 9: SYN-SENT answers an unacceptable ACK with a reset of that number.
    let mut script = Script::connecting(&plain());
    script.leaves(&["S 0:0"]);
    script.arrives(seg("S.", 900, 77, b""));
    script.leaves(&["R 77:77", "S 0:0"]);
    script.arrives(seg("S.", 900, 78, b""));
    script.leaves(&["R 78:78"]);
    assert!(
        script
            .arrives(seg("S.", 0, 1, b""))
            .contains(Events::ESTABLISHED)
    );
}

#[test]
fn a_reset_in_answer_to_our_syn_means_refused() {
    let mut script = Script::connecting(&plain());
    script.leaves(&["S 0:0"]);
    assert!(script.arrives(seg("R.", 0, 1, b"")).contains(Events::ERROR));
    assert_eq!(script.conn.error(), Some(ConnectionError::Refused));
    script.leaves(&[]);
}

#[test]
fn a_reset_that_does_not_acknowledge_our_syn_is_ignored() {
    let mut script = Script::connecting(&plain());
    script.leaves(&["S 0:0"]);
    script.arrives(seg("R", 0, 0, b""));
    script.arrives(seg("R.", 0, 5, b""));
    assert_eq!(script.conn.state(), State::SynSent);
}

#[test]
fn a_lost_syn_is_sent_again_with_doubling_intervals_until_it_times_out() {
    let mut script = Script::connecting(&plain());
    script.leaves(&["S 0:0"]);
    for wait_ms in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000] {
        assert_eq!(script.next_timer().0, wait_ms);
        script.leaves(&["S 0:0"]);
    }
    let (wait_ms, events) = script.next_timer();
    assert_eq!(wait_ms, 64_000);
    assert!(events.contains(Events::ERROR | Events::CLOSED));
    assert_eq!(script.conn.error(), Some(ConnectionError::TimedOut));
}

#[test]
fn a_lost_syn_ack_is_repeated_when_the_syn_comes_again() {
    let mut script = Script::accepting(&plain(), &seg("S", 0, 0, b""));
    script.leaves(&["S. 0:0 ack 1"]);
    script.arrives(seg("S", 0, 0, b""));
    script.leaves(&["S. 0:0 ack 1"]);
}

#[test]
fn a_bad_ack_in_syn_received_is_reset_without_harm() {
    let mut script = Script::accepting(&plain(), &seg("S", 0, 0, b""));
    script.leaves(&["S. 0:0 ack 1"]);
    script.arrives(seg(".", 1, 500, b""));
    script.leaves(&["R 500:500"]);
    assert!(
        script
            .arrives(seg(".", 1, 1, b""))
            .contains(Events::ESTABLISHED)
    );
}

#[test]
fn options_are_used_only_when_both_sides_offer_them() {
    let config = Config {
        window_scaling: true,
        timestamps: true,
        sack: true,
        ..plain()
    };
    let mut script = Script::connecting(&config);
    let syn = script.sent()[0].header;
    assert_eq!(syn.options.mss, Some(LIMITS.mss));
    assert!(syn.options.window_scale.is_some() && syn.options.sack_permitted);
    assert!(syn.options.timestamps.is_some());
    script.arrives(seg("S.", 0, 1, b"").win(10));
    let info = script.conn.info();
    assert!(!info.sack && !info.timestamps);
    assert_eq!(info.window_shifts, (0, 0));
    assert_eq!(info.snd_wnd, 10);
}

#[test]
fn the_windows_are_scaled_after_the_handshake_and_not_in_it() {
    let config = Config {
        window_scaling: true,
        receive_capacity: 1 << 20,
        ..plain()
    };
    let mut script = Script::connecting(&config);
    assert_eq!(script.sent()[0].header.window, 65_535);
    script.arrives(seg("S.", 0, 1, b"").wscale(5).win(100));
    assert_eq!(script.conn.info().snd_wnd, 100);
    let ack = script.sent()[0].header;
    assert_eq!(u32::from(ack.window) << 7, 1 << 20);
    script.arrives(seg(".", 1, 1, b"").win(100));
    assert_eq!(script.conn.info().snd_wnd, 3_200);
}

#[test]
fn a_window_shift_beyond_fourteen_counts_as_fourteen() {
    let config = Config {
        window_scaling: true,
        ..plain()
    };
    let syn = seg("S", 0, 0, b"").wscale(200);
    let script = Script::accepting(&config, &syn);
    assert_eq!(script.conn.info().window_shifts.0, 14);
}

#[test]
fn a_tiny_mss_is_raised_to_a_floor() {
    let mut script = Script::established_with(&plain(), seg("S.", 0, 1, b"").mss(1));
    script.writes(100);
    assert_eq!(script.sent()[0].segment_size, Some(88));
}

#[test]
fn the_first_sequence_number_wraps_without_notice() {
    let mut script = Script::established(&plain());
    script.arrives(seg("P.", 1, 1, &[7; 600]));
    assert_eq!(script.memory.bytes, [7; 600]);
    let ack = script.conn.header(script.now, 1, Flags::empty()).ack;
    assert_eq!(ack, IRS.wrapping_add(601));
    assert!(ack < IRS, "the number wrapped");
}
