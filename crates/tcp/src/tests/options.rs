//! What a program sets on a connection and what then leaves it: TCP_DEFER_ACCEPT, TCP_MAXSEG, TCP_SYNCNT,
//! TCP_LINGER2, TCP_WINDOW_CLAMP, TCP_QUICKACK, MSG_MORE.

use super::harness::{Script, plain, seg};
use crate::{Config, ConnectionError, Events, SocketOptions, State, WriteMode, config};

fn with(options: SocketOptions) -> Config {
    Config { options, ..plain() }
}

fn options() -> SocketOptions {
    SocketOptions::default()
}

#[test]
fn a_deferred_open_waits_for_data_and_repeats_no_syn_ack() {
    let config = with(SocketOptions {
        defer_accept: 3,
        ..options()
    });
    let mut script = Script::accepting(&config, &seg("S", 0, 0, b""));
    script.leaves(&["S. 0:0 ack 1"]);
    assert!(script.arrives(seg(".", 1, 1, b"")).is_empty());
    assert_eq!(script.conn.state(), State::SynReceived);
    assert_eq!(script.next_timer().0, 1_000);
    script.leaves(&[]);
    let events = script.arrives(seg("P.", 1, 1, b"GET"));
    assert!(events.contains(Events::ESTABLISHED | Events::READABLE));
    assert_eq!(script.memory.bytes, b"GET");
}

#[test]
fn after_the_deferring_time_one_more_syn_ack_lets_a_bare_ack_through() {
    let config = with(SocketOptions {
        defer_accept: 2,
        ..options()
    });
    let mut script = Script::accepting(&config, &seg("S", 0, 0, b""));
    script.leaves(&["S. 0:0 ack 1"]);
    script.arrives(seg(".", 1, 1, b""));
    assert_eq!(script.next_timer().0, 1_000);
    script.leaves(&[]);
    assert_eq!(script.next_timer().0, 2_000);
    script.leaves(&["S. 0:0 ack 1"]);
    assert!(
        script
            .arrives(seg(".", 1, 1, b""))
            .contains(Events::ESTABLISHED)
    );
}

#[test]
fn a_deferred_open_whose_ack_never_came_repeats_its_syn_ack() {
    let config = with(SocketOptions {
        defer_accept: 3,
        ..options()
    });
    let mut script = Script::accepting(&config, &seg("S", 0, 0, b""));
    script.leaves(&["S. 0:0 ack 1"]);
    script.next_timer();
    script.leaves(&["S. 0:0 ack 1"]);
}

#[test]
fn the_largest_segment_is_announced_and_kept_to() {
    let config = with(SocketOptions {
        max_segment: 500,
        ..options()
    });
    let mut script = Script::connecting(&config);
    assert_eq!(script.sent()[0].header.options.mss, Some(500));
    script.arrives(seg("S.", 0, 1, b"").mss(1_000));
    script.sent();
    script.limits.max_payload = 500;
    script.writes(1_200);
    script.leaves(&[". 1:501 ack 1", ". 501:1001 ack 1", "P. 1001:1201 ack 1"]);
}

#[test]
fn so_many_syns_are_repeated_as_the_program_says() {
    let config = with(SocketOptions {
        syn_retries: 1,
        ..options()
    });
    let mut script = Script::connecting(&config);
    script.leaves(&["S 0:0"]);
    script.next_timer();
    script.leaves(&["S 0:0"]);
    let (_, events) = script.next_timer();
    assert!(events.contains(Events::CLOSED));
    assert_eq!(script.conn.error(), Some(ConnectionError::TimedOut));
}

/// Closed by us, our FIN acknowledged.
fn closed(fin_timeout_s: u16) -> (Script, Events) {
    let config = with(SocketOptions {
        fin_timeout_s,
        ..options()
    });
    let mut script = Script::established(&config);
    let _ = script.conn.close(script.now);
    script.leaves(&["F. 1:1 ack 1"]);
    let events = script.arrives(seg(".", 1, 2, b""));
    (script, events)
}

#[test]
fn an_orphan_waits_for_the_peers_fin_as_long_as_the_program_says() {
    let (mut script, _) = closed(5);
    assert_eq!(script.conn.state(), State::FinWait2);
    let (waited_ms, events) = script.next_timer();
    assert_eq!((waited_ms, events), (5_000, Events::CLOSED));
    let (mut script, _) = closed(0);
    assert_eq!(script.next_timer().0, 60_000);
    let (script, events) = closed(config::NO_FIN_TIMEOUT);
    assert!(events.contains(Events::CLOSED));
    assert_eq!(script.conn.state(), State::Closed);
}

#[test]
fn the_window_is_never_announced_beyond_the_clamp() {
    let config = with(SocketOptions {
        window_clamp: 3_000,
        ..options()
    });
    let mut script = Script::connecting(&config);
    assert_eq!(script.sent()[0].header.window, 3_000);
    script.arrives(seg("S.", 0, 1, b"").mss(1_000));
    script.sent();
    script.arrives(seg("P.", 1, 1, &[0; 1_000]));
    script.consumes_all();
    assert!(script.sent().iter().all(|sent| sent.header.window <= 3_000));
}

#[test]
fn a_partial_segment_waits_while_more_is_promised() {
    let mut script = Script::established(&plain());
    let more = WriteMode::More;
    script.conn.handle_written_as(script.now, 10, more).unwrap();
    script.leaves(&[]);
    script
        .conn
        .handle_written_as(script.now, 1_010, more)
        .unwrap();
    script.leaves(&[". 1:1001 ack 1"]);
    script.writes(5);
    script.arrives(seg(".", 1, 1_001, b""));
    script.leaves(&["P. 1001:1016 ack 1"]);
}

#[test]
fn what_was_promised_and_never_came_is_sent_after_200_ms() {
    let mut script = Script::established(&plain());
    script
        .conn
        .handle_written_as(script.now, 10, WriteMode::More)
        .unwrap();
    script.leaves(&[]);
    assert_eq!(script.next_timer().0, 200);
    script.leaves(&["P. 1:11 ack 1"]);
}

#[test]
fn quick_acks_are_the_programs_choice() {
    let mut script = Script::established(&plain());
    script.arrives(seg("P.", 1, 1, b"late"));
    script.leaves(&[]);
    let _ = script.conn.set_quick_ack(true);
    script.leaves(&[". 1:1 ack 5"]);
    script.arrives(seg("P.", 5, 1, b"now"));
    script.leaves(&[". 1:1 ack 8"]);
    let _ = script.conn.set_quick_ack(false);
    script.arrives(seg("P.", 8, 1, b"late"));
    script.leaves(&[]);
}

#[test]
fn segments_are_counted_as_the_wire_sees_them() {
    let mut script = Script::established(&plain());
    script.limits.max_payload = 64_000;
    script.writes(2_500);
    script.sent();
    script.arrives(seg("P.", 1, 2_501, &[0; 10]));
    script.arrives(seg("P.", 500, 2_501, &[0; 10]));
    let info = script.conn.info();
    // SYN, ACK, three with data; SYN-ACK, two with data.
    assert_eq!(
        (info.counters.segments_out, info.counters.data_segments_out),
        (5, 3)
    );
    assert_eq!(
        (info.counters.segments_in, info.counters.data_segments_in),
        (3, 2)
    );
    assert_eq!((info.counters.bytes_out, info.bytes_acked), (2_500, 2_501));
    assert_eq!(
        (info.counters.out_of_order_in, info.bytes_received),
        (1, 10)
    );
}
