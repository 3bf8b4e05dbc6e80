//! Windows: zero windows and probes, silly windows on both sides, shrinking.

use super::harness::{Script, plain, seg};
use crate::{Config, Events};

#[test]
fn zero_window_is_probed_until_it_opens() {
    let mut script = Script::established_with(&plain(), seg("S.", 0, 1, b"").mss(1_000).win(1_000));
    script.writes(2_000);
    script.leaves(&[". 1:1001 ack 1"]);
    script.arrives(seg(".", 1, 1_001, b"").win(0));
    script.leaves(&[]);
    let mut last_ms = 0;
    for _ in 0..20 {
        let (wait_ms, events) = script.next_timer();
        assert!(
            !events.contains(Events::ERROR),
            "an answering peer is probed for ever"
        );
        assert!(wait_ms >= last_ms.min(120_000));
        last_ms = wait_ms;
        script.leaves(&[". 1000:1000 ack 1"]);
        script.arrives(seg(".", 1, 1_001, b"").win(0));
    }
    assert_eq!(last_ms, 120_000);
    script.arrives(seg(".", 1, 1_001, b"").win(5_000));
    script.leaves(&["P. 1001:2001 ack 1"]);
}

#[test]
fn a_peer_that_answers_no_probe_is_given_up() {
    let mut script = Script::established_with(&plain(), seg("S.", 0, 1, b"").mss(1_000).win(1_000));
    script.writes(2_000);
    script.sent();
    script.arrives(seg(".", 1, 1_001, b"").win(0));
    script.sent();
    for _ in 0..40 {
        if script.next_timer().1.contains(Events::ERROR) {
            return;
        }
        script.sent();
    }
    panic!("probed for ever without an answer");
}

#[test]
fn a_window_probe_from_the_peer_is_answered() {
    let mut script = Script::established(&Config {
        receive_capacity: 1_024,
        ..plain()
    });
    script.arrives(seg(".", 1, 1, &[1; 1_024]));
    script.next_timer();
    script.leaves(&[". 1:1 ack 1025"]);
    assert_eq!(script.conn.info().rcv_wnd, 0);
    script.arrives(seg(".", 1_024, 1, b""));
    script.leaves(&[". 1:1 ack 1025"]);
    // One byte of new data into the closed window: not taken, answered (RFC 9293 §3.8.6.1).
    script.arrives(seg(".", 1_025, 1, b"x"));
    script.leaves(&[". 1:1 ack 1025"]);
    assert_eq!(script.conn.readable_end(), 1_024);
}

#[test]
fn the_receiver_does_not_open_its_window_in_silly_steps() {
    let mut script = Script::established(&Config {
        receive_capacity: 4_096,
        ..plain()
    });
    script.arrives(seg(".", 1, 1, &[1; 4_096]));
    assert_eq!(script.sent()[0].header.window, 0);
    let events = script.conn.handle_consumed(script.now, 10).unwrap();
    assert!(events.is_empty(), "ten bytes are not worth an update");
    assert!(script.consumes_all().contains(Events::TRANSMIT));
    assert_eq!(script.sent()[0].header.window, 4_096);
}

#[test]
fn the_sender_does_not_fill_silly_windows() {
    let mut script = Script::established_with(&plain(), seg("S.", 0, 1, b"").mss(1_000).win(8_000));
    script.writes(9_000);
    assert_eq!(script.sent().len(), 8);
    script.arrives(seg(".", 1, 8_001, b"").win(100));
    script.leaves(&[]);
    script.arrives(seg(".", 1, 8_001, b"").win(1_000));
    script.leaves(&["P. 8001:9001 ack 1"]);
}

#[test]
fn a_small_window_is_used_after_the_override_timeout() {
    let mut script = Script::established_with(&plain(), seg("S.", 0, 1, b"").mss(1_000).win(8_000));
    script.writes(9_000);
    script.sent();
    script.arrives(seg(".", 1, 8_001, b"").win(100));
    script.leaves(&[]);
    assert_eq!(script.next_timer().0, 200);
    script.leaves(&[". 8001:8101 ack 1"]);
}

#[test]
fn a_window_smaller_than_a_segment_from_the_start_is_used_by_half() {
    let mut script = Script::established_with(&plain(), seg("S.", 0, 1, b"").mss(1_000).win(300));
    script.writes(1_000);
    script.leaves(&[". 1:301 ack 1"]);
}

#[test]
fn a_window_taken_back_does_not_stop_retransmission() {
    let mut script = Script::established_with(&plain(), seg("S.", 0, 1, b"").mss(1_000).win(3_000));
    script.writes(3_000);
    assert_eq!(script.sent().len(), 3);
    script.arrives(seg(".", 1, 1_001, b"").win(0));
    script.leaves(&[]);
    script.next_timer();
    script.leaves(&[". 1001:2001 ack 1"]);
}

#[test]
fn data_beyond_the_window_is_cut_off() {
    let mut script = Script::established(&Config {
        receive_capacity: 1_024,
        ..plain()
    });
    script.arrives(seg(".", 1, 1, &[1; 1_500]));
    assert_eq!(script.conn.readable_end(), 1_024);
    assert_eq!(script.memory.bytes.len(), 1_024);
}

#[test]
fn a_receive_limit_caps_the_window() {
    let mut config = plain();
    config.options.receive_limit = 5_000;
    let mut script = Script::connecting(&config);
    assert_eq!(script.sent()[0].header.window, 5_000);
}

/// Linux `__tcp_select_window`: what the shift would take from a small window is added to it instead.
#[test]
fn a_window_below_the_unit_of_its_field_is_no_zero_window() {
    let mut script = Script::established_with(
        &Config {
            window_scaling: true,
            receive_capacity: 1 << 18,
            receive_offer: 10_240,
            receive_buffer_max: 32 << 20,
            ..plain()
        },
        seg("S.", 0, 1, b"").mss(1_000).wscale(7),
    );
    let shift = script.conn.info().window_shifts.1;
    assert_eq!(shift, 10);
    let mut options = script.conn.options;
    // SO_RCVBUF as small as it can be.
    options.receive_limit = 1_152;
    script.conn.set_options(script.now, &options);
    let (mut seq, mut edge) = (1_u32, 1 + 10_240);
    for step in [1, 700, 1_000].into_iter().cycle().take(400) {
        let len = (edge - seq).min(step);
        assert!(len > 0, "the peer may send nothing, though all was read");
        script.arrives(seg(".", seq, 1, &vec![0; len as usize]));
        seq += len;
        script.consumes_all();
        script.next_timer();
        for ack in script.sent() {
            edge = seq + (u32::from(ack.header.window) << shift);
        }
    }
    assert!(edge - seq <= 2_048, "{}", edge - seq);
}

#[test]
fn a_window_is_not_made_larger_than_the_memory_by_its_unit() {
    let mut script = Script::established_with(
        &Config {
            window_scaling: true,
            receive_capacity: 4_096,
            receive_buffer_max: 32 << 20,
            ..plain()
        },
        seg("S.", 0, 1, b"").mss(1_000).wscale(7),
    );
    script.arrives(seg(".", 1, 1, &[0; 1_000]));
    script.arrives(seg(".", 1_001, 1, &[0; 1_000]));
    let acks = script.sent();
    let window = u64::from(acks.last().unwrap().header.window) << 10;
    assert_eq!(window, 2_048);
}
