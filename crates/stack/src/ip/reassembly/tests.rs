//! The table on its own: what it puts together, what it refuses, and what it may cost.

use super::*;
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;

const NOW: Instant = Instant::from_us(5_000_000);
const HEADERS: [u8; 20] = [0x45; 20];

fn table(packets: usize, blocks: usize) -> Reassembly {
    Reassembly::new(&Config {
        fragmented_packets_max: packets,
        fragment_bytes_max: blocks * BLOCK,
        ..Config::new([1; 16])
    })
}

fn v4(peer: u32, identification: u16) -> FourTuple {
    let remote = Ipv4Addr::from_bits(0x0a00_0000 + peer);
    FourTuple::new(
        Ipv4Addr::LOCALHOST.into(),
        17,
        remote.into(),
        identification,
    )
}

fn v6(peer: u128, identification: u16) -> FourTuple {
    let remote = Ipv6Addr::from_bits((0x2001_0db8 << 96) + peer);
    FourTuple::new(Ipv6Addr::LOCALHOST.into(), 0, remote.into(), identification)
}

fn piece(key: FourTuple, offset: u16, more: bool, bytes: &[u8]) -> Piece<'_> {
    Piece {
        key,
        headers: &HEADERS,
        named_at: 6,
        offset,
        more,
        bytes,
        ecn: Ecn::NotEct,
        interface: InterfaceId(0),
        station: ethernet::Address([2; 6]),
    }
}

