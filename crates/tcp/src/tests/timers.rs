//! Retransmission timer, user timeout, keep-alive.

use super::harness::{Script, plain, seg};
use crate::{Config, ConnectionError, Duration, Events, SocketOptions};

#[test]
fn unacknowledged_data_is_sent_again_with_back_off() {
    let mut script = Script::established(&plain());
    script.writes(100);
    script.leaves(&["P. 1:101 ack 1"]);
    for wait_ms in [201, 402, 804, 1_608] {
        assert_eq!(script.next_timer().0, wait_ms);
        script.leaves(&["P. 1:101 ack 1"]);
    }
    script.arrives(seg(".", 1, 101, b""));
    assert_eq!(script.conn.deadline(), None);
    assert_eq!(script.conn.info().retransmissions, 4);
}

#[test]
fn an_acknowledgement_restarts_the_timer_for_what_is_left() {
    let mut script = Script::established(&plain());
    script.writes(2_000);
    script.sent();
    script.wait_us(190_000);
    script.arrives(seg(".", 1, 1_001, b""));
    // srtt 24.6 ms, rttvar 47.6 ms after samples of 1 and 190 ms.
    assert_eq!(script.next_timer().0, 224);
}

#[test]
fn a_dead_peer_ends_in_a_timeout() {
    let mut script = Script::established(&plain());
    script.writes(1);
    script.sent();
    for retry in 0..16 {
        let (_, events) = script.next_timer();
        script.sent();
        assert_eq!(events.contains(Events::ERROR), retry == 15);
    }
    assert_eq!(script.conn.error(), Some(ConnectionError::TimedOut));
}

#[test]
fn the_user_timeout_bounds_unacknowledged_data() {
    let options = SocketOptions {
        user_timeout: Duration::from_secs(3),
        ..SocketOptions::default()
    };
    let mut script = Script::established(&Config { options, ..plain() });
    let start = script.now;
    script.writes(1);
    script.sent();
    loop {
        let (_, events) = script.next_timer();
        script.sent();
        if events.contains(Events::ERROR) {
            break;
        }
    }
    let took_ms = script.now.since(start).as_us() / 1_000;
    assert!((3_000..=6_500).contains(&took_ms), "{took_ms} ms");
}

#[test]
fn keepalive_probes_an_idle_peer_and_gives_up_a_dead_one() {
    let options = SocketOptions {
        keepalive: true,
        keepalive_idle: Duration::from_secs(10),
        keepalive_interval: Duration::from_secs(2),
        keepalive_count: 3,
        ..SocketOptions::default()
    };
    let mut script = Script::established(&Config { options, ..plain() });
    assert_eq!(script.next_timer().0, 10_000);
    script.leaves(&[". 0:0 ack 1"]);
    script.arrives(seg(".", 1, 1, b""));
    // Answered: the next check is a full idle time after the answer.
    script.next_timer();
    while script.sent().is_empty() {
        script.next_timer();
    }
    for probe in 2..=3 {
        assert_eq!(script.next_timer().0, 2_000, "probe {probe}");
        script.leaves(&[". 0:0 ack 1"]);
    }
    let (_, events) = script.next_timer();
    assert!(events.contains(Events::ERROR));
    script.leaves(&["R. 1:1 ack 1"]);
}

#[test]
fn without_keepalive_an_idle_connection_has_no_timer() {
    let script = Script::established(&plain());
    assert_eq!(script.conn.deadline(), None);
}
