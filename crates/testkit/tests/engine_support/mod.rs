//! Two engines on one wire, of one core or of several, each on a thread of this process, and what programs do with the client.

#![allow(dead_code)] // each test binary uses a part of it

pub mod process;

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{Awaited, Errno, Readiness, Session, Socket, State, TcpSocket, Woken};
use hostif::Steering;
use hostif::control::{QueryKind, Reply, Request};
use netem::Bundle;
use nic::Driver;
use nic::wire::{Config as WireConfig, WireEnd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use rustix::thread::Pid;

/// No test waits longer for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The engines' addresses.
pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 9, 1, 1), Ipv4Addr::new(10, 9, 1, 2)];

/// A running engine; it ends when dropped.
pub struct EngineThread {
    pub name: String,
    /// Its thread's number.
    pub thread: Pid,
    stop: OwnedFd,
    join: Option<JoinHandle<()>>,
}

impl EngineThread {
    fn start(queues: Vec<Box<dyn Driver>>, steering: Steering, address: Ipv4Addr) -> EngineThread {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("@shunt/testkit/{}/{number}", std::process::id());
        let own = engine::Address {
            address: address.into(),
            prefix_len: 24,
        };
        let config = engine::Config {
            name: name.clone(),
            hold_idle_latency: false,
            ..engine::Config::new("test", "wire", vec![own])
        };
        let engine = engine::Engine::start(config, steering, queues).unwrap();
        let stop = hostif::sync::doorbell::create().unwrap();
        let stopped = stop.try_clone().unwrap();
        let (send, receive) = mpsc::channel();
        let join = std::thread::spawn(move || {
            send.send(rustix::thread::gettid()).unwrap();
            engine.run(stopped.as_fd()).unwrap();
        });
        EngineThread {
            name,
            thread: receive.recv_timeout(PATIENCE).unwrap(),
            stop,
            join: Some(join),
        }
    }

    /// Asks for the engine's own account, without being a program.
    pub fn status(&self) -> serde_json::Value {
        ask_status(&dial(&self.name))
    }

    /// As `status`, of each core.
    pub fn status_of_cores(&self) -> Vec<serde_json::Value> {
        let first = dial(&self.name);
        let status = ask_status(&first);
        let cores = u16::try_from(status["cores"].as_u64().unwrap()).unwrap();
        let other = |core| {
            let join = Request::Join { core }.encode();
            hostif::control::send(first.as_fd(), &join, &[]).unwrap();
            let received = hostif::control::receive(first.as_fd(), RecvFlags::empty()).unwrap();
            assert_eq!(Reply::decode(&received.bytes), Ok(Reply::Joined));
            let ours = received.descriptors.into_iter().next().unwrap();
            sockopt::set_socket_timeout(&ours, Timeout::Recv, Some(PATIENCE)).unwrap();
            ask_status(&ours)
        };
        core::iter::once(status)
            .chain((1..cores).map(other))
            .collect()
    }

    /// Waits until no core holds anything of any program.
    pub fn wait_empty(&self) {
        let fields = ["programs", "sockets", "connections", "listeners", "regions"];
        self.wait_for_none_of(&fields);
    }

    /// As `wait_empty`, with programs that stay attached.
    pub fn wait_no_sockets(&self) {
        self.wait_for_none_of(&["sockets", "connections", "listeners"]);
    }

    fn wait_for_none_of(&self, fields: &[&str]) {
        testkit::wait_for("empty engine", PATIENCE, || {
            let cores = self.status_of_cores();
            let mut held = cores
                .iter()
                .flat_map(|core| fields.iter().map(|field| &core[*field]));
            held.all(|count| count.as_u64() == Some(0))
        });
    }
}

