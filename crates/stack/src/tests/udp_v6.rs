//! UDP over IPv6: dual sockets, link-local peers, fragments, ICMPv6 errors (RFC 8200, RFC 4443).

use super::datagrams::*;
use super::node::*;
use super::peer::*;
use crate::udp::{DatagramErrorKind, MtuDiscovery, Outgoing};
use crate::*;
use ::tcp::Instant;
use std::net::{Ipv6Addr, SocketAddr};
use wire::checksum::{Sum, verify_udp};
use wire::ethernet::{EtherType, Header as EthernetHeader};
use wire::icmpv6::Message;
use wire::ipv6::{Header as Ipv6Header, Protocol, extension};

const NOW: Instant = Instant::from_us(1_000_000);

fn ours() -> Ipv6Addr {
    "2001:db8::1".parse().unwrap()
}

fn theirs() -> Ipv6Addr {
    "2001:db8::9".parse().unwrap()
}

fn link_local(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, n)
}

fn at(address: Ipv6Addr, port: u16) -> SocketAddr {
    SocketAddr::new(address.into(), port)
}

fn memory() -> HeapTables {
    HeapTables::new(4, 4, 4).unwrap().with_udp(8).unwrap()
}

/// A node with a global and a link-local address, whose peer is known.
fn node(tables: Tables<'_>) -> Node<'_> {
    let mut node = Node::new(tables, ME, NOW);
    for address in [ours(), link_local(1)] {
        let address = InterfaceAddress {
            address: address.into(),
            prefix_len: 64,
        };
        node.stack.add_address(NOW, NIC, address).unwrap();
    }
    for peer in [theirs(), link_local(9)] {
        let known = node
            .stack
            .set_neighbour(NOW, NIC, peer.into(), Some(hardware(PEER)));
        known.unwrap();
    }
    node.transmit(NOW);
    node
}

fn packet(from: Ipv6Addr, to: Ipv6Addr, protocol: Protocol, payload: &[u8]) -> Flying {
    let mut bytes = vec![0; 54];
    EthernetHeader {
        destination: hardware(ME),
        source: hardware(PEER),
        ethertype: EtherType::IPV6,
    }
    .emit(&mut bytes);
    Ipv6Header {
        source: from,
        destination: to,
        next_header: protocol,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
    }
    .emit(payload.len(), &mut bytes[14..]);
    bytes.extend_from_slice(payload);
    Flying {
        bytes,
        partial: false,
        interface: NIC.0,
        segment_bytes: None,
    }
}

pub(super) fn datagram(from: (Ipv6Addr, u16), to: (Ipv6Addr, u16), payload: &[u8]) -> Flying {
    let mut udp = vec![0; 8];
    let header = wire::udp::Header {
        source_port: from.1,
        destination_port: to.1,
    };
    header.emit(payload.len(), &mut udp);
    udp.extend_from_slice(payload);
    let sum = Sum::new()
        .pseudo_header(from.0.into(), to.0.into(), Protocol::UDP, udp.len())
        .add(&udp);
    udp[6..8].copy_from_slice(&sum.finish().to_be_bytes());
    packet(from.0, to.0, Protocol::UDP, &udp)
}

fn send(
    node: &mut Node<'_>,
    id: UdpId,
    to: SocketAddr,
    payload: &[u8],
) -> Result<usize, SendError> {
    send_at(node, (NOW, id), Some(to), payload)
}

/// Headers and what follows them, of IPv6 packets.
fn sent(node: &mut Node<'_>) -> Vec<(Ipv6Header, Vec<u8>)> {
    let packets = node.transmit(NOW).into_iter().filter_map(|flying| {
        let (ethernet, packet) = EthernetHeader::parse(&flying.bytes).unwrap();
        let (header, payload) = Ipv6Header::parse(packet).ok()?;
        assert_eq!(ethernet.destination, hardware(PEER));
        Some((header, payload.to_vec()))
    });
    packets.collect()
}

#[test]
fn a_dual_socket_serves_both_families_and_one_for_ipv6_alone_does_not() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    node.knows(NOW, PEER);
    let id = bind(&mut node, 7, at(Ipv6Addr::UNSPECIFIED, 53));
    node.deliver(NOW, &datagram((theirs(), 9), (ours(), 53), b"six"));
    assert_eq!(taken(&node), [(7, at(theirs(), 9), b"six".to_vec())]);
    assert_eq!(send(&mut node, id, at(theirs(), 9), b"answer"), Ok(6));
    let [(header, payload)] = &sent(&mut node)[..] else {
        panic!("one datagram leaves");
    };
    assert_eq!((header.source, header.destination), (ours(), theirs()));
    assert!(verify_udp(ours().into(), theirs().into(), payload));
    let v4 = SocketAddr::new(ip(PEER).into(), 9);
    assert_eq!(send(&mut node, id, v4, b"four"), Ok(4));
    let mut options = node.stack.udp_options(id).unwrap();
    let four = |node: &Node<'_>| node.stack.udp.table.find(v4, end_v4(), NIC);
    assert!(four(&node).is_some());
    options.v6_only = true;
    node.stack.udp_set_options(id, &options).unwrap();
    assert!(four(&node).is_none());
}

fn end_v4() -> SocketAddr {
    SocketAddr::new(ip(ME).into(), 53)
}

#[test]
fn an_absent_checksum_is_wrong_over_ipv6() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    bind(&mut node, 7, at(Ipv6Addr::UNSPECIFIED, 53));
    let mut flying = datagram((theirs(), 9), (ours(), 53), b"x");
    flying.bytes[60..62].fill(0);
    node.deliver(NOW, &flying);
    assert_eq!(taken(&node), []);
    assert_eq!(node.stack.counters().udp_in_csum_errors, 1);
}

