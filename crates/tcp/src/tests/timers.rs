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
fn a_timeout_tells_what_a_router_has_said() {
    let mut script = Script::established(&plain());
    script.writes(2_000);
    script.sent();
    let said = ConnectionError::NetworkUnreachable;
    assert!(script.conn.handle_unreachable(said, false).is_empty());
    // An answer from the peer disproves it.
    script.arrives(seg(".", 1, 1_001, b""));
    let said = ConnectionError::HostUnreachable;
    assert!(script.conn.handle_unreachable(said, false).is_empty());
    while !script.next_timer().1.contains(Events::ERROR) {
        script.sent();
    }
    assert_eq!(script.conn.error(), Some(said));
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
    // RFC 5482: not at the next back-off after it, but when it ends.
    assert_eq!(script.now.since(start), Duration::from_secs(3));
}

#[test]
fn the_user_timeout_holds_for_a_syn_and_for_a_closed_window() {
    let options = SocketOptions {
        user_timeout: Duration::from_secs(5),
        ..SocketOptions::default()
    };
    let config = Config { options, ..plain() };
    let mut script = Script::connecting(&config);
    script.sent();
    assert_eq!(until_error(&mut script), Duration::from_secs(5));

    let mut script = Script::established_with(&config, seg("S.", 0, 1, b"").mss(1_000).win(0));
    script.writes(1);
    script.sent();
    assert_eq!(until_error(&mut script), Duration::from_secs(5));
}

/// Lets timers fire until the connection fails; how long that took.
fn until_error(script: &mut Script) -> Duration {
    let start = script.now;
    loop {
        let (_, events) = script.next_timer();
        script.sent();
        if events.contains(Events::ERROR) {
            return script.now.since(start);
        }
    }
}

#[test]
fn progress_starts_the_user_timeout_again() {
    let options = SocketOptions {
        user_timeout: Duration::from_secs(3),
        ..SocketOptions::default()
    };
    let mut script = Script::established(&Config { options, ..plain() });
    script.writes(2_000);
    script.sent();
    script.wait_us(2_900_000);
    script.arrives(seg(".", 1, 1_001, b""));
    assert_eq!(until_error(&mut script), Duration::from_secs(3));
}

#[test]
fn the_back_off_stops_at_two_minutes() {
    let options = SocketOptions {
        user_timeout: Duration::from_secs(36_000),
        ..SocketOptions::default()
    };
    let mut script = Script::established(&Config { options, ..plain() });
    script.writes(1);
    script.sent();
    let mut waits = Vec::new();
    for _ in 0..14 {
        waits.push(script.next_timer().0);
        script.leaves(&["P. 1:2 ack 1"]);
    }
    assert_eq!(
        waits[8..],
        [51_456, 102_912, 120_000, 120_000, 120_000, 120_000]
    );
}

#[test]
fn a_long_round_trip_is_not_waited_for_longer_than_a_short_one() {
    let mut script = Script::connecting(&plain());
    script.sent();
    script.wait_us(900_000);
    script.arrives(seg("S.", 0, 1, b"").mss(1_000));
    script.sent();
    script.writes(1);
    script.sent();
    let took = until_error(&mut script);
    let limit = Duration::from_ms(924_600);
    assert!(
        limit <= took && took <= limit + Duration::from_secs(120),
        "{took:?}"
    );
}

#[test]
fn an_orphan_is_given_up_sooner() {
    let mut script = Script::established(&plain());
    script.writes(1);
    script.sent();
    let _ = script.conn.close(script.now);
    script.sent();
    let took = until_error(&mut script);
    let limit = Duration::from_ms(102_200);
    assert!(
        limit <= took && took <= limit + Duration::from_secs(103),
        "{took:?}"
    );
}

#[test]
fn a_clock_that_jumps_does_not_end_a_connection() {
    let mut script = Script::established(&plain());
    script.writes(1);
    script.sent();
    script.wait_us(5_000_000_000);
    for _ in 0..3 {
        assert!(!script.next_timer().1.contains(Events::ERROR));
        script.leaves(&["P. 1:2 ack 1"]);
    }
    script.arrives(seg(".", 1, 2, b""));
    assert_eq!(script.conn.deadline(), None);
}

#[test]
fn keepalive_probes_an_idle_peer_and_gives_up_a_dead_one() {
    let options = SocketOptions {
        keepalive: true,
        keepalive_idle: Duration::from_secs(10),
        keepalive_interval_s: 2,
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
fn with_a_user_timeout_that_ends_keepalive_and_not_the_count_of_probes() {
    // tcp(7), TCP_USER_TIMEOUT: it overrides keepalive when a connection is to be closed.
    let options = SocketOptions {
        keepalive: true,
        keepalive_idle: Duration::from_secs(10),
        keepalive_interval_s: 2,
        keepalive_count: 1,
        user_timeout: Duration::from_secs(15),
        ..SocketOptions::default()
    };
    let mut script = Script::established(&Config { options, ..plain() });
    assert_eq!(script.next_timer().0, 10_000);
    script.leaves(&[". 0:0 ack 1"]);
    for silence in [12, 14] {
        assert_eq!(script.next_timer().0, 2_000, "{silence} s");
        script.leaves(&[". 0:0 ack 1"]);
    }
    // 16 seconds of silence; with a longer count it would not have ended later.
    let (waited, events) = script.next_timer();
    assert_eq!(waited, 2_000);
    assert!(events.contains(Events::ERROR));
    script.leaves(&["R. 1:1 ack 1"]);
}

#[test]
fn a_user_timeout_shorter_than_the_idle_time_ends_nothing_before_a_probe() {
    let options = SocketOptions {
        keepalive: true,
        keepalive_idle: Duration::from_secs(10),
        keepalive_interval_s: 2,
        keepalive_count: 9,
        user_timeout: Duration::from_secs(3),
        ..SocketOptions::default()
    };
    let mut script = Script::established(&Config { options, ..plain() });
    assert_eq!(script.next_timer().0, 10_000);
    script.leaves(&[". 0:0 ack 1"]);
    let (waited, events) = script.next_timer();
    assert_eq!(waited, 2_000);
    assert!(events.contains(Events::ERROR));
    script.leaves(&["R. 1:1 ack 1"]);
}

#[test]
fn without_keepalive_an_idle_connection_has_no_timer() {
    let script = Script::established(&plain());
    assert_eq!(script.conn.deadline(), None);
}
