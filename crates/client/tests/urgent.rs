//! Urgent data against a fake engine: where reads stop, what out of band gets, what poll says.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod support;

use std::io::{IoSlice, IoSliceMut};

use client::{Errno, Readiness, Socket, TcpSocket, WriteMode};
use support::engine::FakeEngine;
use support::*;

/// Two connected sockets.
fn pair(engine: &FakeEngine) -> (std::sync::Arc<TcpSocket>, std::sync::Arc<TcpSocket>) {
    let session = engine.attach();
    let listener = listener(session, 80);
    let near = connect(session, 80).unwrap();
    (near, accept(&listener).socket)
}

fn read(socket: &TcpSocket) -> Result<Vec<u8>, Errno> {
    let mut bytes = [0; 64];
    let len = socket.try_recv(&mut [IoSliceMut::new(&mut bytes)], false)?;
    Ok(bytes[..len].to_vec())
}

fn send(socket: &TcpSocket, bytes: &[u8], mode: WriteMode) {
    let sent = socket.try_send_as(&[IoSlice::new(bytes)], mode);
    assert_eq!(sent, Ok(bytes.len()));
}

#[test]
fn a_read_stops_at_the_mark_and_the_next_one_skips_the_urgent_byte() {
    let engine = FakeEngine::start();
    let (near, far) = pair(&engine);
    send(&near, b"abcX", WriteMode::Urgent);
    send(&near, b"def", WriteMode::Plain);
    wait_until(&[&far], || far.readable_bytes() == 7);
    assert!(far.readiness().contains(Readiness::PRI | Readiness::IN));
    assert!(!far.is_at_mark());
    assert_eq!(far.queued_bytes(), 3, "up to the mark");
    let short = far.take_at_once(&mut [IoSliceMut::new(&mut [0; 64])]);
    assert_eq!(short, None, "a mark lies ahead");
    assert_eq!(read(&far), Ok(b"abc".to_vec()));
    assert!(far.is_at_mark());
    assert_eq!(far.try_recv_urgent(true), Ok(b'X'));
    assert_eq!(far.try_recv_urgent(false), Ok(b'X'));
    assert_eq!(far.try_recv_urgent(false), Err(Errno::INVAL));
    assert!(far.is_at_mark(), "also when it was taken");
    assert!(!far.readiness().contains(Readiness::PRI));
    assert_eq!(read(&far), Ok(b"def".to_vec()));
    assert!(!far.is_at_mark());
}

#[test]
fn an_urgent_byte_alone_is_not_readable_in_line() {
    let engine = FakeEngine::start();
    let (near, far) = pair(&engine);
    send(&near, b"X", WriteMode::Urgent);
    wait_until(&[&far], || far.readiness().contains(Readiness::PRI));
    assert!(!far.readiness().contains(Readiness::IN));
    assert_eq!(far.queued_bytes(), 0);
    assert_eq!(far.readable_bytes(), 0);
    far.set_urgent_in_line(true);
    assert!(far.readiness().contains(Readiness::IN));
    assert_eq!(
        far.try_recv_urgent(false),
        Err(Errno::INVAL),
        "it is in line"
    );
    assert_eq!(read(&far), Ok(b"X".to_vec()));
}

#[test]
fn who_reads_past_the_mark_has_lost_the_urgent_byte() {
    let engine = FakeEngine::start();
    let (near, far) = pair(&engine);
    send(&near, b"X", WriteMode::Urgent);
    send(&near, b"rest", WriteMode::Plain);
    wait_until(&[&far], || far.readable_bytes() == 4);
    assert_eq!(read(&far), Ok(b"rest".to_vec()));
    assert_eq!(far.try_recv_urgent(false), Err(Errno::INVAL));
}

#[test]
fn a_newer_urgent_byte_makes_the_older_one_ordinary() {
    let engine = FakeEngine::start();
    let (near, far) = pair(&engine);
    send(&near, b"aX", WriteMode::Urgent);
    send(&near, b"bY", WriteMode::Urgent);
    wait_until(&[&far], || far.queued_bytes() == 3);
    assert_eq!(read(&far), Ok(b"aXb".to_vec()));
    assert_eq!(far.try_recv_urgent(false), Ok(b'Y'));
}

#[test]
fn what_was_received_out_of_band_does_not_come_in_line_after_a_newer_one() {
    let engine = FakeEngine::start();
    let (near, far) = pair(&engine);
    send(&near, b"X", WriteMode::Urgent);
    wait_until(&[&far], || far.readiness().contains(Readiness::PRI));
    assert_eq!(far.try_recv_urgent(false), Ok(b'X'));
    assert_eq!(read(&far), Err(Errno::AGAIN));
    send(&near, b"aY", WriteMode::Urgent);
    wait_until(&[&far], || far.readiness().contains(Readiness::PRI));
    assert_eq!(read(&far), Ok(b"a".to_vec()));
    assert_eq!(far.try_recv_urgent(false), Ok(b'Y'));
}

#[test]
fn figures_are_asked_of_the_engine() {
    let engine = FakeEngine::start();
    let (near, _far) = pair(&engine);
    let figures = near.figures().unwrap();
    assert_eq!((figures.state, figures.recovery), (1, 2));
    assert_eq!(figures.unacknowledged, client::Figures::WORDS as u64);
}
