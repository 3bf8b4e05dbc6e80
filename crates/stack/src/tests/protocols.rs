//! A stack that was started without a protocol does not know it.

use super::node::*;
use super::peer::*;
use super::peer6::{ME6, PEER6, frame6, header6};
use crate::*;
use ::tcp::Instant;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use wire::ethernet::Header as EthernetHeader;
use wire::icmpv4::{Message, unreachable};
use wire::icmpv6::{Message as Message6, parameter_problem};
use wire::ipv4::{Header as Ipv4Header, Protocol};
use wire::tcp::Flags;

const NOW: Instant = Instant::from_us(1_000_000_000);

/// A host without `missing`, with an address of each family if it can have one.
fn without(missing: Protocols, test: impl FnOnce(&mut Node<'_>)) {
    let mut memory = HeapTables::new(8, 4, 4).unwrap().with_udp(4).unwrap();
    let config = Config {
        protocols: Protocols::all() - missing,
        ..config(ME)
    };
    let mut stack = Stack::new(memory.tables(), config).unwrap();
    configure(&mut stack, NOW, ME);
    let mut node = Node::with(stack, Shared::default());
    node.knows(NOW, PEER);
    if !missing.contains(Protocols::IPV6) {
        super::peer6::own(&mut node, NOW, ME6);
    }
    for _ in 0..2 {
        node.timers(NOW);
        node.transmit(NOW);
    }
    test(&mut node);
}

/// The ICMP message that a frame is answered with.
fn answer(node: &mut Node<'_>, frame: &Flying) -> Option<Vec<u8>> {
    node.deliver(NOW, frame);
    let sent = node.transmit(NOW);
    let frame = sent.first()?;
    let (_, packet) = EthernetHeader::parse(&frame.bytes).unwrap();
    let (header, payload) = Ipv4Header::parse(packet).unwrap();
    assert_eq!((sent.len(), header.protocol), (1, Protocol::ICMP));
    Some(payload.to_vec())
}

fn is_protocol_unreachable(message: &[u8]) -> bool {
    let parsed = Message::parse(message).unwrap();
    matches!(parsed, Message::DestinationUnreachable { code, .. } if code == unreachable::PROTOCOL)
}

fn syn() -> Flying {
    let header = header(4_000, 80, 1, 0, Flags::SYN);
    segment(ip(PEER), ip(ME), &header, &[])
}

fn udp(destination: std::net::Ipv4Addr) -> Flying {
    let header = ipv4_header(ip(PEER), destination, Protocol::UDP);
    frame(&header, &[1, 2, 0, 53, 0, 8, 0, 0])
}

fn echo() -> Flying {
    let message = Message::EchoRequest {
        identifier: 1,
        sequence: 1,
        data: &[],
    };
    let mut bytes = vec![0; message.emit_len()];
    message.emit(&mut bytes);
    frame(&ipv4_header(ip(PEER), ip(ME), Protocol::ICMP), &bytes)
}

/// RFC 1122 §3.2.2.1.
#[test]
fn segments_are_refused_as_an_unknown_protocol_without_tcp() {
    without(Protocols::TCP, |node| {
        assert!(is_protocol_unreachable(&answer(node, &syn()).unwrap()));
        let refused = node.connect_from(NOW, None, SocketAddr::from((ip(PEER), 80)));
        assert_eq!(refused, Err(Error::ProtocolNotSupported));
        let listen = Listen {
            owner: 1,
            local: SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80)),
            v6_only: false,
            backlog: 1,
            reuse_address: true,
            reuse_port: None,
        };
        assert_eq!(node.stack.listen(&listen), Err(Error::ProtocolNotSupported));
        assert!(answer(node, &udp(ip(ME))).is_some(), "UDP: nobody listens");
        assert!(answer(node, &echo()).is_some());
    });
}

#[test]
fn datagrams_are_refused_as_an_unknown_protocol_without_udp() {
    without(Protocols::UDP, |node| {
        assert!(is_protocol_unreachable(
            &answer(node, &udp(ip(ME))).unwrap()
        ));
        // RFC 1122 §3.2.2: but not those for everybody.
        assert_eq!(answer(node, &udp(ip(255))), None);
        let bind = UdpBind {
            owner: 1,
            local: SocketAddr::new(IpAddr::V4(ip(ME)), 53),
            shares: false,
            options: UdpOptions::default(),
        };
        let refused = node.stack.udp_bind(&bind);
        assert_eq!(refused, Err(Error::ProtocolNotSupported));
        let header = header6(PEER6, ME6, Protocol::UDP);
        let six = frame6(&header, &[1, 2, 0, 53, 0, 8, 0, 0]);
        let known = Some(hardware(PEER));
        node.stack
            .set_neighbour(NOW, NIC, PEER6.into(), known)
            .unwrap();
        node.deliver(NOW, &six);
        let sent = super::peer6::icmp6(&node.transmit(NOW));
        let Message6::ParameterProblem { code, pointer, .. } = super::peer6::message(&sent[0])
        else {
            panic!("{sent:?}");
        };
        assert_eq!((code, pointer), (parameter_problem::NEXT_HEADER, 6));
    });
}

#[test]
fn nothing_is_answered_reported_or_believed_without_icmp() {
    without(Protocols::ICMP, |node| {
        for frame in [echo(), udp(ip(ME))] {
            assert_eq!(answer(node, &frame), None);
        }
        // A reset is TCP's own answer.
        node.deliver(NOW, &syn());
        assert_eq!(segments(&node.transmit(NOW)).len(), 1);
        assert_eq!(node.stack.counters().icmp_in_msgs, 0);
    });
}

#[test]
fn a_host_without_ipv6_hears_none_and_has_no_address_of_it() {
    without(Protocols::IPV6, |node| {
        let own = InterfaceAddress {
            address: ME6.into(),
            prefix_len: 64,
        };
        let refused = node.stack.add_address(NOW, NIC, own);
        assert_eq!(refused, Err(Error::InvalidArgument));
        let header = header6(PEER6, ME6, Protocol::UDP);
        node.deliver(NOW, &frame6(&header, &[0; 8]));
        let counters = node.stack.counters();
        assert_eq!((counters.ip6_in_receives, counters.frames_ignored), (0, 1));
        let refused = node.connect_from(NOW, None, SocketAddr::from((PEER6, 80)));
        assert_eq!(refused, Err(Error::FamilyNotSupported));
        // A socket of both families still speaks IPv4.
        let mapped = ip(PEER).to_ipv6_mapped();
        assert!(
            node.connect_from(NOW, None, SocketAddr::from((mapped, 80)))
                .is_ok()
        );
    });
}
