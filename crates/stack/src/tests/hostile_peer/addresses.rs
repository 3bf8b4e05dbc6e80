//! Packets from and to addresses that cannot be (RFC 1122 §3.2.1.3, RFC 1812 §5.3.7, RFC 4291 §2.5): LAND, martians,
//! broadcasts, groups, loopback. Nothing of them is answered, makes a connection, or becomes a neighbour.

use crate::tests::pair::*;
use crate::tests::peer::*;
use crate::tests::peer6::*;
use ::tcp::Instant;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::icmpv6::Message;
use wire::ipv6::Protocol;
use wire::tcp::Flags;

const NOW: Instant = Instant::from_us(1_000_000_000);

/// A UDP datagram that nobody here waits for.
fn datagram6(source: Ipv6Addr, destination: Ipv6Addr) -> Flying {
    let mut bytes = vec![0; 8];
    wire::udp::Header {
        source_port: 5,
        destination_port: 6,
    }
    .emit(0, &mut bytes);
    checksummed(source, destination, Protocol::UDP, 6, &mut bytes);
    frame6(&header6(source, destination, Protocol::UDP), &bytes)
}

fn echo6(source: Ipv6Addr, destination: Ipv6Addr) -> Flying {
    let message = Message::EchoRequest {
        identifier: 1,
        sequence: 1,
        data: b"x",
    };
    icmp_frame(source, destination, 64, &message)
}

#[test]
fn over_ipv6_nobody_hears_from_or_answers_an_address_that_cannot_be() {
    let address = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    let sources = [
        ("LAND", ME6),
        ("nobody", address("::")),
        ("loopback", address("::1")),
        ("all nodes", address("ff02::1")),
        ("a group", address("ff0e::77")),
        ("mapped", address("::ffff:10.0.0.9")),
        ("own address, mapped", address("::ffff:10.0.0.1")),
    ];
    for (name, source) in sources {
        with_node6(|node| {
            node.listen(80, 8);
            let neighbours = node.stack.neighbours(NOW).count();
            for flags in [Flags::SYN, Flags::ACK] {
                node.deliver(
                    NOW,
                    &segment6(source, ME6, &header(80, 80, 1, 1, flags), b""),
                );
            }
            node.deliver(NOW, &datagram6(source, ME6));
            node.deliver(NOW, &echo6(source, ME6));
            assert!(node.transmit(NOW).is_empty(), "{name}");
            assert_eq!(node.stack.connections().count(), 0, "{name}");
            assert_eq!(node.stack.neighbours(NOW).count(), neighbours, "{name}");
        });
    }
    let destinations = [
        ("loopback", address("::1")),
        ("nobody", address("::")),
        ("somebody else", ip6(77)),
        ("mapped", address("::ffff:10.0.0.1")),
    ];
    for (name, destination) in destinations {
        with_node6(|node| {
            node.listen(80, 8);
            let syn = header(5_000, 80, 1, 0, Flags::SYN);
            let mut frames = [
                segment6(PEER6, destination, &syn, b""),
                datagram6(PEER6, destination),
                echo6(PEER6, destination),
            ];
            for frame in &mut frames {
                frame.bytes[..6].copy_from_slice(&hardware(ME).0);
                node.deliver(NOW, frame);
            }
            assert!(node.transmit(NOW).is_empty(), "{name}");
            assert_eq!(node.stack.connections().count(), 0, "{name}");
        });
    }
}

#[test]
fn a_segment_or_datagram_for_a_group_of_ipv6_is_not_answered() {
    with_node6(|node| {
        let all: Ipv6Addr = "ff02::1".parse().unwrap();
        for flags in [Flags::SYN, Flags::ACK] {
            let stray = header(5_000, 80, 1, 1, flags);
            node.deliver(NOW, &segment6(PEER6, all, &stray, b""));
        }
        node.deliver(NOW, &datagram6(PEER6, all));
        assert!(node.transmit(NOW).is_empty());
    });
}

#[test]
fn a_packet_for_this_host_in_a_frame_for_everybody_is_a_mistake() {
    // RFC 1122 §3.3.6: otherwise one frame makes every host of a link answer.
    with_node6(|node| {
        node.listen(80, 8);
        let syn = header(5_000, 80, 1, 0, Flags::SYN);
        let frames = [
            segment(ip(PEER), ip(ME), &syn, b""),
            segment6(PEER6, ME6, &syn, b""),
            datagram6(PEER6, ME6),
            echo6(PEER6, ME6),
        ];
        for station in [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1], [1, 0, 0x5e, 0, 0, 1]] {
            for mut frame in frames.clone() {
                frame.bytes[..6].copy_from_slice(&station);
                node.deliver(NOW, &frame);
                // Nor does a frame from a group come from anybody.
                frame.bytes[..6].copy_from_slice(&hardware(ME).0);
                frame.bytes[6..12].copy_from_slice(&station);
                node.deliver(NOW, &frame);
            }
        }
        assert!(node.transmit(NOW).is_empty());
        assert_eq!(node.stack.connections().count(), 0);
    });
}

#[test]
fn over_ipv4_martians_are_not_answered() {
    let sources = [
        Ipv4Addr::new(0, 1, 2, 3),
        Ipv4Addr::new(127, 255, 0, 1),
        Ipv4Addr::new(10, 0, 0, 0),
        Ipv4Addr::new(10, 0, 0, 255),
        Ipv4Addr::new(239, 1, 2, 3),
        Ipv4Addr::new(240, 0, 0, 1),
        Ipv4Addr::new(255, 255, 255, 254),
    ];
    let destinations = [
        Ipv4Addr::LOCALHOST,
        Ipv4Addr::new(127, 3, 2, 1),
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::new(10, 0, 0, 0),
    ];
    let from = sources.map(|source| (source, ip(ME)));
    let to = destinations.map(|destination| (ip(PEER), destination));
    for (source, destination) in from.into_iter().chain(to) {
        with_node6(|node| {
            node.listen(80, 8);
            for flags in [Flags::SYN, Flags::ACK] {
                let stray = header(5_000, 80, 1, 1, flags);
                node.deliver(NOW, &segment(source, destination, &stray, b""));
            }
            for (protocol, payload) in [
                (1, [8, 0, 0xf7, 0xff, 0, 0, 0, 0]),
                (17, [0, 5, 0, 6, 0, 8, 0, 0]),
            ] {
                let header = ipv4_header(source, destination, wire::ipv4::Protocol(protocol));
                node.deliver(NOW, &frame(&header, &payload));
            }
            assert!(node.transmit(NOW).is_empty(), "{source} to {destination}");
            assert_eq!(
                node.stack.connections().count(),
                0,
                "{source} to {destination}"
            );
        });
    }
}
