//! Groups of IPv6: what is heard, what routers are told, what they ask (RFC 3810), and what devices let in.

use crate::address::solicited_node;
use crate::tests::datagrams::*;
use crate::tests::node::*;
use crate::tests::peer::*;
use crate::*;
use ::tcp::Instant;
use std::net::{IpAddr, Ipv6Addr};
use wire::checksum::Sum;
use wire::ethernet::{EtherType, Header as EthernetHeader};
use wire::icmpv6::Message;
use wire::ipv6::{Header as Ipv6Header, Protocol, extension};

const NOW: Instant = Instant::from_us(1_000_000);
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 7);
const REPORTS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
const OURS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

fn memory() -> HeapTables {
    HeapTables::new(4, 4, 4).unwrap().with_udp(8).unwrap()
}

fn node(tables: Tables<'_>) -> Node<'_> {
    let mut node = Node::new(tables, ME, NOW);
    for address in [LINK_LOCAL, OURS] {
        let address = InterfaceAddress {
            address: address.into(),
            prefix_len: 64,
        };
        node.stack.add_address(NOW, NIC, address).unwrap();
    }
    node
}

fn everybody() -> Membership {
    Membership {
        group: GROUP.into(),
        interface: Some(NIC),
        source: None,
    }
}

fn source(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n)
}

fn only(n: u16) -> Membership {
    Membership {
        source: Some(source(n).into()),
        ..everybody()
    }
}

/// A report as it leaves: where to, type, record type (or 0), group, sources.
type Said = (Ipv6Addr, u8, u8, Ipv6Addr, Vec<Ipv6Addr>);

fn address_at(bytes: &[u8], at: usize) -> Ipv6Addr {
    Ipv6Addr::from(*bytes[at..].first_chunk::<16>().unwrap())
}

/// Messages of listener discovery that leave now about any group but those of neighbour discovery.
fn said(node: &mut Node<'_>, now: Instant) -> Vec<Said> {
    let all = said_of_all(node, now);
    let is_solicited =
        |group: &Ipv6Addr| group.octets()[..13] == solicited_node(OURS).octets()[..13];
    all.into_iter()
        .filter(|said| !is_solicited(&said.3))
        .collect()
}

fn said_of_all(node: &mut Node<'_>, now: Instant) -> Vec<Said> {
    let frames = node.transmit(now).into_iter().filter_map(|flying| {
        let (ethernet, packet) = EthernetHeader::parse(&flying.bytes).unwrap();
        let (ip, _) = Ipv6Header::parse(packet).ok()?;
        let chain = extension::walk(packet, extension::Start::behind(&ip)).unwrap();
        let message = Message::parse(ip.source, ip.destination, chain.payload);
        let Ok(Message::Other { kind, body, .. }) = message else {
            return None;
        };
        assert!(chain.router_alert && ip.hop_limit == 1);
        assert_eq!(ip.source, LINK_LOCAL);
        assert_eq!(ethernet.destination.0[..2], [0x33, 0x33]);
        Some(if kind == 143 {
            let sources = (24..body.len()).step_by(16);
            let sources = sources.map(|at| address_at(body, at)).collect();
            (ip.destination, kind, body[4], address_at(body, 8), sources)
        } else {
            (ip.destination, kind, 0, address_at(body, 4), Vec::new())
        })
    });
    frames.collect()
}

/// A packet from the link, with a router alert if wanted.
fn packet(from: Ipv6Addr, to: Ipv6Addr, hops: u8, alert: bool, message: &[u8]) -> Flying {
    let option = [Protocol::ICMPV6.0, 0, 5, 2, 0, 0, 1, 0];
    let options: &[u8] = if alert { &option } else { &[] };
    let mut bytes = vec![0; 54];
    EthernetHeader {
        destination: crate::address::group_hardware(to),
        source: hardware(PEER),
        ethertype: EtherType::IPV6,
    }
    .emit(&mut bytes);
    Ipv6Header {
        source: from,
        destination: to,
        next_header: if alert {
            Protocol::HOP_BY_HOP
        } else {
            Protocol::ICMPV6
        },
        hop_limit: hops,
        traffic_class: 0,
        flow_label: 0,
    }
    .emit(options.len() + message.len(), &mut bytes[14..]);
    bytes.extend_from_slice(options);
    bytes.extend_from_slice(message);
    Flying {
        bytes,
        partial: false,
        interface: NIC.0,
        segment_bytes: None,
    }
}

