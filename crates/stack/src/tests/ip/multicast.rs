//! Groups: what sockets hear, what routers are told, and what they ask (RFC 3376).

use crate::tests::datagrams::*;
use crate::tests::node::*;
use crate::tests::peer::*;
use crate::udp::Outgoing;
use crate::*;
use ::tcp::Instant;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use wire::checksum::Sum;
use wire::ethernet::Header as EthernetHeader;
use wire::ipv4::{Header as Ipv4Header, Protocol};

const NOW: Instant = Instant::from_us(1_000_000);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

fn memory() -> HeapTables {
    HeapTables::new(4, 4, 4).unwrap().with_udp(8).unwrap()
}

fn everybody() -> Membership {
    Membership {
        group: GROUP.into(),
        interface: None,
        source: None,
    }
}

fn only(n: u8) -> Membership {
    Membership {
        source: Some(ip(n).into()),
        ..everybody()
    }
}

/// A datagram from 10.0.0.`n` to the group.
fn datagram(n: u8, payload: &[u8]) -> Flying {
    let mut udp = vec![0; 8];
    let header = wire::udp::Header {
        source_port: 9,
        destination_port: 5_000,
    };
    header.emit(payload.len(), &mut udp);
    udp.extend_from_slice(payload);
    let mut flying = frame(&ipv4_header(ip(n), GROUP, Protocol::UDP), &udp);
    flying.bytes[..6].copy_from_slice(&[1, 0, 0x5e, 1, 2, 3]);
    flying
}

fn query(bytes: &[u8]) -> Flying {
    let mut message = bytes.to_vec();
    let checksum = Sum::new().add(&message).finish();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let to = Ipv4Addr::new(224, 0, 0, 1);
    let mut flying = frame(&ipv4_header(ip(PEER), to, Protocol::IGMP), &message);
    flying.bytes[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 1]);
    flying
}

/// Who heard something since the last look.
fn heard(node: &Node<'_>) -> Vec<u64> {
    let datagrams = std::mem::take(&mut node.programs.borrow_mut().datagrams);
    datagrams.into_iter().map(|(owner, ..)| owner).collect()
}

/// IGMP messages that leave now: destination, type and record type (or 0), sources.
fn said(node: &mut Node<'_>, now: Instant) -> Vec<(Ipv4Addr, u8, u8, Vec<u8>)> {
    let frames = node.transmit(now).into_iter().filter_map(|flying| {
        let (_, packet) = EthernetHeader::parse(&flying.bytes).unwrap();
        let (ip, payload) = Ipv4Header::parse(packet).ok()?;
        (ip.protocol == Protocol::IGMP).then(|| {
            assert_eq!((ip.ttl, ip.header_len), (1, 24), "router alert");
            assert_eq!(Sum::new().add(payload).fold(), 0xffff);
            let is_v3 = payload[0] == 0x22;
            let group = if is_v3 {
                &payload[12..16]
            } else {
                &payload[4..8]
            };
            assert_eq!(group, GROUP.octets());
            let (record, sources) = if is_v3 {
                (
                    payload[8],
                    payload[16..].iter().skip(3).step_by(4).copied().collect(),
                )
            } else {
                (0, Vec::new())
            };
            (ip.destination, payload[0], record, sources)
        })
    });
    frames.collect()
}

const REPORTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);

#[test]
fn joining_and_leaving_is_said_twice() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let id = bind_beside(&mut node, 7, Ipv4Addr::UNSPECIFIED);
    node.stack.udp_join(id, &everybody()).unwrap();
    let mut at = NOW;
    for (record, leave) in [(4, false), (3, true)] {
        if leave {
            node.stack.udp_leave(id, &everybody()).unwrap();
        }
        assert_eq!(said(&mut node, at), [(REPORTS, 0x22, record, vec![])]);
        at += ms(1_000);
        node.timers(at);
        assert_eq!(said(&mut node, at), [(REPORTS, 0x22, record, vec![])]);
        at += ms(10_000);
        node.timers(at);
        assert_eq!(said(&mut node, at), []);
    }
}

