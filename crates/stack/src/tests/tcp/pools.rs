//! Blocks for ranges of data beyond many holes and for what is in flight: lent, given back, kept over a restart.

use crate::tests::pair::*;
use crate::tests::peer::*;
use crate::*;
use ::tcp::{Duration, Instant};
use wire::tcp::Flags;

const NOW: Instant = Instant::from_us(1_000_000_000);
/// Bytes of which every second one arrives: far more holes than a row can say.
const BYTES: u32 = 400;

/// Byte `n` of what the peer at `port` sends.
fn byte(node: &mut Node<'_>, port: u16, next: u32, n: u32) {
    let header = header(port, 80, 101 + n, next, Flags::ACK | Flags::PSH);
    let frame = segment(
        ip(PEER),
        ip(ME),
        &header,
        &pattern(1, 1_000)[n as usize..][..1],
    );
    node.deliver(NOW, &frame);
    node.transmit(NOW);
}

fn every_second(node: &mut Node<'_>, port: u16, next: u32) {
    for n in (1..BYTES).step_by(2) {
        byte(node, port, next, n);
    }
}

fn fill(node: &mut Node<'_>, port: u16, next: u32) {
    for n in (0..BYTES).step_by(2) {
        byte(node, port, next, n);
    }
}

#[test]
fn nothing_beyond_many_holes_is_sent_twice_and_the_block_is_there_for_the_next() {
    let mut memory = HeapTables::new(1, 4, 8).unwrap();
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.knows(NOW, PEER);
    let listener = node.listen(80, 5);
    for port in 1..4 {
        let next = node.handshake(NOW, ip(PEER), port, 80).unwrap();
        let owner = node.accept(listener).unwrap();
        every_second(&mut node, port, next);
        assert_eq!(node.view(owner).readable_end, 0);
        if port != 2 {
            fill(&mut node, port, next);
            assert_eq!(node.view(owner).readable_end, u64::from(BYTES));
            node.read(NOW, owner);
            assert!(node.received(owner) == pattern(1, 1_000)[..BYTES as usize]);
        }
        // The second one ends with its block.
        node.abort(NOW, owner);
        node.transmit(NOW);
        assert!(node.is_released(owner));
    }
}

#[test]
fn what_lies_beyond_many_holes_survives_a_restart() {
    let mut memory = HeapTables::new(4, 4, 8).unwrap();
    let programs = Shared::default();
    let (next, owner) = {
        let stack = Stack::new(memory.tables(), config(ME)).unwrap();
        let mut node = Node::with(stack, programs.clone());
        configure(&mut node.stack, NOW, ME);
        node.knows(NOW, PEER);
        let listener = node.listen(80, 5);
        let next = node.handshake(NOW, ip(PEER), 1, 80).unwrap();
        let owner = node.accept(listener).unwrap();
        every_second(&mut node, 1, next);
        (next, owner)
    };
    let (mut stack, _) = Stack::rebuild(memory.tables(), config(ME)).unwrap();
    configure(&mut stack, NOW, ME);
    let mut node = Node::with(stack, programs);
    node.knows(NOW, PEER);
    // Another connection must not get the block that is taken.
    let other = node.handshake(NOW, ip(PEER), 2, 80).unwrap();
    every_second(&mut node, 2, other);
    fill(&mut node, 1, next);
    assert_eq!(node.view(owner).readable_end, u64::from(BYTES));
    node.read(NOW, owner);
    assert!(node.received(owner) == pattern(1, 1_000)[..BYTES as usize]);
}

/// The connection of `owner` sends a segment in each of nine milliseconds: more runs than a row has.
fn send_for_long(node: &mut Node<'_>, owner: u64) {
    for ms in 0..9 {
        let now = NOW + Duration::from_ms(ms);
        let segments = usize::try_from(ms).unwrap() + 1;
        assert!(node.write(now, owner, &pattern(1, 536 * segments)));
        assert_eq!(node.transmit(now).len(), 1, "{ms}");
    }
}

#[test]
fn a_long_flight_has_a_block_that_the_next_connection_gets() {
    let mut memory = HeapTables::new(1, 4, 8).unwrap();
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.knows(NOW, PEER);
    let listener = node.listen(80, 5);
    for port in 1..4 {
        node.handshake(NOW, ip(PEER), port, 80).unwrap();
        let owner = node.accept(listener).unwrap();
        send_for_long(&mut node, owner);
        assert!(node.stack.tcp.flights.free.is_empty());
        node.abort(NOW, owner);
        node.transmit(NOW);
        assert!(node.is_released(owner));
        assert_eq!(node.stack.tcp.flights.free, [0]);
    }
}

#[test]
fn a_long_flight_keeps_its_block_over_a_restart() {
    let mut memory = HeapTables::new(4, 4, 8).unwrap();
    let programs = Shared::default();
    let owner = {
        let stack = Stack::new(memory.tables(), config(ME)).unwrap();
        let mut node = Node::with(stack, programs.clone());
        configure(&mut node.stack, NOW, ME);
        node.knows(NOW, PEER);
        let listener = node.listen(80, 5);
        // One that is gone again, so that a block is free.
        for port in 1..3 {
            node.handshake(NOW, ip(PEER), port, 80).unwrap();
        }
        let owners = [1, 2].map(|_| node.accept(listener).unwrap());
        for owner in owners {
            send_for_long(&mut node, owner);
        }
        node.abort(NOW, owners[0]);
        node.transmit(NOW);
        owners[1]
    };
    let (stack, _) = Stack::rebuild(memory.tables(), config(ME)).unwrap();
    assert_eq!(stack.tcp.flights.free, [0]);
    let node = Node::with(stack, programs);
    assert_eq!(node.view(owner).acknowledged, 0);
}
