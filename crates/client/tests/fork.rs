//! fork(2) with sockets: the child has them, and its death or life is the engine's to follow.

mod support;

use client::{Errno, Readiness, Socket, State};
use support::process::EngineProcess;
use support::*;

#[test]
#[ignore = "the engine process of the other tests"]
fn engine_process() {
    process::serve();
}

#[test]
fn parent_and_child_use_one_connection_in_turns() {
    let engine = EngineProcess::start();
    let session = engine.attach();
    let socket = connect(session, ECHO_PORT).unwrap();
    send_all(&socket, b"before").unwrap();
    assert_eq!(recv_exact(&socket, 6), b"before");
    let child = sys::fork(session, || {
        send_all(&socket, b"child").unwrap();
        assert_eq!(recv_exact(&socket, 5), b"child");
    });
    assert_eq!(sys::join(child), Some(0));
    send_all(&socket, b"parent").unwrap();
    assert_eq!(recv_exact(&socket, 6), b"parent");
}

#[test]
fn a_forked_worker_accepts_and_opens_sockets_of_its_own() {
    let engine = EngineProcess::start();
    let session = engine.attach();
    let listener = listener(session, 80);
    let workers: Vec<_> = (0..3)
        .map(|_| {
            sys::fork(session, || {
                let accepted = accept(&listener).socket;
                let request = recv_exact(&accepted, 4);
                // A connection that the parent knows nothing of.
                let own = connect(session, ECHO_PORT).unwrap();
                send_all(&own, &request).unwrap();
                let answer = recv_exact(&own, 4);
                send_all(&accepted, &answer).unwrap();
            })
        })
        .collect();
    let clients: Vec<_> = (0..3).map(|_| connect(session, 80).unwrap()).collect();
    for (index, client) in clients.iter().enumerate() {
        send_all(client, &pattern(index, 4)).unwrap();
    }
    for (index, client) in clients.iter().enumerate() {
        assert_eq!(recv_exact(client, 4), pattern(index, 4));
        // The worker has ended: so has the connection that only it held.
        assert_eq!(recv_some(client, &mut [0; 4]), Ok(0));
    }
    for worker in workers {
        assert_eq!(sys::join(worker), Some(0));
    }
}

#[test]
fn a_connection_ends_when_the_last_of_its_holders_is_gone() {
    let engine = EngineProcess::start();
    let session = engine.attach();
    let listener = listener(session, 80);
    let active = connect(session, 80).unwrap();
    let passive = accept(&listener).socket;
    let (wait_end, go_end) = rustix::pipe::pipe().unwrap();
    let child = sys::fork(session, || {
        // Holds the connection until told; never speaks to the engine.
        let _ = rustix::io::read(&wait_end, &mut [0; 1]);
    });
    drop(passive);
    session.reap();
    assert!(!active.readiness().contains(Readiness::RDHUP));
    rustix::io::write(&go_end, b"x").unwrap();
    assert_eq!(sys::join(child), Some(0));
    assert_eq!(recv_some(&active, &mut [0; 4]), Ok(0));
}

#[test]
fn a_child_that_closes_leaves_the_connection_to_the_parent() {
    let engine = EngineProcess::start();
    let session = engine.attach();
    let socket = connect(session, ECHO_PORT).unwrap();
    let child = sys::fork(session, || socket.close());
    assert_eq!(sys::join(child), Some(0));
    send_all(&socket, b"still here").unwrap();
    assert_eq!(recv_exact(&socket, 10), b"still here");
}

#[test]
fn the_lock_of_a_process_that_died_in_the_middle_of_a_send_is_freed() {
    let engine = EngineProcess::start();
    let session = engine.attach();
    let socket = connect(session, ECHO_PORT).unwrap();
    let child = sys::fork(session, || {
        let space = socket.send_space(10).unwrap();
        sys::fill(space.spans(), b"lost bytes");
        // The process ends with the lock held and nothing committed.
        std::mem::forget(space);
    });
    assert_eq!(sys::join(child), Some(0));
    send_all(&socket, b"sent").unwrap();
    assert_eq!(recv_exact(&socket, 4), b"sent");
}

#[test]
fn a_grandchild_inherits_from_a_child_that_never_spoke() {
    let engine = EngineProcess::start();
    let session = engine.attach();
    let socket = connect(session, ECHO_PORT).unwrap();
    let child = sys::fork(session, || {
        let grandchild = sys::fork(session, || {
            send_all(&socket, b"deep").unwrap();
            assert_eq!(recv_exact(&socket, 4), b"deep");
        });
        assert_eq!(sys::join(grandchild), Some(0));
    });
    assert_eq!(sys::join(child), Some(0));
}

#[test]
fn a_child_of_a_session_without_sockets_attaches_by_itself() {
    let engine = EngineProcess::start();
    let session = engine.attach();
    let child = sys::fork(session, || {
        let socket = connect(session, ECHO_PORT).unwrap();
        send_all(&socket, b"own").unwrap();
        assert_eq!(recv_exact(&socket, 3), b"own");
    });
    assert_eq!(sys::join(child), Some(0));
}

#[test]
fn forking_while_other_threads_block_and_send_hangs_neither_side() {
    let engine = EngineProcess::start();
    let session = engine.attach();
    let socket = connect(session, ECHO_PORT).unwrap();
    let busy = connect(session, ECHO_PORT).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                send_all(&busy, &pattern(round, 50)).unwrap();
                assert_eq!(recv_exact(&busy, 50), pattern(round, 50));
                round += 1;
            }
        });
        for round in 0..30 {
            let child = sys::fork(session, || {
                send_all(&socket, &pattern(round, 20)).unwrap();
                assert_eq!(recv_exact(&socket, 20), pattern(round, 20));
            });
            assert_eq!(sys::join(child), Some(0));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_child_of_a_dead_engine_sees_resets() {
    let mut engine = EngineProcess::start();
    let session = engine.attach();
    let socket = connect(session, ECHO_PORT).unwrap();
    engine.kill();
    let child = sys::fork(session, || {
        wait_for(&socket, Readiness::ERR);
        assert_eq!(socket.take_error(), Some(Errno::CONNRESET));
        assert_eq!(socket.state(), State::Closed);
    });
    assert_eq!(sys::join(child), Some(0));
}