fn ask_status(channel: &OwnedFd) -> serde_json::Value {
    let kind = QueryKind::Status;
    hostif::control::send(channel.as_fd(), &Request::Query { kind }.encode(), &[]).unwrap();
    let received = hostif::control::receive(channel.as_fd(), RecvFlags::empty()).unwrap();
    assert!(matches!(Reply::decode(&received.bytes), Ok(Reply::Report)));
    let mut text = vec![0; 65_536];
    let len = rustix::io::pread(&received.descriptors[0], &mut text[..], 0).unwrap();
    serde_json::from_slice(&text[..len]).unwrap()
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        hostif::sync::doorbell::ring(self.stop.as_fd());
        let ended = self.join.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

/// A control channel on which no answer is awaited for ever.
pub fn dial(name: &str) -> OwnedFd {
    let channel = hostif::control::connect(name).unwrap();
    sockopt::set_socket_timeout(&channel, Timeout::Recv, Some(PATIENCE)).unwrap();
    channel
}

/// Two engines of one core.
pub fn engines() -> [EngineThread; 2] {
    let (left, right) = WireEnd::pair(&WireConfig::default()).unwrap();
    [
        EngineThread::start(vec![Box::new(left)], Steering::SINGLE, ADDRESSES[0]),
        EngineThread::start(vec![Box::new(right)], Steering::SINGLE, ADDRESSES[1]),
    ]
}

/// Two engines of several cores.
pub fn engines_of_cores(cores: [u16; 2]) -> [EngineThread; 2] {
    let steering = [0, 1].map(|side: usize| Steering {
        cores: cores[side],
        key: 7 + u32::from(cores[side]),
    });
    // What a side sends is steered as the other side's device would.
    let towards = |side: usize| -> netem::bundle::Steer {
        Arc::new(move |headers| engine::core_of_frame(steering[side], headers))
    };
    let steer = [towards(1), towards(0)];
    let sides = Bundle::pair(&WireConfig::default(), cores, steer).unwrap();
    let mut sides = sides.into_iter();
    [0, 1].map(|side: usize| {
        let boxed = |queue| Box::new(queue) as Box<dyn Driver>;
        let queues = sides.next().unwrap().into_iter().map(boxed).collect();
        EngineThread::start(queues, steering[side], ADDRESSES[side])
    })
}

fn kernel_socket() -> OwnedFd {
    rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap()
}

/// A kernel socket that holds a free port.
pub fn backing() -> OwnedFd {
    let fd = kernel_socket();
    rustix::net::bind(&fd, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).unwrap();
    fd
}

/// A listening socket on the engine with that address.
pub fn listener(session: &'static Session, address: Ipv4Addr) -> (Arc<TcpSocket>, SocketAddr) {
    let backing = backing();
    let name = SocketAddr::try_from(rustix::net::getsockname(&backing).unwrap()).unwrap();
    let socket = TcpSocket::open(session, backing.as_fd()).unwrap();
    let local = SocketAddr::from((address, name.port()));
    socket.bind(local).unwrap();
    socket.listen(backing.as_fd(), 1_024).unwrap();
    (socket, local)
}

/// Waits for a condition on some sockets.
pub fn wait_until(sockets: &[&TcpSocket], mut ready: impl FnMut() -> bool) {
    let deadline = Some(Instant::now() + PATIENCE);
    let session = sockets[0].session();
    let sockets: Vec<&dyn Awaited> = sockets.iter().map(|one| *one as &dyn Awaited).collect();
    loop {
        match session.wait(&sockets, &mut [], None, deadline, &mut ready) {
            Ok(Woken::Ready) => return,
            Ok(Woken::TimedOut) => panic!("the condition never held"),
            Ok(Woken::Kernel) | Err(Errno::INTR) => {}
            Err(errno) => panic!("waiting failed: {errno}"),
        }
    }
}

pub fn wait_for(socket: &TcpSocket, wanted: Readiness) {
    wait_until(&[socket], || socket.readiness().intersects(wanted));
}

/// Starts to connect.
pub fn begin_connect(session: &'static Session, remote: SocketAddr) -> Arc<TcpSocket> {
    let backing = kernel_socket();
    session.bind_towards(backing.as_fd(), remote).unwrap();
    let local = SocketAddr::try_from(rustix::net::getsockname(&backing).unwrap()).unwrap();
    let socket = TcpSocket::open_towards(session, backing.as_fd(), local, remote).unwrap();
    socket.connect(remote, Some(local)).unwrap();
    socket
}

/// Connects and waits for the outcome.
pub fn connect(session: &'static Session, remote: SocketAddr) -> Result<Arc<TcpSocket>, Errno> {
    let socket = begin_connect(session, remote);
    wait_until(&[&socket], || socket.state() != State::Connecting);
    match socket.take_error() {
        Some(errno) => Err(errno),
        None => Ok(socket),
    }
}

pub fn accept(listener: &TcpSocket) -> Arc<TcpSocket> {
    loop {
        if let Some(accepted) = listener.try_accept().unwrap() {
            return accepted.socket;
        }
        wait_for(listener, Readiness::IN);
    }
}

pub fn send_all(socket: &TcpSocket, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match socket.try_send(&[IoSlice::new(bytes)]) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(Errno::AGAIN) => wait_for(socket, Readiness::OUT),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

pub fn recv_some(socket: &TcpSocket, bytes: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match socket.try_recv(&mut [IoSliceMut::new(bytes)], false) {
            Err(Errno::AGAIN) => wait_for(socket, Readiness::IN),
            result => return result,
        }
    }
}

pub fn recv_exact(socket: &TcpSocket, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut done = 0;
    while done < len {
        let received = recv_some(socket, &mut bytes[done..]).unwrap();
        assert_ne!(received, 0, "the stream ended after {done} of {len} bytes");
        done += received;
    }
    bytes
}

/// Bytes that differ at every position of a window.
pub fn pattern(start: usize, len: usize) -> Vec<u8> {
    (start..start + len)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0])
        .collect()
}
