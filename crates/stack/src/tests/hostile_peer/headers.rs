//! IP headers that ask for more than a host should do, and errors that must not be answered with errors: source routes and
//! impossible options of IPv4, chains of extension headers, jumbograms and groups out of their scope of IPv6.

use crate::tests::pair::*;
use crate::tests::peer::*;
use crate::tests::peer6::*;
use ::tcp::Instant;
use std::net::Ipv6Addr;
use wire::checksum::Sum;
use wire::icmpv4::Message;
use wire::icmpv6::Message as Message6;
use wire::ipv4::Header as Ipv4Header;
use wire::ipv6::Protocol;
use wire::ipv6::extension::Fragment;

const NOW: Instant = Instant::from_us(1_000_000_000);

/// The frame with these options behind the fixed part of its IPv4 header.
fn with_options(frame: &Flying, options: &[u8]) -> Flying {
    let mut bytes = frame.bytes[..34].to_vec();
    bytes.extend_from_slice(options);
    bytes.extend_from_slice(&frame.bytes[34..]);
    bytes[14] = 0x45 + u8::try_from(options.len() / 4).unwrap();
    let total_len = u16::try_from(bytes.len() - 14).unwrap();
    bytes[16..18].copy_from_slice(&total_len.to_be_bytes());
    bytes[24..26].fill(0);
    let sum = Sum::new().add(&bytes[14..34 + options.len()]).finish();
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    Flying {
        bytes,
        ..frame.clone()
    }
}

fn echo4() -> Vec<u8> {
    let message = Message::EchoRequest {
        identifier: 1,
        sequence: 2,
        data: b"data",
    };
    let mut bytes = vec![0; message.emit_len()];
    message.emit(&mut bytes);
    bytes
}

fn icmp4(header: &Ipv4Header, payload: &[u8]) -> Flying {
    frame(header, payload)
}

#[test]
fn routes_that_a_sender_chose_and_impossible_options_are_not_taken() {
    with_node6(|node| {
        let echo = icmp4(
            &ipv4_header(ip(PEER), ip(ME), wire::ipv4::Protocol::ICMP),
            &echo4(),
        );
        let forty_nothings = [1; 40];
        let cases: [(&str, &[u8], usize); 9] = [
            ("none", &[], 1),
            ("forty times nothing", &forty_nothings, 1),
            ("record route", &[7, 7, 4, 0, 0, 0, 0, 0], 1),
            ("unknown", &[30, 4, 1, 2], 1),
            ("loose route", &[131, 7, 4, 10, 0, 0, 9, 0], 0),
            ("loose route at its end", &[131, 7, 8, 10, 0, 0, 9, 0], 0),
            ("strict route", &[1, 137, 7, 4, 10, 0, 0, 9], 0),
            ("length 0", &[30, 0, 0, 0], 0),
            ("beyond the header", &[30, 9, 0, 0], 0),
        ];
        for (name, options, expected) in cases {
            let errors = node.stack.counters().ip_in_hdr_errors;
            node.deliver(NOW, &with_options(&echo, options));
            assert_eq!(node.transmit(NOW).len(), expected, "{name}");
            let refused = node.stack.counters().ip_in_hdr_errors - errors;
            assert_eq!(refused, u64::from(expected == 0), "{name}");
        }
    });
}

fn echo6(destination: Ipv6Addr) -> Vec<u8> {
    let message = Message6::EchoRequest {
        identifier: 1,
        sequence: 2,
        data: b"data",
    };
    let mut bytes = vec![0; message.emit_len()];
    message.emit(PEER6, destination, &mut bytes);
    bytes
}

#[test]
fn groups_of_no_scope_and_of_another_nodes_interface_are_not_heard() {
    with_node6(|node| {
        for (group, expected) in [
            ("ff02::1", 1),
            ("ff01::1", 0),
            ("ff00::1", 0),
            ("ff0e::1", 0),
        ] {
            let group: Ipv6Addr = group.parse().unwrap();
            let header = header6(PEER6, group, Protocol::ICMPV6);
            node.deliver(NOW, &frame6(&header, &echo6(group)));
            assert_eq!(icmp6(&node.transmit(NOW)).len(), expected, "{group}");
        }
    });
}

/// Options for the destination that ask for nothing, or with an option of which `kind` says what is to be done.
fn destination_options(next: Protocol, kind: u8) -> Vec<u8> {
    vec![next.0, 0, kind, 4, 0, 0, 0, 0]
}

