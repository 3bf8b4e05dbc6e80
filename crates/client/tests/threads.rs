//! Many threads: blocking, waking, deadlines, signals, full rings.

mod support;

use std::io::{IoSlice, IoSliceMut};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{Errno, Observer, Readiness, Socket, Woken};
use support::engine::FakeEngine;
use support::*;

#[test]
fn every_thread_that_waits_for_its_own_answers_gets_them() {
    const THREADS: usize = 20;
    const ROUNDS: usize = 150;
    let engine = FakeEngine::start();
    let session = engine.attach();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let socket = connect(session, ECHO_PORT).unwrap();
                for round in 0..ROUNDS {
                    let bytes = pattern(thread * ROUNDS + round, 1 + round % 40);
                    send_all(&socket, &bytes).unwrap();
                    assert_eq!(recv_exact(&socket, bytes.len()), bytes);
                }
            });
        }
    });
}

#[test]
fn threads_that_share_a_socket_lose_and_duplicate_nothing() {
    const EACH: usize = 40_000;
    let engine = FakeEngine::start();
    let socket = connect(engine.attach(), ECHO_PORT).unwrap();
    let counts = Mutex::new([0usize; 256]);
    std::thread::scope(|scope| {
        for value in 1..=3u8 {
            let socket = &socket;
            scope.spawn(move || {
                for _ in 0..EACH / 100 {
                    send_all(socket, &[value; 100]).unwrap();
                }
            });
        }
        for _ in 0..3 {
            let (socket, counts) = (&socket, &counts);
            scope.spawn(move || {
                let mut bytes = [0; 777];
                loop {
                    let result = socket.try_recv(&mut [IoSliceMut::new(&mut bytes)], false);
                    let mut counts = counts.lock().unwrap();
                    match result {
                        Ok(received) => {
                            for byte in &bytes[..received] {
                                counts[usize::from(*byte)] += 1;
                            }
                        }
                        Err(Errno::AGAIN) => {}
                        Err(errno) => panic!("{errno}"),
                    }
                    if counts.iter().sum::<usize>() == 3 * EACH {
                        return;
                    }
                    drop(counts);
                    let deadline = Instant::now() + Duration::from_millis(20);
                    let mut ready = || socket.readiness().contains(Readiness::IN);
                    let session = socket.session();
                    session
                        .wait(&[&**socket], &mut [], None, Some(deadline), &mut ready)
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(counts.lock().unwrap()[..5], [0, EACH, EACH, EACH, 0]);
}

/// Writes its name down, after a while in which somebody else may have written.
struct Slow {
    name: usize,
    began: mpsc::Sender<()>,
    told: Arc<Mutex<Vec<usize>>>,
}

impl Observer for Slow {
    fn on_ready(&self) {
        let _ = self.began.send(());
        let deadline = Instant::now() + Duration::from_millis(100);
        while self.name == 0
            && self.told.lock().expect("nobody panics").is_empty()
            && Instant::now() < deadline
        {
            std::thread::yield_now();
        }
        self.told.lock().expect("nobody panics").push(self.name);
    }
}

#[test]
fn events_are_told_in_order_whichever_threads_take_them() {
    let engine = FakeEngine::start();
    let session = engine.attach();
    let sockets = [0, 1].map(|_| connect(session, ECHO_PORT).unwrap());
    session.reap();
    let (told, (began, has_begun)) = (Arc::new(Mutex::new(Vec::new())), mpsc::channel());
    for (name, socket) in sockets.iter().enumerate() {
        let (began, told) = (began.clone(), Arc::clone(&told));
        socket.observe(1, Arc::new(Slow { name, began, told }));
    }
    let arrive = |socket: &client::TcpSocket| {
        socket.try_send(&[IoSlice::new(b"x")]).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !socket.readiness().contains(Readiness::IN) {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
    };
    arrive(&sockets[0]);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            while told.lock().unwrap().is_empty() {
                session.reap();
            }
        });
        has_begun.recv_timeout(Duration::from_secs(10)).unwrap();
        arrive(&sockets[1]);
        while told.lock().unwrap().len() < 2 {
            session.reap();
        }
        first.join().unwrap();
    });
    assert_eq!(told.lock().unwrap()[..2], [0, 1]);
}

#[test]
fn each_connection_is_accepted_by_one_of_several_threads() {
    const CONNECTIONS: usize = 60;
    let engine = FakeEngine::start();
    let session = engine.attach();
    let listener = listener(session, 80);
    let accepted = Mutex::new(Vec::new());
    let active = std::thread::scope(|scope| {
        for _ in 0..4 {
            let (listener, accepted) = (&listener, &accepted);
            scope.spawn(move || {
                loop {
                    if accepted.lock().unwrap().len() == CONNECTIONS {
                        return;
                    }
                    if let Some(one) = listener.try_accept().unwrap() {
                        accepted.lock().unwrap().push(one);
                        continue;
                    }
                    let deadline = Instant::now() + Duration::from_millis(20);
                    let mut ready = || listener.has_connection();
                    session
                        .wait(&[&**listener], &mut [], None, Some(deadline), &mut ready)
                        .unwrap();
                }
            });
        }
        let active: Vec<_> = (0..CONNECTIONS)
            .map(|_| connect(session, 80).unwrap())
            .collect();
        active
    });
    let accepted = accepted.into_inner().unwrap();
    let mut peers: Vec<_> = accepted.iter().map(|one| one.peer).collect();
    let mut locals: Vec<_> = active
        .iter()
        .map(|one| one.local_address().unwrap())
        .collect();
    peers.sort();
    locals.sort();
    assert_eq!(peers, locals);
}

#[test]
fn a_wait_ends_at_its_deadline_and_not_before() {
    let engine = FakeEngine::start();
    let socket = connect(engine.attach(), ECHO_PORT).unwrap();
    let start = Instant::now();
    let deadline = start + Duration::from_millis(30);
    let session = socket.session();
    let woken = session.wait(&[&*socket], &mut [], None, Some(deadline), &mut || false);
    assert_eq!(woken, Ok(Woken::TimedOut));
    assert!(start.elapsed() >= Duration::from_millis(30));
}

#[test]
fn a_wait_ends_when_a_descriptor_of_the_caller_has_news() {
    let engine = FakeEngine::start();
    let session = engine.attach();
    let bell = hostif::sync::doorbell::create().unwrap();
    hostif::sync::doorbell::ring(rustix::fd::AsFd::as_fd(&bell));
    let fd = rustix::fd::AsRawFd::as_raw_fd(&bell);
    let mut kernel: Vec<_> = (0..20)
        .map(|index| libc::pollfd {
            fd: if index == 19 { fd } else { -1 },
            events: 1,
            revents: 0,
        })
        .collect();
    let woken = session.wait(&[], &mut kernel, None, None, &mut || false);
    assert_eq!(woken, Ok(Woken::Kernel));
    assert_eq!(kernel[19].revents, libc::POLLIN);
}

#[test]
fn a_signal_ends_a_wait_unless_it_is_masked() {
    sys::handle_usr1();
    let engine = FakeEngine::start();
    let socket = connect(engine.attach(), ECHO_PORT).unwrap();
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        let socket = &socket;
        let waiter = scope.spawn(move || {
            send.send(sys::this_thread()).unwrap();
            let deadline = Some(Instant::now() + PATIENCE);
            let interrupted =
                socket
                    .session()
                    .wait(&[&**socket], &mut [], None, deadline, &mut || false);
            // With the signal blocked for the sleep only the deadline ends it.
            let mask = sys::mask_with_usr1();
            let deadline = Some(Instant::now() + Duration::from_millis(50));
            let masked =
                socket
                    .session()
                    .wait(&[&**socket], &mut [], Some(&mask), deadline, &mut || false);
            (interrupted, masked)
        });
        let thread = receive.recv().unwrap();
        while !waiter.is_finished() {
            sys::interrupt(thread);
            std::thread::yield_now();
        }
        let (interrupted, masked) = waiter.join().unwrap();
        assert_eq!(interrupted, Err(Errno::INTR));
        assert_eq!(masked, Ok(Woken::TimedOut));
    });
}

#[test]
fn an_engine_that_stalls_costs_would_block_and_no_byte() {
    let engine = FakeEngine::start();
    let socket = connect(engine.attach(), ECHO_PORT).unwrap();
    engine.pause(true);
    let mut sent = 0;
    // The ring of 16 fills before the window does.
    let refused = loop {
        match socket.try_send(&[IoSlice::new(&pattern(sent, 10))]) {
            Ok(bytes) => sent += bytes,
            Err(errno) => break errno,
        }
    };
    assert_eq!(refused, Errno::AGAIN);
    assert!(sent >= 160, "only {sent} bytes before the ring was full");
    assert!(sent <= 64 * 1024);
    engine.pause(false);
    assert!(recv_exact(&socket, sent) == pattern(0, sent));
}

#[test]
fn events_beyond_the_completion_ring_are_late_and_not_lost() {
    let engine = FakeEngine::start();
    let session = engine.attach();
    let sockets: Vec<_> = (0..40)
        .map(|_| connect(session, ECHO_PORT).unwrap())
        .collect();
    // The fast path takes nothing out of the completion ring of 16 entries.
    for round in 0..20 {
        for socket in &sockets {
            send_all(socket, &pattern(round, 10)).unwrap();
        }
    }
    for socket in &sockets {
        for round in 0..20 {
            assert_eq!(recv_exact(socket, 10), pattern(round, 10));
        }
    }
}