/// The packet that these fragments make, with its ECN bits.
fn put_together(table: &mut Reassembly, pieces: &[Piece<'_>]) -> Option<(Vec<u8>, Ecn)> {
    let mut counters = Counters::default();
    let mut out = vec![0; ASSEMBLED_MAX];
    let mut whole = None;
    for piece in pieces {
        assert_eq!(whole, None, "complete before the last fragment");
        whole = table.take(NOW, piece, &mut counters);
    }
    let assembled = table.assemble(whole?, &mut out)?;
    assert_eq!(out[..assembled.headers_len], HEADERS);
    let data = out[assembled.headers_len..assembled.len].to_vec();
    Some((data, assembled.ecn))
}

proptest! {
    #[test]
    fn fragments_in_any_order_make_the_packet(
        len in 9_usize..=65_535,
        step in 1_usize..400,
        shuffle in any::<u64>(),
    ) {
        let data: Vec<u8> = (0..=250).cycle().take(len).collect();
        let mut table = table(4, 128);
        let chunks: Vec<_> = data.chunks(step * 8).collect();
        let count = chunks.len();
        let mut pieces: Vec<_> = chunks.iter().enumerate().map(|(n, bytes)| {
            piece(v4(1, 1), u16::try_from(n * step * 8).unwrap(), n + 1 < count, bytes)
        }).collect();
        let mut state = shuffle | 1;
        for n in (1..pieces.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            pieces.swap(n, usize::try_from(state >> 33).unwrap() % (n + 1));
        }
        prop_assert_eq!(put_together(&mut table, &pieces), Some((data.clone(), Ecn::NotEct)));
        prop_assert!(table.is_empty());
    }

    #[test]
    fn hostile_fragments_agree_with_a_naive_oracle(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        crate::fuzzing::fragments(&bytes);
    }

    #[test]
    fn whatever_strangers_send_the_table_keeps_its_bounds(
        fragments in proptest::collection::vec((0_u32..6, 0_u16..8, 0_u16..60, 1_usize..900, any::<bool>()), 0..300),
    ) {
        let data = [7; 900 * 8];
        let (mut table, mut counters) = (table(8, 16), Counters::default());
        let mut out = vec![0; ASSEMBLED_MAX];
        for (peer, identification, at, len, more) in fragments {
            let one = piece(v4(peer, identification), at * 8 * 16, more, &data[..len * 8]);
            if let Some(whole) = table.take(NOW, &one, &mut counters) {
                table.assemble(whole, &mut out);
            }
            let used: u32 = table.shares.iter().map(|share| share.blocks).sum();
            prop_assert_eq!(used as usize + table.free_blocks.len(), 16);
            prop_assert!(table.shares.iter().all(|share| share.blocks <= 4 && share.rows.len() <= 2));
        }
        let end = NOW + LIFETIME_V4;
        while let Some(late) = table.expired(end) {
            table.give_up(late);
        }
        prop_assert!(table.is_empty());
    }
}

#[test]
fn a_flood_of_one_peer_costs_other_peers_nothing() {
    let (mut table, mut counters) = (table(64, 64), Counters::default());
    let honest = piece(v4(1, 1), 0, true, &[1; 8]);
    assert_eq!(table.take(NOW, &honest, &mut counters), None);
    for identification in 0..2_000 {
        let one = piece(v4(2, identification), 8, true, &[2; 16]);
        assert_eq!(table.take(NOW, &one, &mut counters), None);
    }
    let rest = piece(v4(1, 1), 8, false, &[1; 8]);
    assert!(table.take(NOW, &rest, &mut counters).is_some());
}

#[test]
fn hosts_of_one_ipv6_subnet_share_what_one_may_have() {
    let (mut table, mut counters) = (table(64, 64), Counters::default());
    for host in 0..2_000 {
        let one = piece(v6(host, 1), 8, true, &[2; 16]);
        assert_eq!(table.take(NOW, &one, &mut counters), None);
    }
    assert_eq!(table.rows.len() - table.free_rows.len(), 16);
}

#[test]
fn when_all_is_full_the_oldest_goes() {
    let (mut table, mut counters) = (table(8, 64), Counters::default());
    for peer in 0..9 {
        let one = piece(v4(peer * 0x101, 1), 0, true, &[2; 16]);
        let later = NOW + Duration::from_us(u64::from(peer));
        assert_eq!(table.take(later, &one, &mut counters), None);
    }
    assert_eq!(counters.ip_reasm_fails, 1);
    assert_eq!(table.index.find(&v4(0, 1)), None);
    assert!(table.index.find(&v4(0x101, 1)).is_some());
}

#[test]
fn a_duplicate_is_ignored_and_one_with_other_bytes_discards_the_packet() {
    let mut table = table(8, 64);
    let (first, last) = (
        piece(v4(1, 1), 0, true, &[1; 16]),
        piece(v4(1, 1), 16, false, &[2; 3]),
    );
    let whole = put_together(&mut table, &[first, first, last]).unwrap().0;
    assert_eq!(whole, [[1; 16].as_slice(), &[2; 3]].concat());
    let forged = piece(v4(1, 1), 8, true, &[9; 8]);
    assert_eq!(put_together(&mut table, &[first, forged, last]), None);
}

#[test]
fn an_overlap_refuses_what_is_still_to_come_of_an_ipv6_packet() {
    let (mut table, mut counters) = (table(8, 64), Counters::default());
    let forged = piece(v6(1, 1), 8, true, &[9; 16]);
    let pieces = [
        piece(v6(1, 1), 0, true, &[1; 16]),
        forged,
        piece(v6(1, 1), 0, true, &[1; 16]),
        piece(v6(1, 1), 16, false, &[1; 3]),
    ];
    assert_eq!(put_together(&mut table, &pieces), None);
    assert_eq!(table.free_blocks.len(), 64, "it costs no bytes");
    let next = table.take(NOW, &piece(v6(1, 2), 0, true, &[1; 8]), &mut counters);
    assert_eq!(next, None);
    let late = table.expired(NOW + LIFETIME_V6).unwrap();
    assert!(table.give_up(late), "it was refused");
}

#[test]
fn a_second_end_discards_the_packet() {
    for (offset, more) in [(8, false), (24, false), (24, true)] {
        let mut table = table(8, 64);
        let pieces = [
            piece(v4(1, 1), 16, false, &[1; 8]),
            piece(v4(1, 1), offset, more, &[1; 8]),
            piece(v4(1, 1), 0, true, &[1; 16]),
        ];
        assert_eq!(put_together(&mut table, &pieces), None, "{offset} {more}");
    }
}

/// RFC 3168 §5.3, and what Linux makes of the rest.
#[test]
fn the_ecn_bits_of_fragments_are_combined() {
    use Ecn::{Ce, Ect0, Ect1, NotEct};
    for (first, second, expected) in [
        (NotEct, NotEct, Some(NotEct)),
        (Ect0, Ce, Some(Ce)),
        (Ce, Ect1, Some(Ce)),
        (Ce, Ce, Some(Ce)),
        (Ect0, Ect0, Some(Ect0)),
        (NotEct, Ce, None),
        (Ect0, NotEct, None),
    ] {
        let mut table = table(8, 64);
        let headers = [0x45, first as u8, 0, 0];
        let pieces = [
            Piece {
                ecn: first,
                headers: &headers,
                ..piece(v4(1, 1), 0, true, &[1; 8])
            },
            Piece {
                ecn: second,
                ..piece(v4(1, 1), 8, false, &[1; 8])
            },
        ];
        let mut counters = Counters::default();
        let mut out = vec![0; ASSEMBLED_MAX];
        assert_eq!(table.take(NOW, &pieces[0], &mut counters), None);
        let whole = table.take(NOW, &pieces[1], &mut counters).unwrap();
        let combined = table
            .assemble(whole, &mut out)
            .map(|assembled| assembled.ecn);
        assert_eq!(combined, expected, "{first:?} {second:?}");
        assert!(table.is_empty());
    }
}

#[test]
fn packets_are_given_up_after_their_time() {
    let (mut table, mut counters) = (table(8, 64), Counters::default());
    table.take(NOW, &piece(v6(1, 1), 0, true, &[1; 8]), &mut counters);
    let later = NOW + Duration::from_secs(1);
    table.take(later, &piece(v4(1, 1), 8, true, &[1; 8]), &mut counters);
    assert_eq!(table.next_deadline(), Some(later + LIFETIME_V4));
    assert_eq!(table.expired(later + Duration::from_secs(29)), None);
    let first = table.expired(later + LIFETIME_V4).unwrap();
    assert_eq!(table.quote(first, &mut [0; 100]), 0, "no first fragment");
    assert!(!table.give_up(first));
    assert_eq!(table.next_deadline(), Some(NOW + LIFETIME_V6));
    let second = table.expired(NOW + LIFETIME_V6).unwrap();
    assert_eq!(table.quote(second, &mut [0; 100]), HEADERS.len() + 8);
}
