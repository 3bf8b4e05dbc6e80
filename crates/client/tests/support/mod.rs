//! What the tests of this folder share: a fake engine, helpers that wait on conditions, and the unsafe.
// Each test binary uses a part; and what helpers of tests unwrap is the test's failure.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

pub mod engine;
pub mod process;
pub mod sys;

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Awaited, Errno, Readiness, Session, Socket, State, TcpSocket, Woken};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// No test waits longer for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The fake engine's address.
pub const ENGINE_IP: [u8; 4] = [10, 0, 0, 1];
/// Where the fake engine sends everything back.
pub const ECHO_PORT: u16 = 7;
/// As the echo, and a reset follows each time.
pub const RESETTING_PORT: u16 = 8;

pub fn address(port: u16) -> SocketAddr {
    SocketAddr::from((ENGINE_IP, port))
}

pub fn backing() -> OwnedFd {
    rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap()
}

pub fn open(session: &'static Session) -> Arc<TcpSocket> {
    TcpSocket::open(session, backing().as_fd()).unwrap()
}

/// Waits for a condition on some sockets, and fails the test if it never holds.
pub fn wait_until(sockets: &[&TcpSocket], mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let session = sockets[0].session();
    let sockets: Vec<&dyn Awaited> = sockets.iter().map(|one| *one as &dyn Awaited).collect();
    loop {
        match session.wait(&sockets, &mut [], None, Some(deadline), &mut ready) {
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

/// Connects and waits for the outcome.
pub fn connect(session: &'static Session, port: u16) -> Result<Arc<TcpSocket>, Errno> {
    let socket = open(session);
    socket.connect(address(port), None)?;
    wait_until(&[&socket], || socket.state() != State::Connecting);
    match socket.take_error() {
        Some(errno) => Err(errno),
        None => Ok(socket),
    }
}

pub fn listener(session: &'static Session, port: u16) -> Arc<TcpSocket> {
    let backing = backing();
    let socket = TcpSocket::open(session, backing.as_fd()).unwrap();
    assert_eq!(socket.bind(address(port)).unwrap(), address(port));
    socket.listen(backing.as_fd(), 128).unwrap();
    socket
}

pub fn accept(listener: &TcpSocket) -> client::Accepted {
    loop {
        if let Some(accepted) = listener.try_accept().unwrap() {
            return accepted;
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
        // The short way where it takes something, for a half of all lengths.
        let is_short = bytes.len() % 2 == 1;
        let taken = is_short.then(|| socket.take_at_once(&mut [IoSliceMut::new(bytes)]));
        if let Some(taken) = taken.flatten() {
            return Ok(taken);
        }
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
