//! ARP: who is answered, who is asked, who is believed.

use crate::tests::pair::*;
use crate::tests::peer::{ME, PEER};
use crate::*;
use ::tcp::{ConnectionError, Instant, State};
use std::net::Ipv4Addr;
use wire::arp::{Operation, Packet};
use wire::ethernet::{Address, EtherType, Header};

const EARLIER: Instant = Instant::from_us(990_000_000);
const NOW: Instant = Instant::from_us(1_000_000_000);

pub fn arp(
    operation: Operation,
    sender: (Address, Ipv4Addr),
    target: (Address, Ipv4Addr),
) -> Flying {
    let mut bytes = vec![0; 60];
    let destination = if target.0 == Address([0; 6]) {
        Address::BROADCAST
    } else {
        target.0
    };
    Header {
        destination,
        source: sender.0,
        ethertype: EtherType::ARP,
    }
    .emit(&mut bytes);
    let packet = Packet {
        operation,
        sender_hardware: sender.0,
        sender_protocol: sender.1,
        target_hardware: target.0,
        target_protocol: target.1,
    };
    packet.emit(&mut bytes[14..]);
    Flying {
        bytes,
        partial: false,
        interface: NIC.0,
        segment_bytes: None,
    }
}

fn request(from: u8, sender: Ipv4Addr, target: Ipv4Addr) -> Flying {
    arp(
        Operation::REQUEST,
        (hardware(from), sender),
        (Address([0; 6]), target),
    )
}

fn reply(from: u8, sender: Ipv4Addr) -> Flying {
    arp(
        Operation::REPLY,
        (hardware(from), sender),
        (hardware(ME), ip(ME)),
    )
}

fn parsed(frames: &[Flying]) -> Vec<(Header, Packet)> {
    let arps = frames
        .iter()
        .map(|frame| Header::parse(&frame.bytes).unwrap());
    arps.filter(|(header, _)| header.ethertype == EtherType::ARP)
        .map(|(header, bytes)| (header, Packet::parse(bytes).unwrap()))
        .collect()
}

