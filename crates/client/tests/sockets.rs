//! Sockets against a fake engine: connect, listen, accept, move bytes, end.

mod support;

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use client::{Errno, Observer, Readiness, Session, ShutdownHow, Socket, State};
use rustix::fd::AsFd;
use support::engine::FakeEngine;
use support::*;

#[test]
fn what_is_sent_comes_back() {
    let engine = FakeEngine::start();
    let socket = connect(engine.attach(), ECHO_PORT).unwrap();
    assert_eq!(socket.peer_address(), Some(address(ECHO_PORT)));
    assert!(socket.local_address().is_some());
    let sent = socket.try_send(&[IoSlice::new(b"hel"), IoSlice::new(b""), IoSlice::new(b"lo")]);
    assert_eq!(sent, Ok(5));
    assert_eq!(recv_exact(&socket, 5), b"hello");
    assert_eq!(
        socket.try_recv(&mut [IoSliceMut::new(&mut [0; 4])], false),
        Err(Errno::AGAIN)
    );
}

#[test]
fn a_megabyte_each_way_passes_small_windows_unharmed() {
    const LEN: usize = 3_000_017;
    let engine = FakeEngine::start();
    let socket = connect(engine.attach(), ECHO_PORT).unwrap();
    std::thread::scope(|scope| {
        let sender = &socket;
        scope.spawn(move || {
            let mut at = 0;
            let mut size = 1;
            while at < LEN {
                let len = size.min(LEN - at);
                send_all(sender, &pattern(at, len)).unwrap();
                at += len;
                size = size * 7 % 100_003;
            }
        });
        let mut at = 0;
        let mut size = 1;
        while at < LEN {
            let len = size.min(LEN - at);
            assert!(
                recv_exact(&socket, len) == pattern(at, len),
                "bytes differ after {at}"
            );
            at += len;
            size = size * 5 % 99_991;
        }
    });
}

#[test]
fn a_listener_hands_out_connections_with_their_peers() {
    let engine = FakeEngine::start();
    let session = engine.attach();
    let listener = listener(session, 80);
    assert_eq!(listener.state(), State::Listening);
    assert!(listener.readiness().is_empty());
    assert!(listener.try_accept().unwrap().is_none());
    let active = connect(session, 80).unwrap();
    let accepted = accept(&listener);
    assert_eq!(Some(accepted.peer), active.local_address());
    assert_eq!(accepted.socket.local_address(), Some(address(80)));
    assert!(rustix::net::sockopt::socket_type(&accepted.backing).is_ok());
    send_all(&active, b"ping").unwrap();
    assert_eq!(recv_exact(&accepted.socket, 4), b"ping");
    send_all(&accepted.socket, b"pong").unwrap();
    assert_eq!(recv_exact(&active, 4), b"pong");
}

#[test]
fn port_zero_becomes_a_port() {
    let engine = FakeEngine::start();
    let socket = open(engine.attach());
    assert_ne!(socket.bind(address(0)).unwrap().port(), 0);
}

#[test]
fn a_refused_connect_shows_as_linux_shows_it() {
    let engine = FakeEngine::start();
    let socket = open(engine.attach());
    assert_eq!(socket.state(), State::Idle);
    socket.connect(address(9), None).unwrap();
    wait_until(&[&socket], || socket.state() == State::Closed);
    let all = Readiness::IN | Readiness::OUT | Readiness::RDHUP | Readiness::HUP | Readiness::ERR;
    assert_eq!(socket.readiness(), all);
    assert_eq!(socket.take_error(), Some(Errno::CONNREFUSED));
    assert_eq!(socket.take_error(), None);
    assert_eq!(socket.readiness(), all - Readiness::ERR);
    assert_eq!(
        socket.try_recv(&mut [IoSliceMut::new(&mut [0; 4])], false),
        Ok(0)
    );
    assert_eq!(socket.try_send(&[IoSlice::new(b"x")]), Err(Errno::PIPE));
}

