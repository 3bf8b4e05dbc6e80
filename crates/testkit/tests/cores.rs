//! What only engines of several cores do: spread connections, accept from all cores, end together. What one
//! core does as well is tested beside it (`engine_traffic.rs`, `engine_death.rs`, `programs/`, `parity.rs`).

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod engine_support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::engines::{Engines, Placement};
use client::{Errno, Observer, Readiness, Session, Socket, State, TcpSocket};
use engine_support::*;
use hostif::Steering;
use netem::Bundle;
use nic::{Caps, Counters, Driver, RxFrame, TxFrame};
use rustix::fd::{AsFd as _, BorrowedFd};

fn per_core<'a>(sockets: impl IntoIterator<Item = &'a Arc<TcpSocket>>) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for socket in sockets {
        *counts.entry(socket.id().core()).or_default() += 1;
    }
    counts
}

#[test]
fn connections_go_round_the_cores_of_their_program_and_arrive_at_all_of_their_peers() {
    const COUNT: usize = 60;
    let engines = engines_of_cores([2, 3]);
    let sessions = [0, 1].map(|side: usize| Session::attach(&engines[side].name).unwrap());
    let (listener, address) = listener(sessions[1], ADDRESSES[1]);
    let near: Vec<_> = (0..COUNT)
        .map(|_| connect(sessions[0], address).unwrap())
        .collect();
    let far: Vec<_> = (0..COUNT).map(|_| accept(&listener)).collect();
    assert_eq!(per_core(&near), BTreeMap::from([(0, 30), (1, 30)]));
    let arrived = per_core(&far);
    assert!(
        arrived.len() == 3 && arrived.values().all(|count| *count >= 8),
        "{arrived:?}"
    );
    for (core, status) in engines[1].status_of_cores().iter().enumerate() {
        let core = u16::try_from(core).unwrap();
        assert_eq!(status["connections"], arrived[&core]);
        assert_eq!(status["listeners"], 1);
    }
    for (number, socket) in near.iter().enumerate() {
        send_all(socket, &number.to_le_bytes()).unwrap();
    }
    let mut numbers: Vec<usize> = far
        .iter()
        .map(|socket| usize::from_le_bytes(recv_exact(socket, 8).try_into().unwrap()))
        .collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..COUNT));
    drop((near, far, listener));
    for engine in &engines {
        engine.wait_no_sockets();
    }
}

#[test]
fn accept_takes_connections_in_the_order_in_which_they_were_established_on_any_core() {
    let engines = engines_of_cores([1, 2]);
    let sessions = [0, 1].map(|side: usize| Session::attach(&engines[side].name).unwrap());
    let (listener, address) = listener(sessions[1], ADDRESSES[1]);
    let established = || {
        let cores = engines[1].status_of_cores();
        let count = |core: &serde_json::Value| core["connections"].as_u64().unwrap();
        cores.iter().map(count).sum::<u64>()
    };
    let near: Vec<_> = (1..=40)
        .map(|count| {
            let near = connect(sessions[0], address).unwrap();
            let is_there = || established() == count;
            testkit::wait_for("the connection", testkit::PATIENCE, is_there);
            near
        })
        .collect();
    let far: Vec<_> = near.iter().map(|_| accept(&listener)).collect();
    assert_eq!(per_core(&far).len(), 2);
    let came: Vec<_> = near.iter().map(|near| near.local_address()).collect();
    let accepted: Vec<_> = far.iter().map(|far| far.peer_address()).collect();
    assert_eq!(accepted, came);
}

/// Another process, as far as an engine can tell.
fn other_process(engine: &EngineThread) -> Engines {
    Engines::attach(std::slice::from_ref(&engine.name), Placement::Priority).unwrap()
}

/// Accepts so many connections from an adopted listener alone; returns how many came to each core.
fn accepted_by(listener: &TcpSocket, from: &'static Session, count: usize) -> BTreeMap<u16, usize> {
    let address = listener.local_address().unwrap();
    let near: Vec<_> = (0..count)
        .map(|_| connect(from, address).unwrap())
        .collect();
    per_core(&near.iter().map(|_| accept(listener)).collect::<Vec<_>>())
}

#[test]
fn a_listener_that_was_adopted_before_it_listened_is_adopted_again_with_all_of_its_cores() {
    let engines = engines_of_cores([1, 2]);
    let sessions = [0, 1].map(|side: usize| Session::attach(&engines[side].name).unwrap());
    let other = other_process(&engines[1]);
    let backing = backing();
    let name = SocketAddr::try_from(rustix::net::getsockname(&backing).unwrap()).unwrap();
    let socket = TcpSocket::open(sessions[1], backing.as_fd()).unwrap();
    socket
        .bind(SocketAddr::from((ADDRESSES[1], name.port())))
        .unwrap();
    let adopt = || TcpSocket::adopt(&other, backing.as_fd()).unwrap().unwrap();
    let too_early = adopt();
    socket.listen(backing.as_fd(), 64).unwrap();
    assert_eq!(too_early.state(), State::Listening);
    assert!(!too_early.takes_part_in_listening());
    drop(too_early);
    let adopted = adopt();
    assert!(adopted.takes_part_in_listening());
    assert_eq!(accepted_by(&adopted, sessions[0], 40).len(), 2);
}

