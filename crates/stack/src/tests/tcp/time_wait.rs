//! TIME-WAIT: the record, its reuse, its eviction; and the ports that run out.

use crate::tests::pair::*;
use crate::tests::peer::*;
use crate::*;
use ::tcp::{Instant, State};
use std::net::SocketAddrV4;
use wire::tcp::{Flags, Timestamps};

const NOW: Instant = Instant::from_us(1_000_000_000);

/// A server whose client at `port` has seen the server close first. Returns the server's next number.
fn closed_by_server(node: &mut Node<'_>, listener: ListenerId, port: u16) -> u32 {
    let next = node.handshake(NOW, ip(PEER), port, 80).unwrap();
    let owner = node.accept(listener).unwrap();
    node.close(NOW, owner);
    node.transmit(NOW);
    let fin = header(port, 80, 101, next.wrapping_add(1), Flags::ACK | Flags::FIN);
    node.deliver(NOW, &segment(ip(PEER), ip(ME), &fin, &[]));
    let last = segments(&node.transmit(NOW));
    assert_eq!(
        (last.len(), last[0].1.flags, last[0].1.ack),
        (1, Flags::ACK, 102),
        "the FIN is acknowledged"
    );
    assert!(node.is_released(owner));
    next.wrapping_add(1)
}