#[test]
fn a_group_is_heard_while_somebody_here_is_in_it() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let (first, second) = (
        bind_beside(&mut node, 7, Ipv4Addr::UNSPECIFIED),
        bind_beside(&mut node, 8, Ipv4Addr::UNSPECIFIED),
    );
    node.deliver(NOW, &datagram(9, b"x"));
    assert_eq!(heard(&node), []);
    node.stack.udp_join(first, &everybody()).unwrap();
    assert_eq!(
        node.stack.udp_join(first, &everybody()),
        Err(Error::AddressInUse)
    );
    node.deliver(NOW, &datagram(9, b"x"));
    assert_eq!(heard(&node), [7, 8], "IP_MULTICAST_ALL");
    node.stack.udp_join(second, &only(10)).unwrap();
    node.deliver(NOW, &datagram(9, b"x"));
    assert_eq!(heard(&node), [7]);
    node.deliver(NOW, &datagram(10, b"x"));
    assert_eq!(heard(&node), [7, 8]);
    node.stack.udp_close(first).unwrap();
    node.deliver(NOW, &datagram(9, b"x"));
    assert_eq!(heard(&node), []);
    let gone = node.stack.udp_leave(second, &everybody());
    assert_eq!(gone, Ok(()));
    assert_eq!(
        node.stack.udp_leave(second, &everybody()),
        Err(Error::AddressNotAvailable)
    );
}

#[test]
fn sources_are_reported_as_they_come_and_go() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let id = bind_beside(&mut node, 7, Ipv4Addr::UNSPECIFIED);
    node.stack.udp_join(id, &only(10)).unwrap();
    assert_eq!(said(&mut node, NOW), [(REPORTS, 0x22, 5, vec![10])]);
    let later = NOW + ms(5_000);
    node.timers(later);
    said(&mut node, later);
    node.stack.udp_join(id, &only(11)).unwrap();
    assert_eq!(said(&mut node, later), [(REPORTS, 0x22, 5, vec![11])]);
    node.stack.udp_leave(id, &only(10)).unwrap();
    assert_eq!(said(&mut node, later), [(REPORTS, 0x22, 6, vec![10])]);
    let mixed = node.stack.udp_join(id, &everybody());
    assert_eq!(mixed, Err(Error::AddressInUse));
}

#[test]
fn queries_are_answered_once_within_their_time() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let id = bind_beside(&mut node, 7, Ipv4Addr::UNSPECIFIED);
    node.stack.udp_join(id, &everybody()).unwrap();
    said(&mut node, NOW);
    let mut at = NOW + ms(2_000);
    node.timers(at);
    said(&mut node, at);
    let general = [0x11, 100, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0];
    for _ in 0..100 {
        node.deliver(at, &query(&general));
    }
    at += ms(10_000);
    node.timers(at);
    assert_eq!(said(&mut node, at), [(REPORTS, 0x22, 2, vec![])]);
    let other = [0x11, 100, 0, 0, 239, 9, 9, 9, 2, 125, 0, 0];
    node.deliver(at, &query(&other));
    let of_sources = [0x11, 10, 0, 0, 239, 1, 2, 3, 2, 125, 0, 1, 10, 0, 0, 77];
    node.deliver(at, &query(&of_sources));
    at += ms(10_000);
    node.timers(at);
    assert_eq!(said(&mut node, at), [(REPORTS, 0x22, 1, vec![77])]);
}

#[test]
fn routers_of_older_versions_hear_their_own_words() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let id = bind_beside(&mut node, 7, Ipv4Addr::UNSPECIFIED);
    node.deliver(NOW, &query(&[0x11, 100, 0, 0, 0, 0, 0, 0]));
    node.stack.udp_join(id, &everybody()).unwrap();
    assert_eq!(said(&mut node, NOW), [(GROUP, 0x16, 0, vec![])]);
    node.stack.udp_leave(id, &everybody()).unwrap();
    let leave = (Ipv4Addr::new(224, 0, 0, 2), 0x17, 0, vec![]);
    assert_eq!(said(&mut node, NOW), [leave]);
    node.deliver(NOW, &query(&[0x11, 0, 0, 0, 0, 0, 0, 0]));
    node.stack.udp_join(id, &everybody()).unwrap();
    assert_eq!(said(&mut node, NOW), [(GROUP, 0x16 - 4, 0, vec![])]);
    let forgotten = NOW + ms(261_000);
    node.timers(forgotten);
    said(&mut node, forgotten);
    node.stack.udp_leave(id, &everybody()).unwrap();
    assert_eq!(said(&mut node, forgotten), [(REPORTS, 0x22, 3, vec![])]);
}

