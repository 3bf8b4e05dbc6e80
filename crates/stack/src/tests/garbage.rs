//! Whatever arrives is a value, never a panic.

use super::pair::*;
use super::peer::*;
use crate::*;
use ::tcp::Instant;
use proptest::prelude::*;
use wire::ethernet::EtherType;

const NOW: Instant = Instant::from_us(1_000_000_000);

proptest! {
    #[test]
    fn any_bytes_are_survived(
        frames in proptest::collection::vec((0_u8..4, proptest::collection::vec(any::<u8>(), 0..120)), 0..20)
    ) {
        let mut memory = HeapTables::new(8, 2, 2).unwrap();
        let mut node = Node::new(memory.tables(), ME, NOW);
        node.listen(80, 2);
        for (kind, mut bytes) in frames {
            // Let most of them pass the first gates.
            if kind > 0 && bytes.len() >= 14 {
                bytes[..6].copy_from_slice(&hardware(ME).0);
                bytes[6] &= 0xfe;
                let ethertype = if kind == 1 { EtherType::ARP } else { EtherType::IPV4 };
                bytes[12..14].copy_from_slice(&ethertype.0.to_be_bytes());
            }
            let mut flying = Flying { bytes, partial: false, interface: NIC.0, segment_bytes: None };
            if kind == 3 {
                let protocol = wire::ipv4::Protocol([1, 2, 6, 17][flying.bytes.len() % 4]);
                flying = frame(&ipv4_header(ip(PEER), ip(ME), protocol), &flying.bytes);
                flying.partial = true;
            }
            node.deliver(NOW, &flying);
            node.transmit(NOW);
        }
    }

    #[test]
    fn a_hostile_peer_is_survived(operations in proptest::collection::vec(any::<u8>(), 0..600)) {
        crate::fuzzing::hostile_peer(&operations);
    }

    #[test]
    fn on_a_hostile_link_exactly_the_members_hear_a_group(
        operations in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        crate::fuzzing::groups::hostile_link(&operations);
    }

    #[test]
    fn damaged_frames_of_a_real_connection_are_survived(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut memory = memory(8, 8);
        let mut pair = Pair::new(&mut memory, 1);
        pair.nodes[1].listen(80, 5);
        let client = pair.nodes[0].connect(pair.now, ip(2), 80);
        pair.run(ms(20));
        pair.nodes[0].write(pair.now, client, &pattern(1, 3_000));
        let now = pair.now;
        for mut flying in pair.nodes[0].transmit(now) {
            for (place, value) in &damage {
                let place = place.index(flying.bytes.len());
                flying.bytes[place] ^= value;
            }
            flying.bytes.truncate(cut.index(flying.bytes.len()) + 1);
            flying.partial = true;
            pair.nodes[1].deliver(now, &flying);
        }
        pair.run(ms(2_000));
    }
}