#[test]
fn chains_of_extension_headers_bring_nothing_in_and_one_answer_at_most() {
    let padded = |next| destination_options(next, 1);
    let chain = |count: usize, last: Protocol| -> Vec<u8> {
        let mut headers = vec![Protocol::DESTINATION_OPTIONS; count];
        headers.push(last);
        headers[1..].iter().flat_map(|next| padded(*next)).collect()
    };
    let eight_long: Vec<u8> = chain(7, Protocol::ICMPV6);
    let jumbo = vec![Protocol::ICMPV6.0, 0, 0xc2, 4, 0, 1, 0, 0];
    let route = |left| vec![Protocol::ICMPV6.0, 2, 0, left, 0, 0, 0, 0];
    let route0 = |left| [route(left), vec![0; 16]].concat();
    let twice = [
        vec![Protocol::HOP_BY_HOP.0, 0, 1, 4, 0, 0, 0, 0],
        vec![Protocol::ICMPV6.0, 0, 1, 4, 0, 0, 0, 0],
    ]
    .concat();
    // What is in front, with the header that announces it; answers by echo and by errors.
    let cases = [
        ("seven", Protocol::DESTINATION_OPTIONS, eight_long, (1, 0)),
        (
            "nine",
            Protocol::DESTINATION_OPTIONS,
            chain(9, Protocol::ICMPV6),
            (0, 0),
        ),
        (
            "a hundred",
            Protocol::DESTINATION_OPTIONS,
            chain(100, Protocol::ICMPV6),
            (0, 0),
        ),
        ("jumbo option", Protocol::HOP_BY_HOP, jumbo, (0, 1)),
        ("hop by hop twice", Protocol::HOP_BY_HOP, twice, (0, 1)),
        (
            "route of type 0 (RFC 5095)",
            Protocol::ROUTING,
            route0(1),
            (0, 1),
        ),
        ("the same at its end", Protocol::ROUTING, route0(0), (1, 0)),
        (
            "atomic fragment (RFC 6946)",
            Protocol::FRAGMENT,
            atomic(Protocol::ICMPV6),
            (1, 0),
        ),
        (
            "fragment in a fragment",
            Protocol::FRAGMENT,
            [atomic(Protocol::FRAGMENT), atomic(Protocol::ICMPV6)].concat(),
            (1, 0),
        ),
    ];
    for (name, first, ahead, (echoes, errors)) in cases {
        with_node6(|node| {
            let payload = [ahead.clone(), echo6(ME6)].concat();
            node.deliver(NOW, &frame6(&header6(PEER6, ME6, first), &payload));
            let sent = icmp6(&node.transmit(NOW));
            let is_echo = |one: &&_| matches!(message(one), Message6::EchoReply { .. });
            let echoed = sent.iter().filter(is_echo).count();
            assert_eq!((echoed, sent.len() - echoed), (echoes, errors), "{name}");
        });
    }
}

fn atomic(next_header: Protocol) -> Vec<u8> {
    let mut bytes = vec![0; Fragment::LEN];
    Fragment {
        next_header,
        offset: 0,
        more: false,
        identification: 7,
    }
    .emit(&mut bytes);
    bytes
}

#[test]
fn a_jumbogram_is_not_taken() {
    with_node6(|node| {
        // RFC 2675: a payload length of 0, and the true one in an option.
        let ahead = vec![Protocol::ICMPV6.0, 0, 0xc2, 4, 0, 1, 0, 0];
        let payload = [ahead, echo6(ME6)].concat();
        let mut jumbogram = frame6(&header6(PEER6, ME6, Protocol::HOP_BY_HOP), &payload);
        jumbogram.bytes[18..20].fill(0);
        node.deliver(NOW, &jumbogram);
        assert!(node.transmit(NOW).is_empty());
    });
}

/// A message that says that something could not be delivered.
fn error6() -> Vec<u8> {
    let quoted = [0x60; 60];
    let message = Message6::DestinationUnreachable {
        code: 4,
        quoted: &quoted,
    };
    let mut bytes = vec![0; message.emit_len()];
    message.emit(PEER6, ME6, &mut bytes);
    bytes
}

#[test]
fn no_error_answers_an_error_behind_extension_headers_or_in_a_fragment() {
    // RFC 4443 §2.4 (e.1), (e.2).
    let mut redirect = error6();
    redirect[0] = 137;
    let cases = [
        ("echo", echo6(ME6), 1),
        ("error", error6(), 0),
        ("redirect", redirect, 0),
    ];
    for (name, upper, expected) in &cases {
        with_node6(|node| {
            // An unknown option whose sender wants to hear that it is unknown.
            let payload = [destination_options(Protocol::ICMPV6, 0x9e), upper.clone()].concat();
            let header = header6(PEER6, ME6, Protocol::DESTINATION_OPTIONS);
            node.deliver(NOW, &frame6(&header, &payload));
            assert_eq!(
                icmp6(&node.transmit(NOW)).len(),
                *expected,
                "{name}, option"
            );
            // A first fragment whose rest never comes.
            let mut part = atomic(Protocol::ICMPV6);
            part[3] |= 1;
            part.extend_from_slice(&upper[..upper.len() / 8 * 8]);
            let header = header6(PEER6, ME6, Protocol::FRAGMENT);
            node.deliver(NOW, &frame6(&header, &part));
            let late = NOW + ms(61_000);
            node.timers(late);
            assert_eq!(
                icmp6(&node.transmit(late)).len(),
                *expected,
                "{name}, fragment"
            );
        });
    }
}

#[test]
fn no_error_answers_the_first_fragment_of_an_error() {
    // RFC 1122 §3.2.2.
    let quoted = [0x45; 28];
    let unreachable = Message::DestinationUnreachable {
        code: 3,
        next_hop_mtu: 0,
        quoted: &quoted,
    };
    let mut error = vec![0; unreachable.emit_len()];
    unreachable.emit(&mut error);
    for (name, upper, expected) in [("echo", echo4(), 1), ("error", error, 0)] {
        with_node6(|node| {
            let header = Ipv4Header {
                more_fragments: true,
                dont_fragment: false,
                ..ipv4_header(ip(PEER), ip(ME), wire::ipv4::Protocol::ICMP)
            };
            node.knows(NOW, PEER);
            node.deliver(NOW, &icmp4(&header, &upper[..8]));
            let late = NOW + ms(31_000);
            node.timers(late);
            let sent = node.transmit(late);
            let is_icmp = |one: &&Flying| one.bytes[12..14] == [8, 0] && one.bytes[23] == 1;
            assert_eq!(sent.iter().filter(is_icmp).count(), expected, "{name}");
        });
    }
}