#[test]
fn nobody_on_the_port_is_said_by_icmpv6() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    node.deliver(NOW, &datagram((theirs(), 9), (ours(), 53), b"x"));
    let [(_, payload)] = &sent(&mut node)[..] else {
        panic!("one answer leaves");
    };
    let message = Message::parse(ours(), theirs(), payload).unwrap();
    assert!(matches!(
        message,
        Message::DestinationUnreachable { code: 4, .. }
    ));
}

#[test]
fn a_long_datagram_is_fragmented_by_its_sender() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    let id = bind(&mut node, 7, at(Ipv6Addr::UNSPECIFIED, 53));
    let payload: Vec<u8> = (0..4_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    assert_eq!(send(&mut node, id, at(theirs(), 9), &payload), Ok(4_000));
    let mut whole = vec![0; 4_008];
    let packets = sent(&mut node);
    assert_eq!(packets.len(), 3);
    // RFC 6437 §3: all of one flow have its label.
    let label = packets[0].0.flow_label;
    assert_ne!(label, 0);
    for (header, packet) in &packets {
        assert!(packet.len() + 40 <= 1_500 && header.next_header == Protocol::FRAGMENT);
        assert_eq!(header.flow_label, label);
        let (fragment, data) = extension::Fragment::parse(packet).unwrap();
        let at = usize::from(fragment.offset);
        assert_eq!(fragment.more, at + data.len() < whole.len());
        whole[at..at + data.len()].copy_from_slice(data);
    }
    assert!(verify_udp(ours().into(), theirs().into(), &whole));
    assert_eq!(whole[8..], payload);
    send(&mut node, id, at(theirs(), 9), b"again").unwrap();
    send(&mut node, id, at(theirs(), 10), b"another").unwrap();
    let labels: Vec<u32> = sent(&mut node)
        .iter()
        .map(|(header, _)| header.flow_label)
        .collect();
    assert!(labels[0] == label && labels[1] != label, "{labels:?}");
    let mut options = node.stack.udp_options(id).unwrap();
    options.v6.mtu_discovery = MtuDiscovery::Do;
    node.stack.udp_set_options(id, &options).unwrap();
    let refused = Err(SendError::Refused(Error::MessageTooLong));
    assert_eq!(
        send(&mut node, id, at(theirs(), 9), &payload[..1_453]),
        refused
    );
    assert_eq!(
        send(&mut node, id, at(theirs(), 9), &payload[..1_452]),
        Ok(1_452)
    );
}

#[test]
fn errors_of_icmpv6_reach_the_socket_and_a_smaller_path_is_believed_down_to_the_minimum() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    let id = bind(&mut node, 7, at(Ipv6Addr::UNSPECIFIED, 53));
    node.stack.udp_connect(id, at(theirs(), 9)).unwrap();
    let quoted = datagram((ours(), 53), (theirs(), 9), &[1; 1_400]).bytes[14..200].to_vec();
    let report = |message: Message<'_>| {
        let mut bytes = vec![0; 1_280];
        let len = message.emit(theirs(), ours(), &mut bytes);
        packet(theirs(), ours(), Protocol::ICMPV6, &bytes[..len])
    };
    let refused = Message::DestinationUnreachable {
        code: 4,
        quoted: &quoted,
    };
    node.deliver(NOW, &report(refused));
    let too_big = |mtu| Message::PacketTooBig {
        mtu,
        quoted: &quoted,
    };
    // RFC 8201 §4: there is no such link, so this is discarded.
    node.deliver(NOW, &report(too_big(1_000)));
    assert_eq!(node.stack.udp_mtu(NOW, id), Ok(1_500));
    node.deliver(NOW, &report(too_big(1_280)));
    let failures = std::mem::take(&mut node.programs.borrow_mut().failures);
    let kinds: Vec<_> = failures
        .iter()
        .map(|(owner, kind, ..)| (*owner, *kind))
        .collect();
    assert_eq!(
        kinds,
        [
            (7, DatagramErrorKind::PortUnreachable),
            (7, DatagramErrorKind::TooBig)
        ]
    );
    assert_eq!(node.stack.udp_mtu(NOW, id), Ok(1_280));
    node.deliver(NOW, &report(too_big(1_400)));
    assert_eq!(node.stack.udp_mtu(NOW, id), Ok(1_280), "never raised");
}

#[test]
fn a_link_local_peer_is_answered_on_its_link() {
    let mut memory = memory();
    let mut node = node(memory.tables());
    let id = bind(&mut node, 7, at(Ipv6Addr::UNSPECIFIED, 53));
    node.deliver(
        NOW,
        &datagram((link_local(9), 9), (link_local(1), 53), b"x"),
    );
    let (_, source, _) = taken(&node)[0].clone();
    assert_eq!(source.ip(), link_local(9));
    let outgoing = Outgoing {
        destination: Some(source),
        interface: Some(NIC),
        ..Outgoing::default()
    };
    let result = node
        .stack
        .udp_send(NOW, id, &outgoing, b"y", &mut node.egress);
    assert_eq!(result, Ok(1));
    assert_eq!(sent(&mut node)[0].0.source, link_local(1));
    let nowhere = send(&mut node, id, at(link_local(9), 9), b"y");
    assert_eq!(
        nowhere,
        Err(SendError::Refused(Error::NetworkUnreachable)),
        "the program has to name the link"
    );
}