#[test]
fn who_adopts_a_listener_at_any_moment_of_its_beginning_has_all_of_its_cores() {
    const ROUNDS: usize = 200;
    let engines = engines_of_cores([1, 2]);
    let sessions = [0, 1].map(|side: usize| Session::attach(&engines[side].name).unwrap());
    let other = other_process(&engines[1]);
    for _ in 0..ROUNDS {
        let backing = backing();
        let adopted = std::thread::scope(|scope| {
            let begins = scope.spawn(|| {
                let name = rustix::net::getsockname(&backing).unwrap();
                let port = SocketAddr::try_from(name).unwrap().port();
                let socket = TcpSocket::open(sessions[1], backing.as_fd()).unwrap();
                socket.bind(SocketAddr::from((ADDRESSES[1], port))).unwrap();
                socket.listen(backing.as_fd(), 64).unwrap();
                socket
            });
            let adopted = loop {
                let found = TcpSocket::adopt(&other, backing.as_fd()).unwrap();
                if let Some(found) = found.filter(|found| found.takes_part_in_listening()) {
                    break found;
                }
            };
            // The other process closes its own; the listener goes on with who has adopted it.
            drop(begins.join().unwrap());
            adopted
        });
        let each = accepted_by(&adopted, sessions[0], 12);
        assert_eq!(each.values().sum::<usize>(), 12);
    }
}

#[test]
fn news_of_any_core_wake_a_thread_that_waits_for_a_listener() {
    struct Counter(std::sync::atomic::AtomicU32);
    impl Observer for Counter {
        fn on_ready(&self) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let engines = engines_of_cores([1, 3]);
    let sessions = [0, 1].map(|side: usize| Session::attach(&engines[side].name).unwrap());
    let (listener, address) = listener(sessions[1], ADDRESSES[1]);
    let counter = Arc::new(Counter(0.into()));
    listener.observe(1, counter.clone());
    for _ in 0..30 {
        let before = listener.rx_events();
        assert!(!listener.has_connection());
        let near = std::thread::scope(|scope| {
            let near = scope.spawn(|| connect(sessions[0], address).unwrap());
            wait_for(&listener, Readiness::IN);
            near.join().unwrap()
        });
        assert_ne!(listener.rx_events(), before);
        drop((accept(&listener), near));
    }
    assert!(counter.0.load(std::sync::atomic::Ordering::Relaxed) >= 30);
}

#[test]
fn a_thread_that_sleeps_already_hears_of_a_core_that_is_attached_later() {
    let engines = engines_of_cores([2, 1]);
    let sessions = [0, 1].map(|side: usize| Session::attach(&engines[side].name).unwrap());
    let (listener, address) = listener(sessions[1], ADDRESSES[1]);
    let first = connect(sessions[0], address).unwrap();
    let _far = accept(&listener);
    let other = std::sync::Mutex::new(None::<Arc<TcpSocket>>);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            wait_until(&[&first], || {
                let other = other.lock().unwrap();
                other.as_ref().is_some_and(|one| one.readable_bytes() == 4)
            });
        });
        // Of two connections one is on the other core; its news have to wake who waits for both.
        let second = connect(sessions[0], address).unwrap();
        assert_ne!(second.id().core(), first.id().core());
        second.observe(2, Arc::new(Wake(Arc::clone(&first))));
        *other.lock().unwrap() = Some(second);
        send_all(&accept(&listener), b"news").unwrap();
        sleeper.join().unwrap();
    });
}

/// Wakes nobody: the waiting thread reaps the event itself, because it sleeps on every core.
struct Wake(Arc<TcpSocket>);

impl Observer for Wake {
    fn on_ready(&self) {
        let _ = self.0.readiness();
    }
}

#[test]
fn programs_on_one_engine_meet_at_one_core() {
    let engines = engines_of_cores([3, 1]);
    let session = Session::attach(&engines[0].name).unwrap();
    let (listener, address) = listener(session, ADDRESSES[0]);
    let mut cores = BTreeMap::new();
    for _ in 0..12 {
        let near = connect(session, address).unwrap();
        let far = accept(&listener);
        assert_eq!(near.id().core(), far.id().core());
        *cores.entry(near.id().core()).or_insert(0) += 1;
        send_all(&near, b"over there").unwrap();
        assert_eq!(recv_exact(&far, 10), b"over there");
    }
    assert_eq!(cores, BTreeMap::from([(0, 4), (1, 4), (2, 4)]));
}

