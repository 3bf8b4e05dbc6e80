//! Sending and receiving allocate nothing.

mod support;

use client::Socket;
use std::io::{IoSlice, IoSliceMut};

use support::engine::FakeEngine;
use support::*;

#[global_allocator]
static ALLOCATOR: sys::Counting = sys::Counting;

#[test]
fn send_receive_and_readiness_allocate_nothing() {
    let engine = FakeEngine::start();
    let socket = connect(engine.attach(), ECHO_PORT).unwrap();
    let mut bytes = [0; 100];
    let before = sys::allocations();
    for _ in 0..1000 {
        assert_eq!(socket.try_send(&[IoSlice::new(&[7; 100])]), Ok(100));
        let mut received = 0;
        while received < 100 {
            match socket.try_recv(&mut [IoSliceMut::new(&mut bytes)], false) {
                Ok(part) => received += part,
                Err(client::Errno::AGAIN) => std::thread::yield_now(),
                Err(errno) => panic!("{errno}"),
            }
            let _ = socket.readiness();
        }
    }
    assert_eq!(sys::allocations() - before, 0);
}
