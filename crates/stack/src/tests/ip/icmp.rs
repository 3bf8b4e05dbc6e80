//! ICMP: what is answered, how often, and which errors reach a connection.

use crate::tests::pair::*;
use crate::tests::peer::*;
use crate::*;
use ::tcp::{ConnectionError, Instant, State};
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::icmpv4::{Message, unreachable};
use wire::ipv4::Protocol;
use wire::tcp::Flags;

const NOW: Instant = Instant::from_us(1_000_000_000);
const ROUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

fn icmp(source: Ipv4Addr, message: &Message<'_>) -> Flying {
    let mut bytes = vec![0; message.emit_len()];
    message.emit(&mut bytes);
    frame(&ipv4_header(source, ip(ME), Protocol::ICMP), &bytes)
}

/// The ICMP payloads that were sent, with the addresses they went to.
fn answers(frames: &[Flying]) -> Vec<(Ipv4Addr, Vec<u8>)> {
    let packets = frames
        .iter()
        .map(|frame| wire::ipv4::Header::parse(&frame.bytes[14..]).unwrap());
    packets
        .filter(|(header, _)| header.protocol == Protocol::ICMP)
        .map(|(header, payload)| (header.destination, payload.to_vec()))
        .collect()
}

/// A connection that has sent its SYN to the peer's port 80, and that segment.
fn connecting<R>(test: impl FnOnce(&mut Node<'_>, u64, Flying) -> R) -> R {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.knows(NOW, 254);
    node.transmit(NOW);
    let owner = node
        .connect_from(NOW, Some(4_000), SocketAddrV4::new(ROUTER, 80))
        .unwrap();
    let syn = node.transmit(NOW).remove(0);
    test(&mut node, owner, syn)
}

/// The same connection after the handshake, and a large segment of it.
fn established<R>(test: impl FnOnce(&mut Node<'_>, u64, Flying) -> R) -> R {
    connecting(|node, owner, syn| {
        let seq = parse(&syn).unwrap().1.seq;
        let mut syn_ack = header(80, 4_000, 900, seq.wrapping_add(1), Flags::SYN | Flags::ACK);
        syn_ack.options.mss = Some(1_460);
        node.deliver(NOW, &segment(ROUTER, ip(ME), &syn_ack, &[]));
        node.transmit(NOW);
        node.write(NOW, owner, &pattern(1, 10_000));
        let large = node.transmit(NOW).remove(0);
        test(node, owner, large)
    })
}

fn quote(frame: &Flying) -> &[u8] {
    &frame.bytes[14..14 + 28]
}

#[test]
fn echo_is_answered_with_the_same_data_and_without_limit() {
    connecting(|node, _, _| {
        let request = Message::EchoRequest {
            identifier: 7,
            sequence: 9,
            data: b"some data",
        };
        for _ in 0..500 {
            node.deliver(NOW, &icmp(ip(PEER), &request));
        }
        let replies = answers(&node.transmit(NOW));
        assert_eq!(replies.len(), 500);
        let expected = Message::EchoReply {
            identifier: 7,
            sequence: 9,
            data: b"some data",
        };
        assert_eq!(replies[0].0, ip(PEER));
        assert_eq!(Message::parse(&replies[0].1), Ok(expected));
    });
}

#[test]
fn udp_to_nobody_gets_port_unreachable_at_a_limited_rate() {
    connecting(|node, _, _| {
        let mut datagram = vec![0; 8];
        wire::udp::Header {
            source_port: 5,
            destination_port: 6,
        }
        .emit(1_400, &mut datagram);
        datagram.resize(1_408, 7);
        let frame = frame(&ipv4_header(ip(PEER), ip(ME), Protocol::UDP), &datagram);
        for _ in 0..200 {
            node.deliver(NOW, &frame);
        }
        let errors = answers(&node.transmit(NOW));
        // 50 tokens; an answer costs one to three of them, which only we know.
        assert!((17..=50).contains(&errors.len()), "{}", errors.len());
        let refused = node.stack.counters().icmp_out_rate_limit;
        assert_eq!(u64::try_from(errors.len()).unwrap() + refused, 200);
        let Ok(Message::DestinationUnreachable { code, quoted, .. }) = Message::parse(&errors[0].1)
        else {
            panic!()
        };
        assert_eq!((code, quoted.len()), (unreachable::PORT, 576 - 28));
        assert_eq!(quoted, &frame.bytes[14..14 + quoted.len()]);
        node.deliver(NOW + ms(10), &frame);
        assert_eq!(answers(&node.transmit(NOW)).len(), 1, "tokens come back");
    });
}

#[test]
fn no_error_answers_an_error_a_fragment_or_a_broadcast() {
    connecting(|node, _, _| {
        let header = ipv4_header(ip(PEER), ip(ME), Protocol(99));
        let fragment = wire::ipv4::Header {
            more_fragments: true,
            dont_fragment: false,
            ..header
        };
        node.deliver(NOW, &frame(&fragment, &[0; 64]));
        let broadcast = wire::ipv4::Header {
            destination: ip(255),
            ..header
        };
        node.deliver(NOW, &frame(&broadcast, &[0; 64]));
        let mut to_all = frame(&header, &[0; 64]);
        to_all.bytes[..6].fill(0xff);
        node.deliver(NOW, &to_all);
        node.deliver(NOW, &icmp(ip(PEER), &Message::Other { kind: 44, code: 0 }));
        for source in [
            ip(255),
            ip(ME),
            Ipv4Addr::LOCALHOST,
            Ipv4Addr::new(224, 0, 0, 1),
            Ipv4Addr::UNSPECIFIED,
        ] {
            node.deliver(
                NOW,
                &frame(&wire::ipv4::Header { source, ..header }, &[0; 64]),
            );
        }
        assert!(node.transmit(NOW).is_empty());
        assert_eq!(node.stack.counters().ip_reasm_reqds, 1);
        assert_eq!(node.stack.counters().ip_in_addr_errors, 6);
    });
}

#[test]
fn an_unknown_protocol_gets_protocol_unreachable() {
    connecting(|node, _, _| {
        node.deliver(
            NOW,
            &frame(&ipv4_header(ip(PEER), ip(ME), Protocol(99)), &[0; 64]),
        );
        let sent = answers(&node.transmit(NOW));
        let Ok(Message::DestinationUnreachable { code, .. }) = Message::parse(&sent[0].1) else {
            panic!()
        };
        assert_eq!(code, unreachable::PROTOCOL);
    });
}

#[test]
fn a_connection_attempt_ends_on_a_quoted_error_and_says_which() {
    use ConnectionError as E;
    // As Linux `icmp_err_convert`.
    let expected = [
        Some(E::NetworkUnreachable),
        Some(E::HostUnreachable),
        Some(E::ProtocolUnreachable),
        Some(E::Refused),
        None, // the path MTU is another matter
        Some(E::SourceRouteFailed),
        Some(E::NetworkUnreachable),
        Some(E::HostUnknown),
        Some(E::HostIsolated),
        Some(E::NetworkUnreachable),
        Some(E::HostUnreachable),
        Some(E::NetworkUnreachable),
        Some(E::HostUnreachable),
        Some(E::HostUnreachable),
        Some(E::HostUnreachable),
        Some(E::HostUnreachable),
        None, // there is no such code
    ];
    for (code, expected) in (0..).zip(expected) {
        connecting(|node, owner, syn| {
            let message = Message::DestinationUnreachable {
                code,
                next_hop_mtu: 0,
                quoted: quote(&syn),
            };
            node.deliver(NOW, &icmp(ip(PEER), &message));
            assert_eq!(node.view(owner).error, expected, "code {code}");
        });
    }
    connecting(|node, owner, syn| {
        let message = Message::TimeExceeded {
            code: 0,
            quoted: quote(&syn),
        };
        node.deliver(NOW, &icmp(ip(PEER), &message));
        assert_eq!(node.view(owner).error, Some(E::HostUnreachable));
    });
    connecting(|node, owner, syn| {
        let message = Message::ParameterProblem {
            code: 0,
            pointer: 20,
            quoted: quote(&syn),
        };
        node.deliver(NOW, &icmp(ip(PEER), &message));
        assert_eq!(
            (node.view(owner).state, node.view(owner).error),
            (State::Closed, Some(E::Protocol))
        );
    });
}

#[test]
fn an_error_that_quotes_what_was_never_sent_is_ignored() {
    connecting(|node, owner, syn| {
        let mut forged = quote(&syn).to_vec();
        forged[24] ^= 0x40;
        let message = Message::DestinationUnreachable {
            code: unreachable::HOST,
            next_hop_mtu: 0,
            quoted: &forged,
        };
        node.deliver(NOW, &icmp(ip(PEER), &message));
        assert_eq!(node.view(owner).state, State::SynSent);
        assert_eq!(node.stack.counters().icmp_in_unmatched, 1);
    });
}

#[test]
fn an_established_connection_outlives_unreachable_errors() {
    established(|node, owner, large| {
        for code in [unreachable::HOST, unreachable::PORT, unreachable::PROTOCOL] {
            let message = Message::DestinationUnreachable {
                code,
                next_hop_mtu: 0,
                quoted: quote(&large),
            };
            node.deliver(NOW, &icmp(ip(PEER), &message));
        }
        let message = Message::TimeExceeded {
            code: 0,
            quoted: quote(&large),
        };
        node.deliver(NOW, &icmp(ip(PEER), &message));
        assert_eq!(node.view(owner).state, State::Established);
    });
}

fn largest_after(node: &mut Node<'_>, now: Instant) -> usize {
    node.timers(now);
    segments(&node.transmit(now))
        .iter()
        .map(|(header, ..)| usize::from(header.total_len))
        .max()
        .unwrap()
}

#[test]
fn what_was_too_long_for_the_path_leaves_again_at_once() {
    established(|node, _, large| {
        let message = Message::DestinationUnreachable {
            code: unreachable::FRAGMENTATION_NEEDED,
            next_hop_mtu: 1_000,
            quoted: quote(&large),
        };
        node.deliver(NOW, &icmp(ip(PEER), &message));
        assert_eq!(largest_after(node, NOW), 1_000);
    });
}

#[test]
fn fragmentation_needed_lowers_the_path_mtu_of_that_connection_only() {
    established(|node, owner, large| {
        assert_eq!(large.bytes.len(), 14 + 1_500);
        let other = node
            .connect_from(NOW, Some(4_001), SocketAddrV4::new(ROUTER, 80))
            .unwrap();
        let code = unreachable::FRAGMENTATION_NEEDED;
        let message = |next_hop_mtu| Message::DestinationUnreachable {
            code,
            next_hop_mtu,
            quoted: quote(&large),
        };
        node.deliver(NOW, &icmp(ip(PEER), &message(1_000)));
        let later = NOW + ms(3_000);
        assert_eq!(largest_after(node, later), 1_000);
        assert_eq!(node.stack.counters().pmtu_lowered, 1);
        // Never up, never above what was sent, never below the floor.
        node.deliver(later, &icmp(ip(PEER), &message(1_400)));
        node.deliver(later, &icmp(ip(PEER), &message(9_000)));
        assert_eq!(node.stack.counters().pmtu_lowered, 1);
        node.deliver(later, &icmp(ip(PEER), &message(68)));
        let much_later = NOW + ms(20_000);
        assert_eq!(largest_after(node, much_later), 552);
        let ids = [node.id(owner), node.id(other)];
        let mtu = ids.map(|id| node.stack.tcp.record(id.index).path_mtu);
        assert_eq!(mtu, [552, 0]);
    });
}
