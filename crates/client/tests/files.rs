//! Files named to a fake engine: what is sent from them, and whose they are.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod support;

use std::io::IoSlice;

use client::{Errno, Readiness, SharedFile, TcpSocket};
use rustix::fd::{AsFd, OwnedFd};
use support::engine::FakeEngine;
use support::process::EngineProcess;
use support::*;

fn file(bytes: &[u8]) -> OwnedFd {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create(c"file", flags).unwrap();
    assert_eq!(rustix::io::pwrite(&file, bytes, 0), Ok(bytes.len()));
    file
}

fn send_file(socket: &TcpSocket, file: &SharedFile, mut offset: u64, end: u64) {
    while offset < end {
        let left = usize::try_from(end - offset).unwrap();
        match socket.send_file(file, offset, left) {
            Ok(sent) => offset += sent as u64,
            Err(Errno::AGAIN) => wait_for(socket, Readiness::OUT),
            Err(errno) => panic!("{errno}"),
        }
    }
}

#[test]
fn header_file_and_trailer_come_back_in_order_through_small_windows() {
    const LEN: usize = 700_001;
    let engine = FakeEngine::start();
    let session = engine.attach();
    let socket = connect(session, ECHO_PORT).unwrap();
    let content = pattern(0, LEN);
    let file = file(&content);
    let shared = socket.share_file(file.as_fd()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            send_all(&socket, b"header").unwrap();
            send_file(&socket, &shared, 1, LEN as u64);
            send_all(&socket, b"trailer").unwrap();
        });
        assert_eq!(recv_exact(&socket, 6), b"header");
        assert!(recv_exact(&socket, LEN - 1) == content[1..]);
        assert_eq!(recv_exact(&socket, 7), b"trailer");
    });
}

#[test]
fn a_full_window_is_eagain_and_tells_when_there_is_room_again() {
    let engine = FakeEngine::start();
    let session = engine.attach();
    let socket = connect(session, ECHO_PORT).unwrap();
    let shared = socket
        .share_file(file(&pattern(0, 200_000)).as_fd())
        .unwrap();
    engine.pause(true);
    assert_eq!(socket.send_capacity_bytes(), 65_536);
    assert_eq!(socket.send_file(&shared, 0, 0), Ok(0));
    assert_eq!(socket.send_file(&shared, 0, 200_000), Ok(65_536));
    assert_eq!(socket.send_capacity_bytes(), 0);
    assert_eq!(socket.send_file(&shared, 65_536, 1), Err(Errno::AGAIN));
    assert_eq!(socket.try_send(&[IoSlice::new(b"x")]), Err(Errno::AGAIN));
    engine.pause(false);
    wait_for(&socket, Readiness::OUT);
    assert!(recv_exact(&socket, 65_536) == pattern(0, 65_536));
    let beyond = i64::MAX.unsigned_abs();
    assert_eq!(socket.send_file(&shared, beyond, 1), Err(Errno::OVERFLOW));
}

#[test]
#[ignore = "the engine process of the other tests"]
fn engine_process() {
    process::serve();
}

#[test]
fn a_file_of_the_parent_is_no_file_of_the_child() {
    let engine = EngineProcess::start();
    let session = engine.attach();
    let socket = connect(session, ECHO_PORT).unwrap();
    let file = file(b"from a file");
    let shared = socket.share_file(file.as_fd()).unwrap();
    assert!(shared.is_current());
    let child = sys::fork(session, || {
        assert!(!shared.is_current());
        assert_eq!(socket.send_file(&shared, 0, 4), Err(Errno::STALE));
        let own = socket.share_file(file.as_fd()).unwrap();
        assert_eq!(socket.send_file(&own, 5, 6), Ok(6));
        drop(own);
    });
    assert_eq!(sys::join(child), Some(0));
    assert_eq!(recv_exact(&socket, 6), b"a file");
    // The fake engine checks that what is given back is there, so twice would fail here.
    assert_eq!(socket.send_file(&shared, 0, 4), Ok(4));
    drop(shared);
    assert_eq!(recv_exact(&socket, 4), b"from");
}