fn server<R>(time_waits: usize, test: impl FnOnce(&mut Node<'_>, ListenerId) -> R) -> R {
    let mut memory = HeapTables::new(64, 4, time_waits).unwrap();
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.knows(NOW, PEER);
    node.transmit(NOW);
    let listener = node.listen(80, 16);
    test(&mut node, listener)
}

#[test]
fn a_repeated_fin_is_acknowledged_from_the_record() {
    server(8, |node, listener| {
        let next = closed_by_server(node, listener, 5_000);
        assert_eq!(
            (
                node.stack.connections().count(),
                node.stack.time_waits().count()
            ),
            (0, 1)
        );
        let fin = segment(
            ip(PEER),
            ip(ME),
            &header(5_000, 80, 101, next, Flags::ACK | Flags::FIN),
            &[],
        );
        node.deliver(NOW, &fin);
        let replies = segments(&node.transmit(NOW));
        assert_eq!(
            (replies[0].1.flags, replies[0].1.seq, replies[0].1.ack),
            (Flags::ACK, next, 102)
        );
        assert_eq!(
            (replies[0].1.source_port, replies[0].1.destination_port),
            (80, 5_000)
        );
        // Two minimum lifetimes after the last FIN it is forgotten.
        let ends = node.stack.time_waits().next().unwrap().until;
        node.timers(ends);
        assert_eq!(node.stack.time_waits().count(), 0);
        node.deliver(ends, &fin);
        assert_eq!(segments(&node.transmit(ends))[0].1.flags, Flags::RST);
    });
}

#[test]
fn a_later_syn_reopens_and_an_earlier_one_does_not() {
    server(8, |node, listener| {
        let next = closed_by_server(node, listener, 5_000);
        let syn = |seq| {
            segment(
                ip(PEER),
                ip(ME),
                &header(5_000, 80, seq, 0, Flags::SYN),
                &[],
            )
        };
        node.deliver(NOW, &syn(50));
        assert_eq!(
            segments(&node.transmit(NOW))[0].1.flags,
            Flags::ACK,
            "an old duplicate"
        );
        node.deliver(NOW, &syn(1_000));
        let syn_ack = segments(&node.transmit(NOW)).remove(0).1;
        assert_eq!(
            (syn_ack.flags, syn_ack.ack),
            (Flags::SYN | Flags::ACK, 1_001)
        );
        assert!(
            ::tcp::SeqNumber(syn_ack.seq).is_after(::tcp::SeqNumber(next)),
            "RFC 9293 §3.6.1"
        );
        assert_eq!(
            (
                node.stack.time_waits().count(),
                node.stack.counters().time_wait_recycled
            ),
            (0, 1)
        );
    });
}

#[test]
fn a_reset_of_the_next_number_ends_time_wait_unless_it_is_protected() {
    for (number, is_protected, left) in [(101, false, 1), (102, true, 1), (102, false, 0)] {
        server(8, |node, listener| {
            node.stack.ip.link.config.protects_time_wait = is_protected;
            let next = closed_by_server(node, listener, 5_000);
            let reset = header(5_000, 80, number, next, Flags::RST);
            node.deliver(NOW, &segment(ip(PEER), ip(ME), &reset, &[]));
            let case = (number, is_protected);
            assert_eq!(node.stack.time_waits().count(), left, "{case:?}");
        });
    }
}

#[test]
fn without_a_listener_time_wait_stays() {
    server(8, |node, listener| {
        closed_by_server(node, listener, 5_000);
        node.stack
            .stop_listening(NOW, listener, &mut node.host)
            .unwrap();
        let mut syn = header(5_000, 80, 1_000, 0, Flags::SYN);
        syn.options.timestamps = Some(Timestamps { value: 1, echo: 0 });
        node.deliver(NOW, &segment(ip(PEER), ip(ME), &syn, &[]));
        assert_eq!(node.stack.time_waits().count(), 1);
    });
}

#[test]
fn the_oldest_record_makes_room_in_a_full_table() {
    server(3, |node, listener| {
        for port in 1..=5 {
            closed_by_server(node, listener, port);
        }
        let mut ports: Vec<u16> = node
            .stack
            .time_waits()
            .map(|row| row.remote.port())
            .collect();
        ports.sort_unstable();
        assert_eq!(
            (ports, node.stack.counters().time_wait_overflows),
            (vec![3, 4, 5], 2)
        );
        node.timers(NOW + ms(61_000));
        assert_eq!(node.stack.time_waits().count(), 0);
        assert_eq!(node.stack.tcp.ports.users(80), 0);
    });
}

#[test]
fn a_port_in_time_wait_is_not_given_to_the_same_destination() {
    let mut memory = memory(8, 8);
    let mut pair = Pair::new(&mut memory, 1);
    let listener = pair.nodes[1].listen(80, 5);
    let remote = SocketAddrV4::new(ip(2), 80);
    let client = pair.nodes[0]
        .connect_from(pair.now, Some(40_000), remote)
        .unwrap();
    assert_eq!(
        pair.nodes[0].connect_from(pair.now, Some(40_000), remote),
        Err(Error::AddressNotAvailable)
    );
    pair.run(ms(20));
    let server = pair.nodes[1].accept(listener).unwrap();
    pair.nodes[0].close(pair.now, client);
    pair.run(ms(20));
    pair.nodes[1].close(pair.now, server);
    pair.run(ms(100));
    assert_eq!(pair.nodes[0].stack.time_waits().count(), 1);
    assert_eq!(
        pair.nodes[0].connect_from(pair.now, Some(40_000), remote),
        Err(Error::AddressNotAvailable)
    );
    let elsewhere = SocketAddrV4::new(ip(2), 81);
    assert!(
        pair.nodes[0]
            .connect_from(pair.now, Some(40_000), elsewhere)
            .is_ok()
    );
    // With timestamps it need not end by itself (RFC 6191).
    pair.run(ms(1_000));
    let again = pair.nodes[0]
        .connect_from(pair.now, Some(40_000), remote)
        .unwrap();
    pair.run(ms(20));
    assert_eq!(pair.nodes[0].view(again).state, State::Established);
    let stack = &pair.nodes[0].stack;
    assert_eq!(
        (
            stack.time_waits().count(),
            stack.counters().time_wait_recycled
        ),
        (0, 1)
    );
}

#[test]
fn ports_run_out_per_destination() {
    let mut memory = HeapTables::new(128, 4, 8).unwrap();
    let mut stack = Stack::new(
        memory.tables(),
        Config {
            ephemeral_ports: (40_000, 40_063),
            ..config(ME)
        },
    )
    .unwrap();
    configure(&mut stack, NOW, ME);
    let mut node = Node::with(stack, Shared::default());
    node.programs.borrow_mut().refused_ports = vec![40_001, 40_002];
    node.listen(40_003, 1);
    let remote = SocketAddrV4::new(ip(PEER), 80);
    let owners: Vec<u64> = (0..61)
        .map(|_| node.connect_from(NOW, None, remote).unwrap())
        .collect();
    assert_eq!(
        node.connect_from(NOW, None, remote),
        Err(Error::AddressNotAvailable)
    );
    assert!(
        node.connect_from(NOW, None, SocketAddrV4::new(ip(PEER), 81))
            .is_ok(),
        "another destination"
    );
    node.close(NOW, owners[7]);
    node.transmit(NOW);
    assert!(node.connect_from(NOW, None, remote).is_ok());
}

#[test]
fn unreachable_destinations_are_refused_at_once() {
    let mut memory = HeapTables::new(8, 4, 8).unwrap();
    let mut node = Node::new(memory.tables(), ME, NOW);
    for address in [
        ip(255),
        std::net::Ipv4Addr::BROADCAST,
        std::net::Ipv4Addr::new(224, 1, 1, 1),
    ] {
        let result = node.connect_from(NOW, None, SocketAddrV4::new(address, 80));
        assert_eq!(result, Err(Error::NetworkUnreachable), "{address}");
    }
    let default = *node.stack.routes().last().unwrap();
    node.stack.remove_route(&default).unwrap();
    let far = SocketAddrV4::new(std::net::Ipv4Addr::new(8, 8, 8, 8), 80);
    assert_eq!(
        node.connect_from(NOW, None, far),
        Err(Error::NetworkUnreachable)
    );
    assert_eq!(
        node.connect_from(NOW, Some(0), far),
        Err(Error::InvalidArgument)
    );
}