/// The engine has taken the close, of which it tells nobody.
fn until_forgotten(socket: &client::TcpSocket) {
    let begun = Instant::now();
    while !socket.is_reset() {
        assert!(begun.elapsed() < PATIENCE, "the engine still has it");
        std::thread::yield_now();
    }
}

/// What a call says that another thread's close has overtaken: the number is none any more, and the slot may be another socket's.
#[test]
fn a_socket_that_was_closed_is_a_bad_number_and_one_that_was_aborted_is_reset() {
    let engine = FakeEngine::start();
    let session = engine.attach();
    for (is_aborted, said) in [(false, Errno::BADF), (true, Errno::CONNRESET)] {
        let socket = connect(session, ECHO_PORT).unwrap();
        if is_aborted {
            socket.abort();
        } else {
            socket.close();
        }
        until_forgotten(&socket);
        assert_eq!(socket.take_error(), Some(said));
    }
    let socket = connect(session, ECHO_PORT).unwrap();
    socket.close();
    until_forgotten(&socket);
    let received = socket.try_recv(&mut [IoSliceMut::new(&mut [0; 4])], false);
    assert_eq!(received, Err(Errno::BADF));
    let sent = socket.try_send(&[IoSlice::new(b"x")]);
    assert_eq!(sent, Err(Errno::BADF));
}

#[test]
fn peeked_bytes_stay_and_discarded_bytes_go() {
    let engine = FakeEngine::start();
    let socket = connect(engine.attach(), ECHO_PORT).unwrap();
    send_all(&socket, b"abcdef").unwrap();
    wait_until(&[&socket], || socket.readable_bytes() == 6);
    let mut peeked = [0; 3];
    assert_eq!(
        socket.try_recv(&mut [IoSliceMut::new(&mut peeked)], true),
        Ok(3)
    );
    assert_eq!(&peeked, b"abc");
    assert_eq!(socket.readable_bytes(), 6);
    assert_eq!(socket.discard(4), Ok(4));
    assert_eq!(recv_exact(&socket, 2), b"ef");
}

#[test]
fn the_short_way_of_a_receive_takes_bytes_and_leaves_all_else_to_the_long_one() {
    let engine = FakeEngine::start();
    let session = engine.attach();
    let listener = listener(session, 80);
    let active = connect(session, 80).unwrap();
    let passive = accept(&listener).socket;
    let take = |max: usize| {
        let (mut one, mut other) = (vec![0; max.min(2)], vec![0; max.saturating_sub(2)]);
        let slices = &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut other)];
        let taken = passive.take_at_once(slices);
        taken.map(|taken| [one, other].concat()[..taken].to_vec())
    };
    assert_eq!(take(8), None, "nothing is there");
    send_all(&active, b"abcdefgh").unwrap();
    wait_until(&[&passive], || passive.readable_bytes() == 8);
    // Where the windows are is asked by the long way once.
    assert!(passive.readiness().contains(Readiness::IN));
    assert_eq!(take(0), None, "nothing is asked for");
    assert_eq!(take(3), Some(b"abc".to_vec()));
    assert_eq!(passive.readable_bytes(), 5);
    assert_eq!(take(8), Some(b"defgh".to_vec()));
    assert_eq!(take(8), None);
    assert!(!passive.readiness().contains(Readiness::IN));
    send_all(&active, b"end").unwrap();
    active.shutdown(ShutdownHow::Write).unwrap();
    wait_for(&passive, Readiness::RDHUP);
    assert_eq!(take(8), None, "the end has come too");
    assert_eq!(recv_exact(&passive, 3), b"end");
}

