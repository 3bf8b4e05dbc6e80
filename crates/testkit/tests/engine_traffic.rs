//! Programs on two engines that run on threads of their own, over real control channels and rings.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod engine_support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Errno, Readiness, Session, ShutdownHow, Socket, State, TcpSocket};
use engine_support::*;
use hostif::control::Request;
use rustix::fd::AsFd as _;
use rustix::net::RecvFlags;

struct Scene {
    engines: [EngineThread; 2],
    sessions: [&'static Session; 2],
    listener: Arc<TcpSocket>,
    address: SocketAddr,
}

impl Scene {
    /// On engines of one core, and of several.
    fn each() -> impl Iterator<Item = Scene> {
        [engines, || engines_of_cores([2, 3])]
            .into_iter()
            .map(|engines| Scene::of(engines()))
    }

    fn of(engines: [EngineThread; 2]) -> Scene {
        let sessions = [0, 1].map(|side: usize| Session::attach(&engines[side].name).unwrap());
        let (listener, address) = listener(sessions[1], ADDRESSES[1]);
        Scene {
            engines,
            sessions,
            listener,
            address,
        }
    }

    fn connected(&self) -> (Arc<TcpSocket>, Arc<TcpSocket>) {
        let near = connect(self.sessions[0], self.address).unwrap();
        (near, accept(&self.listener))
    }
}

#[test]
fn bytes_go_both_ways_and_each_way_ends_for_itself() {
    for scene in Scene::each() {
        let (near, far) = scene.connected();
        assert_eq!(near.peer_address(), Some(scene.address));
        assert_eq!(far.peer_address(), near.local_address());
        send_all(&near, b"question").unwrap();
        assert_eq!(recv_exact(&far, 8), b"question");
        near.shutdown(ShutdownHow::Write).unwrap();
        assert_eq!(recv_some(&far, &mut [0; 8]), Ok(0));
        assert_eq!(
            near.try_send(&[std::io::IoSlice::new(b"more")]),
            Err(Errno::PIPE)
        );
        send_all(&far, b"answer").unwrap();
        assert_eq!(recv_exact(&near, 6), b"answer");
        drop(far);
        assert_eq!(recv_some(&near, &mut [0; 8]), Ok(0));
        wait_for(&near, Readiness::HUP);
        assert_eq!(near.take_error(), None);
    }
}

#[test]
fn a_port_that_nobody_listens_on_refuses() {
    for scene in Scene::each() {
        let closed = SocketAddr::from((ADDRESSES[1], 1));
        assert_eq!(
            connect(scene.sessions[0], closed).err(),
            Some(Errno::CONNREFUSED)
        );
    }
}

#[test]
fn an_aborted_connection_is_reset_at_the_other_end() {
    for scene in Scene::each() {
        let (near, far) = scene.connected();
        near.abort();
        wait_for(&far, Readiness::ERR);
        assert_eq!(recv_some(&far, &mut [0; 8]), Err(Errno::CONNRESET));
        assert_eq!(recv_some(&far, &mut [0; 8]), Ok(0));
    }
}

#[test]
fn an_address_that_nobody_has_is_unreachable_by_a_timer_alone() {
    for scene in Scene::each() {
        let nowhere = SocketAddr::from(([10, 9, 1, 77], 9));
        let start = Instant::now();
        let error = connect(scene.sessions[0], nowhere).err();
        assert_eq!(error, Some(Errno::HOSTUNREACH));
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn much_goes_both_ways_at_once_unchanged() {
    const BYTES: usize = 24 << 20;
    const CHUNK: usize = 100_000;
    for scene in Scene::each() {
        let (near, far) = scene.connected();
        let expected = pattern(0, BYTES);
        std::thread::scope(|scope| {
            for (from, to) in [(&near, &far), (&far, &near)] {
                let expected = &expected;
                scope.spawn(move || {
                    for chunk in expected.chunks(CHUNK) {
                        send_all(from, chunk).unwrap();
                    }
                    from.shutdown(ShutdownHow::Write).unwrap();
                });
                scope.spawn(move || {
                    let (mut done, mut buffer) = (0, vec![0; CHUNK]);
                    loop {
                        let received = recv_some(to, &mut buffer).unwrap();
                        if received == 0 {
                            break;
                        }
                        let wanted = &expected[done..done + received];
                        assert!(buffer[..received] == *wanted, "wrong bytes after {done}");
                        done += received;
                    }
                    assert_eq!(done, BYTES);
                });
            }
        });
    }
}

#[test]
fn many_connections_at_once_each_have_their_own_bytes() {
    const COUNT: usize = 300;
    for scene in Scene::each() {
        let near: Vec<_> = (0..COUNT)
            .map(|_| begin_connect(scene.sessions[0], scene.address))
            .collect();
        let mut far = Vec::new();
        while far.len() < COUNT {
            far.push(accept(&scene.listener));
        }
        for (number, socket) in near.iter().enumerate() {
            wait_until(&[socket], || socket.state() == State::Connected);
            send_all(socket, &pattern(number * 1_000, 1_000)).unwrap();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for socket in &far {
                    let bytes = recv_exact(socket, 1_000);
                    send_all(socket, &bytes).unwrap();
                }
            });
            for (number, socket) in near.iter().enumerate() {
                assert_eq!(recv_exact(socket, 1_000), pattern(number * 1_000, 1_000));
            }
        });
        drop((near, far));
        for engine in &scene.engines {
            testkit::wait_for("end of the connections", PATIENCE, || {
                engine.status()["connections"] == 0
            });
        }
    }
}

