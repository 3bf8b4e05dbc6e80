//! Several engines in one process: waiting for any of them, listening on all, going on without one.

mod support;

use std::time::Instant;

use client::engines::{Engines, Flow, Placement, closest};
use client::{Awaited, Readiness, Session, Socket, TcpSocket, Until, Woken, wait_on};
use rustix::fd::AsFd as _;
use support::engine::{FakeEngine, small_layout};
use support::*;

/// Waits on all of these sessions for a condition on some sockets; fails the test if it never holds.
fn wait_on_all(sessions: &[&Session], sockets: &[&TcpSocket], mut ready: impl FnMut() -> bool) {
    let deadline = Some(Instant::now() + PATIENCE);
    let until = Until {
        deadline,
        ready: &mut ready,
        before_sleep: &mut || {},
    };
    let sockets: Vec<&dyn Awaited> = sockets.iter().map(|one| *one as &dyn Awaited).collect();
    let woken = wait_on(sessions, &sockets, &mut [], None, until);
    assert_eq!(woken, Ok(Woken::Ready));
}

#[test]
fn threads_are_woken_by_whichever_engine_has_their_answer() {
    // More than lead the sleep (`threads::wait_leaders`).
    const THREADS: usize = 12;
    const ROUNDS: usize = 100;
    let engines = [FakeEngine::start(), FakeEngine::start()];
    let sessions = [engines[0].attach(), engines[1].attach()];
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let sockets = sessions.map(|session| connect(session, ECHO_PORT).unwrap());
                let both = [&*sockets[0], &*sockets[1]];
                for round in 0..ROUNDS {
                    let asked = &sockets[(thread + round) % 2];
                    let bytes = pattern(thread * ROUNDS + round, 1 + round % 40);
                    send_all(asked, &bytes).unwrap();
                    wait_on_all(&sessions, &both, || {
                        both.iter().any(|one| one.readable_bytes() > 0)
                    });
                    assert_eq!(recv_exact(asked, bytes.len()), bytes);
                }
            });
        }
    });
}

#[test]
fn a_listener_on_two_engines_takes_from_both_and_goes_on_without_the_second() {
    let (first, second) = (FakeEngine::start(), FakeEngine::start());
    let sessions = [first.attach(), second.attach()];
    let backing = backing();
    let listener = TcpSocket::open(sessions[0], backing.as_fd()).unwrap();
    listener.bind(address(80)).unwrap();
    listener
        .listen_beside(backing.as_fd(), 16, &[sessions[1]])
        .unwrap();
    let take = || {
        wait_on_all(&sessions, &[&listener], || listener.has_connection());
        assert!(listener.readiness().contains(Readiness::IN));
        listener.try_accept().unwrap().expect("one waits")
    };
    for session in sessions {
        let peer = connect(session, 80).unwrap();
        let accepted = take();
        assert!(core::ptr::eq(accepted.socket.session(), session));
        send_all(&accepted.socket, b"word").unwrap();
        assert_eq!(recv_exact(&peer, 4), b"word");
    }
    drop(second);
    // It is noticed by who asks it something.
    assert!(sessions[1].addresses().is_err() && sessions[1].is_dead());
    assert!(listener.try_accept().unwrap().is_none());
    let _peer = connect(sessions[0], 80).unwrap();
    assert!(core::ptr::eq(take().socket.session(), sessions[0]));
}

#[test]
fn a_listener_goes_on_without_its_first_engine_and_comes_back_to_the_next_one() {
    let (first, second) = (FakeEngine::start(), FakeEngine::start());
    let sessions = [first.attach(), second.attach()];
    let backing = backing();
    let listener = TcpSocket::open(sessions[0], backing.as_fd()).unwrap();
    listener.bind(address(80)).unwrap();
    listener
        .listen_beside(backing.as_fd(), 16, &[sessions[1]])
        .unwrap();
    let takes_from = |session| {
        let _peer = connect(session, 80).unwrap();
        wait_on_all(&sessions, &[&listener], || listener.has_connection());
        let accepted = listener.try_accept().unwrap().expect("one waits");
        assert!(core::ptr::eq(accepted.socket.session(), session));
    };
    let name = first.name.clone();
    drop(first);
    assert!(sessions[0].addresses().is_err() && sessions[0].is_dead());
    assert!(listener.readiness().is_empty() && listener.try_accept().unwrap().is_none());
    takes_from(sessions[1]);
    assert!(listener.misses_engine() && !listener.listen_again(backing.as_fd()));
    drop(second);
    assert!(sessions[1].addresses().is_err() && listener.is_lost_listener());
    let _next = FakeEngine::start_named(&name, small_layout());
    sessions[0].attach_again().unwrap();
    assert!(
        !listener.listen_again(backing.as_fd()),
        "the second is missing"
    );
    assert!(!listener.is_lost_listener());
    takes_from(sessions[0]);
}

#[test]
fn what_one_engine_cannot_open_another_does_until_it_is_back() {
    let (first, second) = (FakeEngine::start(), FakeEngine::start());
    let names = [
        first.name.clone(),
        "@shunt/test/nobody".to_owned(),
        second.name.clone(),
    ];
    let engines = Engines::attach(&names, Placement::Priority).unwrap();
    let are_dead = || {
        let sessions = engines.sessions().iter();
        sessions.map(|one| one.is_dead()).collect::<Vec<bool>>()
    };
    assert_eq!(
        are_dead(),
        [false, true, false],
        "who does not answer keeps its place"
    );
    let flow = Flow {
        local: address(0),
        remote: address(ECHO_PORT),
    };
    let both = closest(flow.remote, &engines.networks());
    let opened_by = || {
        let backing = backing();
        let opened = engines.first_that_opens(both, flow, |place| {
            let socket = TcpSocket::open(engines.session(place)?, backing.as_fd())?;
            socket.connect(flow.remote, None)?;
            Ok(socket)
        });
        engines.place_of(opened.unwrap().session()).index()
    };
    assert_eq!(opened_by(), 0);
    drop(first);
    assert_eq!(opened_by(), 2);
    assert_eq!(engines.attach_again(), Ok(()), "one is there");
    let _first = FakeEngine::start_named(&names[0], small_layout());
    assert_eq!(engines.attach_again(), Ok(()));
    assert_eq!(are_dead(), [false, true, false]);
    // What worked is tried first as long as it works.
    assert_eq!(opened_by(), 2);
    drop(second);
    assert_eq!(opened_by(), 0);
}