#[test]
fn what_a_host_sends_to_a_group_its_own_members_hear_unless_it_asks_not_to() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let id = bind_beside(&mut node, 7, Ipv4Addr::UNSPECIFIED);
    node.stack.udp_join(id, &everybody()).unwrap();
    said(&mut node, NOW);
    let outgoing = Outgoing {
        destination: Some(SocketAddr::new(IpAddr::V4(GROUP), 5_000)),
        ..Outgoing::default()
    };
    for (loops, copies) in [(true, 1), (false, 0)] {
        let mut options = node.stack.udp_options(id).unwrap();
        options.v4.multicast_loop = loops;
        node.stack.udp_set_options(id, &options).unwrap();
        let result = node
            .stack
            .udp_send(NOW, id, &outgoing, b"x", &mut node.egress);
        assert_eq!(result, Ok(1));
        let frames = node.transmit(NOW);
        let sent: Vec<&Flying> = frames.iter().filter(|f| f.interface == NIC.0).collect();
        let (ethernet, packet) = EthernetHeader::parse(&sent[0].bytes).unwrap();
        assert_eq!(ethernet.destination.0, [1, 0, 0x5e, 1, 2, 3]);
        assert_eq!(Ipv4Header::parse(packet).unwrap().0.ttl, 1);
        for copy in frames.iter().filter(|f| f.interface == LOOPBACK.0) {
            node.deliver(NOW, copy);
        }
        assert_eq!(heard(&node).len(), copies);
    }
}

#[test]
fn memberships_are_bounded() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let id = bind_beside(&mut node, 7, Ipv4Addr::UNSPECIFIED);
    for n in 0..20 {
        let join = Membership {
            group: Ipv4Addr::new(239, 0, 0, n).into(),
            ..everybody()
        };
        assert_eq!(node.stack.udp_join(id, &join), Ok(()));
    }
    assert_eq!(node.stack.udp_join(id, &everybody()), Err(Error::NoMemory));
    let no_group = Membership {
        group: ip(9).into(),
        ..everybody()
    };
    assert_eq!(
        node.stack.udp_join(id, &no_group),
        Err(Error::InvalidArgument)
    );
}

#[test]
fn a_blocked_source_is_heard_again_once_it_is_not() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let id = bind_beside(&mut node, 7, Ipv4Addr::UNSPECIFIED);
    assert_eq!(
        node.stack.udp_block(id, &only(9)),
        Err(Error::InvalidArgument)
    );
    node.stack.udp_join(id, &everybody()).unwrap();
    let hears = |node: &mut Node<'_>, n| {
        node.deliver(NOW, &datagram(n, b"news"));
        heard(node).len()
    };
    node.stack.udp_block(id, &only(9)).unwrap();
    assert_eq!((hears(&mut node, 9), hears(&mut node, 8)), (0, 1));
    let again = node.stack.udp_block(id, &only(9));
    assert_eq!(again, Err(Error::AddressNotAvailable));
    node.stack.udp_unblock(id, &only(9)).unwrap();
    assert_eq!(hears(&mut node, 9), 1);
    let again = node.stack.udp_unblock(id, &only(9));
    assert_eq!(again, Err(Error::AddressNotAvailable));
}

#[test]
fn who_has_not_joined_hears_the_groups_of_others_only_if_it_wants_all() {
    let mut memory = memory();
    let mut node = Node::new(memory.tables(), ME, NOW);
    let (member, other) = (
        bind_beside(&mut node, 7, Ipv4Addr::UNSPECIFIED),
        bind_beside(&mut node, 8, Ipv4Addr::UNSPECIFIED),
    );
    node.stack.udp_join(member, &everybody()).unwrap();
    node.deliver(NOW, &datagram(9, b"news"));
    assert_eq!(heard(&node), [7, 8]);
    let mut options = node.stack.udp_options(other).unwrap();
    options.v4.multicast_all = false;
    node.stack.udp_set_options(other, &options).unwrap();
    node.deliver(NOW, &datagram(9, b"news"));
    assert_eq!(heard(&node), [7]);
    for id in [member, other] {
        let mut options = node.stack.udp_options(id).unwrap();
        options.v4.multicast_all = true;
        options.addressed_only = true;
        node.stack.udp_set_options(id, &options).unwrap();
    }
    node.deliver(NOW, &datagram(9, b"news"));
    assert_eq!(heard(&node), [7], "what it has joined itself");
}