fn sealed(from: Ipv6Addr, to: Ipv6Addr, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = [&[kind, 0, 0, 0], body].concat();
    let sum = Sum::new()
        .pseudo_header(from.into(), to.into(), Protocol::ICMPV6, message.len())
        .add(&message);
    message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    message
}

/// A query of all groups, answered within ten seconds.
fn query(two: bool) -> Vec<u8> {
    let mut body = vec![0; 20];
    body[..2].copy_from_slice(&10_000_u16.to_be_bytes());
    if two {
        body.extend_from_slice(&[2, 125, 0, 0]);
    }
    let to = "ff02::1".parse().unwrap();
    sealed(ROUTER, to, 130, &body)
}

fn from_router(message: &[u8]) -> Flying {
    packet(ROUTER, "ff02::1".parse().unwrap(), 1, true, message)
}

/// Lets everything be said that is due from joining and from the node's own addresses.
fn settle(node: &mut Node<'_>) -> Instant {
    let mut at = NOW;
    for _ in 0..4 {
        node.timers(at);
        said_of_all(node, at);
        at += ms(2_000);
    }
    at
}

fn datagram(from: Ipv6Addr, payload: &[u8]) -> Flying {
    let mut udp = vec![0; 8];
    let header = wire::udp::Header {
        source_port: 9,
        destination_port: 5_000,
    };
    header.emit(payload.len(), &mut udp);
    udp.extend_from_slice(payload);
    let sum = Sum::new()
        .pseudo_header(from.into(), GROUP.into(), Protocol::UDP, udp.len())
        .add(&udp);
    udp[6..8].copy_from_slice(&sum.finish().to_be_bytes());
    let mut flying = packet(from, GROUP, 64, false, &udp);
    flying.bytes[14 + 6] = Protocol::UDP.0;
    flying
}

fn heard(node: &Node<'_>) -> Vec<u64> {
    let datagrams = std::mem::take(&mut node.programs.borrow_mut().datagrams);
    datagrams.into_iter().map(|(owner, ..)| owner).collect()
}

#[test]
fn joining_and_leaving_is_said_twice_with_a_router_alert() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    let mut at = settle(&mut node);
    let id = bind_beside(&mut node, 7, Ipv6Addr::UNSPECIFIED);
    node.stack.udp_join(id, &everybody()).unwrap();
    for (record, leave) in [(4, false), (3, true)] {
        if leave {
            node.stack.udp_leave(id, &everybody()).unwrap();
        }
        let expected = [(REPORTS, 143, record, GROUP, vec![])];
        assert_eq!(said(&mut node, at), expected);
        at += ms(1_000);
        node.timers(at);
        assert_eq!(said(&mut node, at), expected);
        at += ms(10_000);
        node.timers(at);
        assert_eq!(said(&mut node, at), []);
    }
}

#[test]
fn an_own_address_is_in_its_solicited_node_group() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    let group = solicited_node(OURS);
    let reported: Vec<_> = said_of_all(&mut node, NOW)
        .into_iter()
        .map(|said| (said.0, said.2, said.3))
        .collect();
    // Both addresses end alike, so they share one.
    assert_eq!(reported, [(REPORTS, 4, group)]);
    let at = settle(&mut node);
    node.stack.remove_address(NIC, OURS.into()).unwrap();
    assert_eq!(said_of_all(&mut node, at), []);
    node.stack.remove_address(NIC, LINK_LOCAL.into()).unwrap();
    assert!(!node.stack.ip.listens_to_group(NIC, group.into()));
}

#[test]
fn devices_let_in_each_group_once() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    let all = |node: &mut Node<'_>| -> Vec<_> {
        let changes = node.stack.take_group_changes();
        changes.map(|one| (one.hardware.0, one.listen)).collect()
    };
    let solicited = crate::address::group_hardware(solicited_node(OURS)).0;
    let everybody_here = [0x33, 0x33, 0, 0, 0, 1];
    assert_eq!(all(&mut node), [(solicited, true), (everybody_here, true)]);
    let (first, second) = (
        bind_beside(&mut node, 7, Ipv6Addr::UNSPECIFIED),
        bind_beside(&mut node, 8, Ipv6Addr::UNSPECIFIED),
    );
    node.stack.udp_join(first, &everybody()).unwrap();
    node.stack.udp_join(second, &only(9)).unwrap();
    let group = [0x33, 0x33, 0, 0, 0, 7];
    assert_eq!(all(&mut node), [(group, true)]);
    node.stack.udp_leave(first, &everybody()).unwrap();
    assert_eq!(all(&mut node), []);
    node.stack.udp_close(second).unwrap();
    assert_eq!(all(&mut node), [(group, false)]);
}