#[test]
fn a_half_close_ends_the_stream_after_its_last_byte() {
    let engine = FakeEngine::start();
    let session = engine.attach();
    let listener = listener(session, 80);
    let active = connect(session, 80).unwrap();
    let passive = accept(&listener).socket;
    send_all(&active, b"last").unwrap();
    active.shutdown(ShutdownHow::Write).unwrap();
    assert_eq!(active.try_send(&[IoSlice::new(b"x")]), Err(Errno::PIPE));
    wait_for(&passive, Readiness::RDHUP);
    assert_eq!(recv_exact(&passive, 4), b"last");
    assert_eq!(recv_some(&passive, &mut [0; 4]), Ok(0));
    assert!(!passive.readiness().contains(Readiness::HUP));
    send_all(&passive, b"reply").unwrap();
    assert_eq!(recv_exact(&active, 5), b"reply");
    passive.shutdown(ShutdownHow::Write).unwrap();
    wait_for(&active, Readiness::HUP);
}

#[test]
fn closing_with_unread_bytes_resets_the_peer() {
    let engine = FakeEngine::start();
    let session = engine.attach();
    let listener = listener(session, 80);
    let active = connect(session, 80).unwrap();
    let passive = accept(&listener).socket;
    send_all(&active, b"unread").unwrap();
    wait_for(&passive, Readiness::IN);
    drop(passive);
    wait_for(&active, Readiness::ERR);
    assert_eq!(recv_some(&active, &mut [0; 4]), Err(Errno::CONNRESET));
    assert_eq!(recv_some(&active, &mut [0; 4]), Ok(0));
}

#[test]
fn bytes_are_received_before_the_reset_that_came_with_them() {
    // A fake engine has no more sockets, one after the other, than its region.
    for _ in 0..10 {
        let engine = FakeEngine::start();
        let session = engine.attach();
        for _ in 0..200 {
            let socket = connect(session, RESETTING_PORT).unwrap();
            send_all(&socket, b"x").unwrap();
            // It looks again and again: now and then both come between its look at the window and its look at the error.
            let next = || loop {
                match socket.try_recv(&mut [IoSliceMut::new(&mut [0; 4])], false) {
                    Err(Errno::AGAIN) => std::hint::spin_loop(),
                    result => return result,
                }
            };
            assert_eq!((next(), next()), (Ok(1), Err(Errno::CONNRESET)));
        }
    }
}

#[test]
fn a_plain_close_ends_the_peers_stream() {
    let engine = FakeEngine::start();
    let session = engine.attach();
    let listener = listener(session, 80);
    let active = connect(session, 80).unwrap();
    let passive = accept(&listener).socket;
    send_all(&active, b"all of it").unwrap();
    active.close();
    assert_eq!(recv_exact(&passive, 9), b"all of it");
    assert_eq!(recv_some(&passive, &mut [0; 4]), Ok(0));
}

#[test]
fn a_send_window_is_filled_in_place() {
    let engine = FakeEngine::start();
    let socket = connect(engine.attach(), ECHO_PORT).unwrap();
    let mut sent = 0;
    // More than the window, so that spans wrap.
    while sent < 200_000 {
        match socket.send_space(30_001) {
            Ok(space) => {
                let len = space.len();
                assert!(!space.is_empty());
                sys::fill(space.spans(), &pattern(sent, len));
                // Less than reserved may be committed.
                let part = len - len / 3;
                assert_eq!(space.commit(part), Ok(part));
                assert!(recv_exact(&socket, part) == pattern(sent, part));
                sent += part;
            }
            Err(Errno::AGAIN) => wait_for(&socket, Readiness::OUT),
            Err(errno) => panic!("{errno}"),
        }
    }
    let unused = socket.send_space(100).unwrap();
    drop(unused);
    // No event tells of an acknowledgement that nobody waits for.
    let deadline = std::time::Instant::now() + PATIENCE;
    while socket.unacknowledged_bytes() > 0 {
        assert!(std::time::Instant::now() < deadline, "never acknowledged");
        std::thread::yield_now();
    }
    assert_eq!(socket.acknowledged_bytes(), sent as u64);
}

