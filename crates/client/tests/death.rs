//! The engine dies: everybody hears, nobody hangs, its successor is used.

mod support;

use std::io::{IoSlice, IoSliceMut};

use client::{Errno, Readiness, Socket, State};
use support::process::EngineProcess;
use support::*;

#[test]
#[ignore = "the engine process of the other tests"]
fn engine_process() {
    process::serve();
}

#[test]
fn a_killed_engine_resets_every_socket_and_wakes_every_waiter() {
    let mut engine = EngineProcess::start();
    let session = engine.attach();
    let (socket, idle) = (
        connect(session, ECHO_PORT).unwrap(),
        connect(session, ECHO_PORT).unwrap(),
    );
    let listener = listener(session, 80);
    send_all(&socket, b"kept").unwrap();
    wait_until(&[&socket], || socket.readable_bytes() == 4);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| wait_for(&idle, Readiness::IN));
        }
        scope.spawn(|| wait_for(&listener, Readiness::ERR));
        engine.kill();
    });
    assert!(session.is_dead());
    let gone = Readiness::ERR | Readiness::HUP;
    for one in [&socket, &idle] {
        assert!(
            one.readiness()
                .contains(gone | Readiness::IN | Readiness::OUT)
        );
        assert_eq!(one.state(), State::Closed);
    }
    assert!(listener.readiness().contains(Readiness::ERR));
    assert_eq!(listener.try_accept().err(), Some(Errno::CONNRESET));
    assert_eq!(
        idle.try_recv(&mut [IoSliceMut::new(&mut [0; 4])], false),
        Err(Errno::CONNRESET)
    );
    assert_eq!(
        idle.try_recv(&mut [IoSliceMut::new(&mut [0; 4])], false),
        Ok(0)
    );
    // What had arrived can still be read.
    assert_eq!(recv_exact(&socket, 4), b"kept");
    assert_eq!(
        socket.try_send(&[IoSlice::new(b"x")]),
        Err(Errno::CONNRESET)
    );
    assert_eq!(socket.try_send(&[IoSlice::new(b"x")]), Err(Errno::PIPE));
    assert_eq!(
        client::TcpSocket::open(session, rustix::fd::AsFd::as_fd(&backing())).err(),
        Some(Errno::CONNRESET)
    );
}

#[test]
fn a_program_that_only_polls_notices_too() {
    let mut engine = EngineProcess::start();
    let socket = connect(engine.attach(), ECHO_PORT).unwrap();
    engine.kill();
    let mut calls = 0;
    let error = loop {
        match socket.try_recv(&mut [IoSliceMut::new(&mut [0; 4])], false) {
            Err(Errno::AGAIN) => calls += 1,
            other => break other,
        }
        assert!(calls < 1000, "it never notices");
    };
    assert_eq!(error, Err(Errno::CONNRESET));
}

#[test]
fn a_command_to_a_killed_engine_fails_and_does_not_hang() {
    let mut engine = EngineProcess::start();
    let session = engine.attach();
    let socket = open(session);
    engine.kill();
    assert_eq!(socket.bind(address(80)), Err(Errno::CONNRESET));
}

#[test]
fn after_attaching_again_new_sockets_work_and_old_ones_stay_reset() {
    let engine = support::engine::FakeEngine::start();
    let session = engine.attach();
    let old = connect(session, ECHO_PORT).unwrap();
    let name = engine.name.clone();
    drop(engine);
    wait_for(&old, Readiness::ERR);
    assert!(session.attach_again().is_err());
    let _engine = support::engine::FakeEngine::start_named(&name, engine::small_layout());
    session.attach_again().unwrap();
    assert!(!session.is_dead());
    let new = connect(session, ECHO_PORT).unwrap();
    send_all(&new, b"hello").unwrap();
    assert_eq!(recv_exact(&new, 5), b"hello");
    assert_eq!(old.state(), State::Closed);
    assert_eq!(old.take_error(), Some(Errno::CONNRESET));
    drop(old);
    assert_eq!(new.state(), State::Connected);
}