#[test]
fn members_hear_the_sources_that_they_have_chosen() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    settle(&mut node);
    let (first, second) = (
        bind_beside(&mut node, 7, Ipv6Addr::UNSPECIFIED),
        bind_beside(&mut node, 8, Ipv6Addr::UNSPECIFIED),
    );
    node.deliver(NOW, &datagram(source(9), b"x"));
    assert_eq!(heard(&node), []);
    node.stack.udp_join(first, &everybody()).unwrap();
    node.stack.udp_join(second, &only(10)).unwrap();
    node.deliver(NOW, &datagram(source(9), b"x"));
    assert_eq!(heard(&node), [7]);
    node.deliver(NOW, &datagram(source(10), b"x"));
    assert_eq!(heard(&node), [7, 8]);
    node.stack.udp_block(first, &only(10)).unwrap();
    node.deliver(NOW, &datagram(source(10), b"x"));
    assert_eq!(heard(&node), [8]);
    let four = Membership {
        source: Some(IpAddr::from([10, 0, 0, 9])),
        ..everybody()
    };
    assert_eq!(
        node.stack.udp_join(second, &four),
        Err(Error::InvalidArgument)
    );
}

#[test]
fn queries_of_both_versions_are_answered_in_their_words() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    let id = bind_beside(&mut node, 7, Ipv6Addr::UNSPECIFIED);
    node.stack.udp_join(id, &everybody()).unwrap();
    let mut at = settle(&mut node);
    node.deliver(at, &from_router(&query(true)));
    at += ms(10_000);
    node.timers(at);
    let whole = (REPORTS, 143, 2, GROUP, vec![]);
    assert_eq!(said(&mut node, at), [whole]);
    node.deliver(at, &from_router(&query(false)));
    at += ms(10_000);
    node.timers(at);
    assert_eq!(said(&mut node, at), [(GROUP, 131, 0, GROUP, vec![])]);
    // Somebody else was quicker.
    node.deliver(at, &from_router(&query(false)));
    let body = [&[0; 4][..], &GROUP.octets()].concat();
    let report = sealed(ROUTER, GROUP, 131, &body);
    node.deliver(at, &packet(ROUTER, GROUP, 1, true, &report));
    at += ms(10_000);
    node.timers(at);
    assert_eq!(said(&mut node, at), []);
    node.stack.udp_leave(id, &everybody()).unwrap();
    let routers = "ff02::2".parse().unwrap();
    assert_eq!(said(&mut node, at), [(routers, 132, 0, GROUP, vec![])]);
}

#[test]
fn queries_that_did_not_come_from_the_link_are_not_believed() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    let id = bind_beside(&mut node, 7, Ipv6Addr::UNSPECIFIED);
    node.stack.udp_join(id, &everybody()).unwrap();
    let mut at = settle(&mut node);
    let to = "ff02::1".parse().unwrap();
    let far = sealed(source(9), to, 130, &query(true)[4..]);
    for (hops, alert, from, message) in [
        (64, true, ROUTER, &query(true)),
        (1, false, ROUTER, &query(true)),
        (1, true, source(9), &far),
    ] {
        node.deliver(at, &packet(from, to, hops, alert, message));
    }
    assert_eq!(node.stack.counters().mld_in_errors, 3);
    at += ms(10_000);
    node.timers(at);
    assert_eq!(said(&mut node, at), []);
}

#[test]
fn what_was_said_without_an_address_is_said_again_with_one() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let address = InterfaceAddress {
        address: OURS.into(),
        prefix_len: 64,
    };
    node.stack.add_address(NOW, NIC, address).unwrap();
    let mut sources = |at: Instant| -> Vec<bool> {
        node.timers(at);
        let frames = node.transmit(at).into_iter().filter_map(|flying| {
            let (_, packet) = EthernetHeader::parse(&flying.bytes).unwrap();
            let (ip, _) = Ipv6Header::parse(packet).ok()?;
            (ip.destination == REPORTS).then(|| ip.source.is_unicast_link_local())
        });
        frames.collect()
    };
    // The link-local address that the stack has made up is tentative.
    assert_eq!(sources(NOW), [false, false]);
    let later: Vec<bool> = (1..=4)
        .flat_map(|second| sources(NOW + ms(1_000 * second)))
        .collect();
    // Once more for each of the two groups, and once with the valid address.
    assert_eq!(later.iter().filter(|valid| **valid).count(), 2);
    assert_eq!(sources(NOW + ms(60_000)), []);
}