#[test]
fn a_full_window_is_not_writable_until_the_peer_reads() {
    let engine = FakeEngine::start();
    let session = engine.attach();
    let listener = listener(session, 80);
    let active = connect(session, 80).unwrap();
    let passive = accept(&listener).socket;
    let mut sent = 0;
    // Its own window and the peer's, 64 KiB each.
    while sent < 128 * 1024 {
        match active.try_send(&[IoSlice::new(&pattern(sent, 10_000))]) {
            Ok(bytes) => sent += bytes,
            // Any room will do, even where Linux would not call it writable yet.
            Err(Errno::AGAIN) => {
                wait_until(&[&active], || active.unacknowledged_bytes() < 64 * 1024);
            }
            Err(errno) => panic!("{errno}"),
        }
    }
    assert_eq!(active.try_send(&[IoSlice::new(b"x")]), Err(Errno::AGAIN));
    assert!(!active.readiness().contains(Readiness::OUT));
    let events = active.tx_events();
    assert!(recv_exact(&passive, sent) == pattern(0, sent));
    wait_for(&active, Readiness::OUT);
    assert_ne!(active.tx_events(), events);
}

struct Count(AtomicUsize);

impl Observer for Count {
    fn on_ready(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn observers_hear_of_their_socket_until_they_are_forgotten() {
    let engine = FakeEngine::start();
    let session = engine.attach();
    let (first, second) = (
        connect(session, ECHO_PORT).unwrap(),
        connect(session, ECHO_PORT).unwrap(),
    );
    session.reap();
    let count = Arc::new(Count(AtomicUsize::new(0)));
    first.observe(1, Arc::clone(&count) as Arc<dyn Observer>);
    send_all(&second, b"x").unwrap();
    wait_for(&second, Readiness::IN);
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    let events = first.rx_events();
    send_all(&first, b"x").unwrap();
    wait_until(&[&first], || count.0.load(Ordering::SeqCst) > 0);
    assert!(first.readiness().contains(Readiness::IN));
    assert_ne!(first.rx_events(), events);
    first.forget(1);
    let heard = count.0.load(Ordering::SeqCst);
    assert_eq!(recv_exact(&first, 1), b"x");
    send_all(&first, b"y").unwrap();
    wait_for(&first, Readiness::IN);
    session.reap();
    assert_eq!(count.0.load(Ordering::SeqCst), heard);
}

#[test]
fn two_programs_talk_through_the_engine() {
    let engine = FakeEngine::start();
    let (server, client) = (engine.attach(), engine.attach());
    let listener = listener(server, 80);
    let active = connect(client, 80).unwrap();
    let passive = accept(&listener).socket;
    send_all(&active, b"across").unwrap();
    assert_eq!(recv_exact(&passive, 6), b"across");
}

#[test]
fn addresses_and_reports_come_from_the_engine() {
    let engine = FakeEngine::start();
    let session = engine.attach();
    let own = session.addresses().unwrap();
    assert_eq!(own.addresses[0].prefix_len, 24);
    assert!(own.gateways.is_empty());
    assert_eq!(
        session.query(client::QueryKind::Status).unwrap(),
        "{\"fake\":true}"
    );
    assert_eq!(session.name(), engine.name);
}

#[test]
fn no_engine_is_an_error_that_says_so() {
    let error = Session::attach("@shunt/test/nobody-listens").err().unwrap();
    assert!(error.to_string().contains("no engine listens"));
}

#[test]
fn backing_sockets_are_private_until_they_are_handed_over() {
    let engine = FakeEngine::start();
    let session = engine.attach();
    let listener = listener(session, 80);
    let _active = connect(session, 80).unwrap();
    let accepted = accept(&listener);
    let number = rustix::fd::AsRawFd::as_raw_fd(&accepted.backing);
    assert!(number >= client::first_private());
    assert!(!client::is_private(number));
    assert!(rustix::fs::fstat(accepted.backing.as_fd()).is_ok());
}
