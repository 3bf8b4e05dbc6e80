//! ECN bits of the IP header: in to the connection, out with its data (RFC 3168 §5).

use crate::tests::pair::*;
use crate::tests::peer::*;
use crate::*;
use ::tcp::Instant;
use wire::ecn::Ecn;
use wire::ipv4::Protocol;
use wire::tcp::{Flags, Header};

const NOW: Instant = Instant::from_us(1_000_000);

/// A segment of the peer in a packet marked with `mark`.
fn marked(mark: Ecn, header: &Header, payload: &[u8]) -> Flying {
    let unmarked = segment(ip(PEER), ip(ME), header, payload);
    let mut packet = ipv4_header(ip(PEER), ip(ME), Protocol::TCP);
    packet.dscp_ecn = mark.in_tos(0);
    frame(&packet, &unmarked.bytes[34..])
}

#[test]
fn marks_of_packets_are_echoed_and_new_data_carries_ect() {
    let mut memory = HeapTables::new(4, 4, 4).unwrap();
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.knows(NOW, PEER);
    node.transmit(NOW);
    let listener = node.listen(80, 4);
    let asks = Flags::SYN | Flags::ECE | Flags::CWR;
    node.deliver(NOW, &marked(Ecn::NotEct, &header(9, 80, 100, 0, asks), &[]));
    let sent = segments(&node.transmit(NOW));
    let (packet, syn_ack, _) = &sent[0];
    assert_eq!(syn_ack.flags, Flags::SYN | Flags::ACK | Flags::ECE);
    assert_eq!(Ecn::from_tos(packet.dscp_ecn), Ecn::NotEct);

    let next = syn_ack.seq.wrapping_add(1);
    node.deliver(
        NOW,
        &marked(Ecn::NotEct, &header(9, 80, 101, next, Flags::ACK), &[]),
    );
    let owner = node.accept(listener).unwrap();
    node.deliver(
        NOW,
        &marked(Ecn::Ce, &header(9, 80, 101, next, Flags::ACK), b"marked"),
    );
    let (packet, ack, _) = &segments(&node.transmit(NOW))[0];
    assert_eq!(ack.flags, Flags::ACK | Flags::ECE);
    assert_eq!(Ecn::from_tos(packet.dscp_ecn), Ecn::NotEct, "a bare ACK");

    node.write(NOW, owner, b"data");
    let (packet, _, payload) = &segments(&node.transmit(NOW))[0];
    assert_eq!(
        (Ecn::from_tos(packet.dscp_ecn), payload.as_slice()),
        (Ecn::Ect0, &b"data"[..])
    );
}

#[test]
fn a_program_cannot_set_the_bits_by_itself() {
    let mut memory = HeapTables::new(4, 4, 4).unwrap();
    let mut node = Node::new(memory.tables(), ME, NOW);
    node.knows(NOW, PEER);
    node.transmit(NOW);
    let listener = node.listen(80, 4);
    node.handshake(NOW, ip(PEER), 9, 80).unwrap();
    let owner = node.accept(listener).unwrap();
    node.write(NOW, owner, b"data");
    let (packet, ..) = &segments(&node.transmit(NOW))[0];
    assert_eq!(Ecn::from_tos(packet.dscp_ecn), Ecn::NotEct, "not agreed on");
}
