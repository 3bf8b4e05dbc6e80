//! What a stranger may send, and what it must not move: addresses that cannot be, quotes of what was never sent,
//! segments of connections that are not the stranger's.

use crate::tests::pair::*;
use crate::tests::peer::*;
use crate::*;
use ::tcp::{Instant, State};
use proptest::prelude::*;
use std::net::Ipv4Addr;
use wire::icmpv4::{Message, unreachable};
use wire::ipv4::Protocol;
use wire::tcp::Flags;

const NOW: Instant = Instant::from_us(1_000_000_000);
/// Its hardware address is known.
const FRIEND: Ipv4Addr = Ipv4Addr::new(10, 0, 0, PEER);

fn node(memory: &mut HeapTables) -> (Node<'_>, ListenerId) {
    let mut node = Node::new(memory.tables(), ME, NOW);
    for n in [9, 254] {
        node.knows(NOW, n);
    }
    let listener = node.listen(80, 8);
    node.transmit(NOW);
    (node, listener)
}

#[test]
fn a_syn_from_an_address_that_cannot_be_is_not_answered() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let (mut node, _) = node(&mut memory);
    let impossible = [
        ip(ME),
        Ipv4Addr::LOCALHOST,
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(10, 0, 0, 255),
        Ipv4Addr::new(224, 0, 0, 1),
    ];
    for source in impossible {
        // The first one, with equal ports, is the "LAND" packet.
        for flags in [Flags::SYN, Flags::ACK] {
            let packet = segment(source, ip(ME), &header(80, 80, 1, 1, flags), &[]);
            node.deliver(NOW, &packet);
        }
        assert!(segments(&node.transmit(NOW)).is_empty(), "{source}");
    }
    assert_eq!(node.stack.connections().count(), 0);
}

#[test]
fn a_segment_for_a_broadcast_or_multicast_address_is_not_answered() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let (mut node, _) = node(&mut memory);
    for destination in [
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(10, 0, 0, 255),
        Ipv4Addr::new(224, 0, 0, 1),
    ] {
        for flags in [Flags::SYN, Flags::ACK] {
            let packet = segment(FRIEND, destination, &header(5_000, 80, 1, 1, flags), &[]);
            node.deliver(NOW, &packet);
        }
        assert!(segments(&node.transmit(NOW)).is_empty(), "{destination}");
    }
}

/// An accepted connection with `bytes` in flight; its owner and the peer's view of its next number.
fn with_flight<'m>(memory: &'m mut HeapTables, bytes: usize) -> (Node<'m>, u64, u32) {
    let (mut node, listener) = node(memory);
    let next = node.handshake(NOW, FRIEND, 5_000, 80).unwrap();
    let owner = node.accept(listener).unwrap();
    node.write(NOW, owner, &vec![7; bytes]);
    assert!(!segments(&node.transmit(NOW)).is_empty());
    (node, owner, next)
}

/// A router's message that a segment of the connection between these ports, beginning at `seq`, was too long.
fn too_long((from, to): (u16, u16), seq: u32, quoted_len: usize) -> Flying {
    let mut quoted = vec![0; 28];
    ipv4_header(ip(ME), FRIEND, Protocol::TCP).emit(556, &mut quoted);
    quoted[20..22].copy_from_slice(&from.to_be_bytes());
    quoted[22..24].copy_from_slice(&to.to_be_bytes());
    quoted[24..28].copy_from_slice(&seq.to_be_bytes());
    let message = Message::DestinationUnreachable {
        code: unreachable::FRAGMENTATION_NEEDED,
        next_hop_mtu: 560,
        quoted: &quoted[..quoted_len],
    };
    let mut bytes = vec![0; message.emit_len()];
    message.emit(&mut bytes);
    frame(&ipv4_header(ip(254), ip(ME), Protocol::ICMP), &bytes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// RFC 5927 §4.1: only what is in flight can have met a narrow link.
    #[test]
    fn forged_path_mtus_are_believed_only_about_what_is_in_flight(
        guess in prop_oneof![any::<u32>(), (0_u32..20_000).prop_map(|near| near.wrapping_sub(10_000))],
        ports in prop_oneof![Just((80, 5_000)), any::<(u16, u16)>()],
    ) {
        let mut memory = HeapTables::new(16, 4, 4).unwrap();
        let (mut node, owner, next) = with_flight(&mut memory, 3_000);
        let id = node.id(owner);
        node.deliver(NOW, &too_long(ports, next.wrapping_add(guess), 28));
        let lowered = node.stack.path_mtu_of(NOW, id) != Some(1_500);
        let is_in_flight = ports == (80, 5_000) && guess < 3_000;
        prop_assert_eq!(lowered, is_in_flight);
        prop_assert_eq!(node.view(owner).state, State::Established);
    }

    /// RFC 5961: a stranger who knows the addresses but not the numbers.
    #[test]
    fn blind_segments_move_nothing(
        guesses in proptest::collection::vec((any::<u16>(), any::<u32>(), any::<u32>(), 0_u8..64), 1..40),
    ) {
        let mut memory = HeapTables::new(16, 4, 4).unwrap();
        let (mut node, owner, next) = with_flight(&mut memory, 3_000);
        let mut answers = 0;
        for (port, seq, ack, flags) in guesses {
            let far = |number: u32, known: u32| number.wrapping_sub(known).wrapping_add(200_000) > 400_000;
            prop_assume!(port != 5_000 || far(seq, 101) || far(ack, next));
            let flags = Flags::from_bits_truncate(flags) - Flags::SYN;
            let seq = if far(seq, 101) { seq } else { seq.wrapping_add(1 << 30) };
            node.deliver(NOW, &segment(FRIEND, ip(ME), &header(port, 80, seq, ack, flags), b"evil"));
            answers += segments(&node.transmit(NOW)).iter().filter(|sent| sent.1.destination_port == 5_000).count();
        }
        prop_assert_eq!(node.view(owner).state, State::Established);
        prop_assert!(node.received(owner).is_empty());
        prop_assert_eq!(node.view(owner).acknowledged, 0);
        prop_assert!(answers <= 40 * 4);
    }
}

#[test]
fn an_error_whose_quote_is_cut_moves_nothing() {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let (mut node, owner, next) = with_flight(&mut memory, 3_000);
    for len in 0..28 {
        node.deliver(NOW, &too_long((80, 5_000), next, len));
    }
    let id = node.id(owner);
    assert_eq!(node.stack.path_mtu_of(NOW, id), Some(1_500));
    node.deliver(NOW, &too_long((80, 5_000), next, 28));
    assert_eq!(node.stack.path_mtu_of(NOW, id), Some(560));
}