fn with_node<R>(test: impl FnOnce(&mut Node<'_>) -> R) -> R {
    let mut memory = HeapTables::new(2_048, 4, 4).unwrap();
    let mut node = Node::new(memory.tables(), ME, EARLIER);
    test(&mut node)
}

/// Lets the announcements pass.
fn quiet(node: &mut Node<'_>) {
    for now in [EARLIER, EARLIER + ms(2_000)] {
        node.timers(now);
        node.transmit(now);
    }
}

/// The host has a second address, in a network of 65,536, and a connection to the peer.
fn meet_peer_on_wide_link(node: &mut Node<'_>) {
    quiet(node);
    let address = InterfaceAddress {
        address: Ipv4Addr::new(10, 1, 0, 1).into(),
        prefix_len: 16,
    };
    node.stack.add_address(NOW, NIC, address).unwrap();
    node.connect(NOW, ip(PEER), 80);
    node.transmit(NOW);
    node.deliver(NOW, &reply(PEER, ip(PEER)));
}

fn hardware_of(node: &Node<'_>, now: Instant, n: u8) -> Option<Option<Address>> {
    node.stack
        .neighbours(now)
        .find(|neighbour| neighbour.address == ip(n))
        .map(|neighbour| neighbour.hardware)
}

#[test]
fn an_address_is_announced_twice() {
    with_node(|node| {
        let mut announced = Vec::new();
        for second in 0..10 {
            let now = EARLIER + ms(second * 1_000);
            node.timers(now);
            for (header, packet) in parsed(&node.transmit(now)) {
                assert_eq!(header.destination, Address::BROADCAST);
                assert_eq!(
                    (packet.sender_protocol, packet.target_protocol),
                    (ip(ME), ip(ME))
                );
                announced.push(second);
            }
        }
        assert_eq!(announced, [0, 2]);
    });
}

#[test]
fn a_request_for_us_is_answered_and_the_asker_remembered() {
    with_node(|node| {
        quiet(node);
        node.deliver(NOW, &request(PEER, ip(PEER), ip(ME)));
        let replies = parsed(&node.transmit(NOW));
        assert_eq!(replies.len(), 1);
        let (header, packet) = replies[0];
        assert_eq!(
            (header.destination, packet.operation),
            (hardware(PEER), Operation::REPLY)
        );
        assert_eq!(
            (packet.sender_hardware, packet.sender_protocol),
            (hardware(ME), ip(ME))
        );
        assert_eq!(
            (packet.target_hardware, packet.target_protocol),
            (hardware(PEER), ip(PEER))
        );
        assert_eq!(hardware_of(node, NOW, PEER), Some(Some(hardware(PEER))));
        // A request for somebody else teaches nothing, and is not ours to answer.
        node.deliver(NOW, &request(8, ip(8), ip(7)));
        assert!(parsed(&node.transmit(NOW)).is_empty());
        assert_eq!(hardware_of(node, NOW, 8), None);
        // A probe (RFC 5227) is answered and not remembered.
        node.deliver(NOW, &request(8, Ipv4Addr::UNSPECIFIED, ip(ME)));
        assert_eq!(parsed(&node.transmit(NOW)).len(), 1);
        assert_eq!(node.stack.neighbours(NOW).count(), 1);
    });
}

#[test]
fn implausible_senders_are_not_believed() {
    with_node(|node| {
        quiet(node);
        let off_link = Ipv4Addr::new(172, 16, 0, 1);
        node.deliver(NOW, &request(8, off_link, ip(ME)));
        node.deliver(NOW, &request(8, ip(255), ip(ME)));
        node.deliver(
            NOW,
            &arp(
                Operation::REQUEST,
                (Address::BROADCAST, ip(8)),
                (Address([0; 6]), ip(ME)),
            ),
        );
        let mut relayed = request(8, ip(8), ip(ME));
        relayed.bytes[6..12].copy_from_slice(&hardware(7).0);
        node.deliver(NOW, &relayed);
        assert!(node.transmit(NOW).is_empty());
        assert_eq!(node.stack.neighbours(NOW).count(), 0);
        assert_eq!(
            node.stack.counters().arp_in_errors + node.stack.counters().frame_errors,
            4
        );
    });
}

#[test]
fn a_conflict_is_counted_and_the_address_defended_once_in_a_while() {
    with_node(|node| {
        quiet(node);
        for _ in 0..5 {
            node.deliver(NOW, &request(8, ip(ME), ip(ME)));
        }
        let defence = parsed(&node.transmit(NOW));
        assert_eq!((node.stack.counters().arp_conflicts, defence.len()), (5, 1));
        assert_eq!(defence[0].1.sender_hardware, hardware(ME));
        let later = NOW + ms(10_000);
        node.deliver(later, &request(8, ip(ME), ip(ME)));
        assert_eq!(parsed(&node.transmit(later)).len(), 1);
    });
}

#[test]
fn a_connection_waits_for_its_neighbour_and_then_sends() {
    with_node(|node| {
        quiet(node);
        node.connect(NOW, ip(PEER), 80);
        let asked = node.transmit(NOW);
        assert_eq!(
            (asked.len(), parsed(&asked)[0].1.target_protocol),
            (1, ip(PEER))
        );
        assert!(
            node.transmit(NOW).is_empty(),
            "no SYN yet, and no second question"
        );
        node.deliver(NOW, &reply(PEER, ip(PEER)));
        let sent = crate::tests::peer::segments(&node.transmit(NOW));
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].1.flags, wire::tcp::Flags::SYN);
    });
}

#[test]
fn off_link_destinations_ask_for_the_router() {
    with_node(|node| {
        quiet(node);
        node.connect(NOW, Ipv4Addr::new(198, 51, 100, 1), 80);
        assert_eq!(parsed(&node.transmit(NOW))[0].1.target_protocol, ip(254));
    });
}

#[test]
fn after_three_unanswered_questions_the_host_is_unreachable() {
    with_node(|node| {
        quiet(node);
        let owner = node.connect(NOW, ip(PEER), 80);
        let mut asked = parsed(&node.transmit(NOW)).len();
        for step in 1..=30 {
            assert_eq!(node.view(owner).state, State::SynSent, "step {step}");
            let now = NOW + ms(step * 100);
            node.timers(now);
            asked += parsed(&node.transmit(now)).len();
        }
        assert_eq!(
            (asked, node.view(owner).error),
            (3, Some(ConnectionError::HostUnreachable))
        );
        assert_eq!(node.stack.counters().neighbour_failures, 1);
    });
}

#[test]
fn an_established_connection_survives_a_neighbour_that_went_away_for_a_while() {
    let mut memory = memory(8, 8);
    let mut pair = Pair::new(&mut memory, 1);
    let (client, server) = pair.connected();
    pair.run(ms(60_000));
    pair.trouble.lose = 1_000;
    pair.nodes[0].write(pair.now, client, b"are you there");
    pair.run(ms(20_000));
    assert!(pair.nodes[0].stack.counters().neighbour_failures > 0);
    assert_eq!(pair.nodes[0].view(client).state, State::Established);
    pair.trouble.lose = 0;
    pair.run(ms(60_000));
    assert_eq!(pair.nodes[1].received(server), b"are you there");
}