#[test]
fn an_idle_engine_with_a_program_and_a_connection_rests() {
    for scene in Scene::each() {
        let (near, far) = scene.connected();
        send_all(&near, b"hello").unwrap();
        assert_eq!(recv_exact(&far, 5), b"hello");
        assert_rests(&scene.engines[0]);
    }
}

#[test]
fn an_engine_rests_though_a_program_that_it_dropped_rings_and_holds_everything_open() {
    let [engine, _peer] = engines();
    let channel = dial(&engine.name);
    let hello = Request::Hello {
        min_version: hostif::MIN_VERSION,
        max_version: hostif::MAX_VERSION,
        pid: 1,
    };
    hostif::control::send(channel.as_fd(), &hello.encode(), &[]).unwrap();
    let welcome = hostif::control::receive(channel.as_fd(), RecvFlags::empty()).unwrap();
    let [region, _, bell] = &welcome.descriptors[..] else {
        panic!("no region and doorbells");
    };
    rustix::io::pwrite(region, &[0xa5; 32 * 1_024], 4_096).unwrap();
    hostif::sync::doorbell::ring(bell.as_fd());
    let end = hostif::control::receive(channel.as_fd(), RecvFlags::empty()).unwrap();
    assert!(end.bytes.is_empty(), "the engine lets go of it");
    hostif::sync::doorbell::ring(bell.as_fd());
    assert_rests(&engine);
    engine.wait_empty();
}

/// The engine uses less than a hundredth of a processor; a skip where the system does not tell.
fn assert_rests(engine: &EngineThread) {
    const SPAN: Duration = Duration::from_secs(1);
    let thread = engine.thread.as_raw_nonzero();
    let path = format!("/proc/self/task/{thread}/schedstat");
    if ran(&path).is_none() {
        use std::io::Write as _;
        let text = "is not there to tell an engine's processor time";
        let _ = writeln!(std::io::stderr(), "skipped: idle engine: {path} {text}");
        return;
    }
    // The first spans may still see the handshake's timers, or another test's load on the machine.
    let rests = (0..5).any(|_| {
        let before = ran(&path).unwrap();
        std::thread::sleep(SPAN);
        let ran = ran(&path).unwrap() - before;
        println!("an idle engine ran for {ran:?} of {SPAN:?}");
        ran < SPAN / 100
    });
    assert!(rests, "an engine with nothing to do is busy");
}

/// How long a thread has run.
fn ran(path: &str) -> Option<Duration> {
    let text = std::fs::read_to_string(path).ok()?;
    let ns = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(ns))
}
