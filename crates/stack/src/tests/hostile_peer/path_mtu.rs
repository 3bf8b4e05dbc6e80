//! Messages of "routers" that would make a host send small packets, or more of them (RFC 5927 §7, RFC 6633, RFC 8201 §4).

use crate::tests::pair::*;
use crate::tests::peer::*;
use crate::tests::peer6::*;
use crate::*;
use ::tcp::{Instant, State};
use std::net::{Ipv4Addr, SocketAddr};
use wire::icmpv4::{Message, unreachable};
use wire::icmpv6::Message as Message6;
use wire::ipv4::Protocol;
use wire::tcp::Flags;

const NOW: Instant = Instant::from_us(1_000_000_000);
const FRIEND: Ipv4Addr = Ipv4Addr::new(10, 0, 0, PEER);

/// A connection of IPv4 over a path of 100 ms with full segments in flight, and the first of them.
fn with_flight(test: impl FnOnce(&mut Node<'_>, u64, Flying)) {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let begin = Instant::from_us(NOW.as_us() - 100_000);
    let mut node = Node::new(memory.tables(), ME, begin);
    for n in [PEER, 254] {
        node.knows(begin, n);
    }
    let owner = node
        .connect_from(begin, Some(4_000), SocketAddr::from((FRIEND, 80)))
        .unwrap();
    let syn = segments(&node.transmit(begin)).remove(0).1;
    let ack = syn.seq.wrapping_add(1);
    let mut syn_ack = header(80, 4_000, 900, ack, Flags::SYN | Flags::ACK);
    syn_ack.options.mss = Some(1_460);
    node.deliver(NOW, &segment(FRIEND, ip(ME), &syn_ack, &[]));
    node.transmit(NOW);
    node.write(NOW, owner, &pattern(1, 100_000));
    let large = node.transmit(NOW).remove(0);
    test(&mut node, owner, large);
}

fn icmp(message: &Message<'_>) -> Flying {
    let mut bytes = vec![0; message.emit_len()];
    message.emit(&mut bytes);
    frame(&ipv4_header(ip(254), ip(ME), Protocol::ICMP), &bytes)
}

fn too_big(segment: &Flying, next_hop_mtu: u16) -> Flying {
    icmp(&Message::DestinationUnreachable {
        code: unreachable::FRAGMENTATION_NEEDED,
        next_hop_mtu,
        quoted: &segment.bytes[14..14 + 28],
    })
}

#[test]
fn a_source_quench_slows_nothing_down() {
    // RFC 6633 §4: a host must not react.
    with_flight(|node, owner, large| {
        let before = node.stack.info(node.id(owner)).unwrap();
        let mut quench = vec![4, 0, 0, 0, 0, 0, 0, 0];
        quench.extend_from_slice(&large.bytes[14..14 + 28]);
        let sum = wire::checksum::Sum::new().add(&quench).finish();
        quench[2..4].copy_from_slice(&sum.to_be_bytes());
        for _ in 0..100 {
            node.deliver(
                NOW,
                &frame(&ipv4_header(ip(254), ip(ME), Protocol::ICMP), &quench),
            );
        }
        assert!(node.transmit(NOW).is_empty());
        let after = node.stack.info(node.id(owner)).unwrap();
        assert_eq!((after.cwnd, after.ssthresh), (before.cwnd, before.ssthresh));
        assert_eq!(node.view(owner).state, State::Established);
    });
}

#[test]
fn one_message_is_believed_once_however_often_it_comes() {
    with_flight(|node, owner, large| {
        node.deliver(NOW, &too_big(&large, 1_400));
        assert!(
            !node.transmit(NOW).is_empty(),
            "what was too long goes again"
        );
        for mtu in [1_400, 1_400, 1_450, 1_500, 65_535] {
            for _ in 0..50 {
                node.deliver(NOW, &too_big(&large, mtu));
            }
            assert!(node.transmit(NOW).is_empty(), "{mtu}");
        }
        assert_eq!(node.stack.path_mtu_of(NOW, node.id(owner)), Some(1_400));
    });
}

#[test]
fn a_ladder_of_ever_smaller_links_costs_a_flight_for_each_quarter_of_a_round_trip() {
    // RFC 5927 §7: whoever hits on what is in flight must not have it all sent again for each message.
    with_flight(|node, owner, large| {
        let mut segments = 0;
        for (mtu, us) in (0..1_400).rev().zip(0..) {
            let now = Instant::from_us(NOW.as_us() + us * 20);
            node.deliver(now, &too_big(&large, mtu));
            segments += node.transmit(now).len();
        }
        let floor = node.stack.path_mtu_of(NOW, node.id(owner));
        assert_eq!(floor, Some(552));
        // 28 ms, so at the first message and once more.
        assert!((10..=50).contains(&segments), "{segments}");
        assert_eq!(node.view(owner).state, State::Established);
    });
}

#[test]
fn links_that_are_smaller_one_after_the_other_are_found_without_a_wait() {
    // RFC 1191 §6.3: at once, when the second router has seen what the first one let through.
    with_flight(|node, owner, large| {
        for (mtu, us) in [(1_400, 0), (1_200, 30_000), (900, 70_000)] {
            let now = Instant::from_us(NOW.as_us() + us);
            node.deliver(now, &too_big(&large, mtu));
            let sent = node.transmit(now);
            assert!(sent.len() >= 10, "{mtu}: {}", sent.len());
            let longest = sent.iter().map(|frame| frame.bytes.len() - 14).max();
            assert_eq!(longest, Some(usize::from(mtu)));
        }
        assert_eq!(node.stack.path_mtu_of(NOW, node.id(owner)), Some(900));
    });
}

#[test]
fn a_link_that_ipv6_does_not_have_is_not_believed() {
    // RFC 8201 §4: discarded, not taken for the smallest link there is.
    for (mtu, expected) in [
        (0, 1_500),
        (68, 1_500),
        (1_279, 1_500),
        (1_280, 1_280),
        (1_499, 1_499),
    ] {
        with_node6(|node| {
            let owner = node
                .connect_from(NOW, Some(4_000), SocketAddr::from((PEER6, 80)))
                .unwrap();
            let syn = segments6(&node.transmit(NOW)).remove(0).1;
            let ack = syn.seq.wrapping_add(1);
            let mut syn_ack = header(80, 4_000, 900, ack, Flags::SYN | Flags::ACK);
            syn_ack.options.mss = Some(1_440);
            node.deliver(NOW, &segment6(PEER6, ME6, &syn_ack, &[]));
            node.transmit(NOW);
            node.write(NOW, owner, &pattern(1, 10_000));
            let large = node.transmit(NOW).remove(0);
            let lie = Message6::PacketTooBig {
                mtu,
                quoted: &large.bytes[14..14 + 60],
            };
            node.deliver(NOW, &icmp_frame(PEER6, ME6, 64, &lie));
            let id = node.id(owner);
            assert_eq!(node.stack.path_mtu_of(NOW, id), Some(expected), "{mtu}");
        });
    }
}