#[test]
fn a_flood_of_requests_neither_fills_the_cache_nor_evicts_who_is_in_use() {
    with_node(|node| {
        meet_peer_on_wide_link(node);
        node.transmit(NOW);
        for n in 0..20_000_u32 {
            let sender = Ipv4Addr::from_bits(Ipv4Addr::new(10, 1, 1, 0).to_bits() + n);
            node.deliver(NOW, &request(8, sender, ip(ME)));
            node.transmit(NOW);
        }
        assert!(node.stack.neighbours(NOW).count() <= 257);
        assert_eq!(hardware_of(node, NOW, PEER), Some(Some(hardware(PEER))));
    });
}

#[test]
fn a_flood_of_connects_to_silent_hosts_leaves_the_confirmed_neighbour_alone() {
    with_node(|node| {
        meet_peer_on_wide_link(node);
        for n in 0..1_500_u32 {
            node.connect(
                NOW,
                Ipv4Addr::from_bits(Ipv4Addr::new(10, 1, 1, 0).to_bits() + n),
                80,
            );
            node.transmit(NOW);
        }
        assert_eq!(hardware_of(node, NOW, PEER), Some(Some(hardware(PEER))));
        assert!(node.stack.neighbours(NOW).count() <= 1_024);
        let waiting = node
            .stack
            .neighbours(NOW)
            .filter(|n| n.state == NeighbourState::Incomplete)
            .count();
        assert!(waiting <= 257, "{waiting}");
    });
}

#[test]
fn a_claim_changes_an_address_at_most_once_a_second() {
    with_node(|node| {
        quiet(node);
        node.deliver(NOW, &request(PEER, ip(PEER), ip(ME)));
        let later = NOW + ms(5_000);
        node.deliver(later, &reply(7, ip(PEER)));
        node.deliver(later + ms(10), &reply(8, ip(PEER)));
        assert_eq!(hardware_of(node, later, PEER), Some(Some(hardware(7))));
    });
}

#[test]
fn an_old_neighbour_is_used_at_once_and_asked_by_unicast_later() {
    with_node(|node| {
        quiet(node);
        node.deliver(NOW, &request(PEER, ip(PEER), ip(ME)));
        node.transmit(NOW);
        node.connect(NOW, ip(PEER), 80);
        assert_eq!(
            crate::tests::peer::segments(&node.transmit(NOW)).len(),
            1,
            "no question first"
        );
        let mut asked = Vec::new();
        for step in 1..=90 {
            let now = NOW + ms(step * 100);
            node.timers(now);
            asked.extend(
                parsed(&node.transmit(now))
                    .into_iter()
                    .map(|(header, _)| (step, header.destination)),
            );
        }
        let unicast: Vec<_> = asked
            .iter()
            .filter(|(_, to)| *to == hardware(PEER))
            .map(|(step, _)| *step)
            .collect();
        assert_eq!(unicast, [50, 60, 70], "after five seconds, three times");
    });
}

#[test]
fn an_interface_of_the_kernel_resolves_through_the_host_and_answers_nothing() {
    let mut memory = HeapTables::new(8, 4, 4).unwrap();
    let mut stack = Stack::new(memory.tables(), config(ME)).unwrap();
    let external = InterfaceConfig {
        hardware: hardware(ME),
        mtu: 1_500,
        resolution: Resolution::External,
        scope_id: 0,
        router_discovery: false,
    };
    let nic = stack.add_interface(external).unwrap();
    stack
        .add_address(
            NOW,
            nic,
            InterfaceAddress {
                address: ip(ME).into(),
                prefix_len: 24,
            },
        )
        .unwrap();
    let mut node = Node::with(stack, Shared::default());
    node.deliver(NOW, &request(PEER, ip(PEER), ip(ME)));
    assert!(node.transmit(NOW).is_empty());
    node.connect(NOW, ip(PEER), 80);
    assert!(node.transmit(NOW).is_empty());
    assert_eq!(node.egress.resolve, [ip(PEER)]);
    node.knows(NOW, PEER);
    assert_eq!(crate::tests::peer::segments(&node.transmit(NOW)).len(), 1);
    let other = node.connect(NOW, ip(8), 80);
    node.transmit(NOW);
    node.stack
        .set_neighbour(NOW, nic, ip(8).into(), None)
        .unwrap();
    node.timers(NOW);
    assert_eq!(
        node.view(other).error,
        Some(ConnectionError::HostUnreachable)
    );
}