#[test]
fn a_port_is_listened_on_by_all_cores_or_none() {
    let engines = engines_of_cores([1, 2]);
    let sessions = [0, 1].map(|side: usize| Session::attach(&engines[side].name).unwrap());
    let (first, address) = listener(sessions[1], ADDRESSES[1]);
    let begun = connect(sessions[0], address).unwrap();
    drop(first);
    wait_for(&begun, Readiness::ERR);
    for _ in 0..8 {
        let refused = connect(sessions[0], address).err();
        assert_eq!(refused, Some(Errno::CONNREFUSED));
    }
    engines[1].wait_no_sockets();
    let unbound = SocketAddr::from((ADDRESSES[1], 1));
    assert_eq!(
        connect(sessions[0], unbound).err(),
        Some(Errno::CONNREFUSED)
    );
}

/// A queue that fails when it is told to.
struct Failing {
    queue: Bundle,
    fails: Arc<AtomicBool>,
}

impl Driver for Failing {
    fn caps(&self) -> &Caps {
        self.queue.caps()
    }

    fn rx_burst(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> std::io::Result<usize> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(std::io::Error::other("pulled out"));
        }
        self.queue.rx_burst(budget, sink)
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> std::io::Result<usize> {
        self.queue.tx_burst(frames)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.wait_fd()
    }

    fn prepare_wait(&mut self) -> std::io::Result<bool> {
        Ok(!self.fails.load(Ordering::Relaxed) && self.queue.prepare_wait()?)
    }

    fn counters(&self) -> Counters {
        self.queue.counters()
    }
}

#[test]
fn when_one_core_ends_the_engine_ends_and_says_which() {
    let fails = Arc::new(AtomicBool::new(false));
    let to_first: netem::bundle::Steer = Arc::new(|_| 0);
    let steer = [Arc::clone(&to_first), to_first];
    let sides = Bundle::pair(&nic::wire::Config::default(), [2, 1], steer).unwrap();
    let [queues, _other] = sides;
    let failing = |(core, queue)| {
        let never = Arc::new(AtomicBool::new(false));
        let fails = if core == 1 { &fails } else { &never };
        let fails = Arc::clone(fails);
        Box::new(Failing { queue, fails }) as Box<dyn Driver>
    };
    let queues = (0..).zip(queues).map(failing).collect();
    let name = format!("@shunt/testkit/{}/failing", std::process::id());
    let own = "10.9.1.1/24".parse().unwrap();
    let config = engine::Config {
        name: name.clone(),
        ..engine::Config::new("test", "wire", vec![own])
    };
    let steering = Steering { cores: 2, key: 1 };
    let engine = engine::Engine::start(config, steering, queues).unwrap();
    let stop = hostif::sync::doorbell::create().unwrap();
    let ended = std::thread::scope(|scope| {
        let ends = scope.spawn(|| engine.run(stop.as_fd()));
        let session = Session::attach(&name).unwrap();
        let (listener, _) = listener(session, ADDRESSES[0]);
        assert!(!listener.has_connection());
        fails.store(true, Ordering::Relaxed);
        // Its program is told as of any engine that ends.
        wait_for(&listener, Readiness::ERR);
        assert_eq!(listener.take_error(), Some(Errno::CONNRESET));
        ends.join().unwrap()
    });
    let message = ended.unwrap_err().to_string();
    assert!(
        message.contains("core 1") && message.contains("pulled out"),
        "{message}"
    );
}

#[test]
fn thousands_of_connections_stand_at_once() {
    // All descriptors of both engines and both programs are this process's.
    const COUNT: usize = 4_000;
    let engines = engines_of_cores([2, 2]);
    let sessions = [0, 1].map(|side: usize| Session::attach(&engines[side].name).unwrap());
    let (listener, address) = listener(sessions[1], ADDRESSES[1]);
    let (near, far): (Vec<_>, Vec<_>) = (0..COUNT)
        .map(|_| (connect(sessions[0], address).unwrap(), accept(&listener)))
        .unzip();
    assert_eq!(
        per_core(&near),
        BTreeMap::from([(0, COUNT / 2), (1, COUNT / 2)])
    );
    for ends in [(&near, &far), (&far, &near)] {
        for (number, (from, to)) in ends.0.iter().zip(ends.1).enumerate() {
            send_all(from, &number.to_le_bytes()).unwrap();
            assert_eq!(recv_exact(to, 8), number.to_le_bytes());
        }
    }
    drop((near, far, listener));
    for engine in &engines {
        engine.wait_no_sockets();
    }
}
