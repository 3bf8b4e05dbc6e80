//! Tests of the Internet checksum.

use proptest::prelude::*;

use super::*;
use crate::test_support::{
    HELLO, RST, SYN, SYN_PARTIAL, UDP_HEY, hex, ipv4_address, ipv4_packet, ipv4_payload,
};

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);

/// RFC 1071 §1 word by word.
fn naive(data: &[u8]) -> u16 {
    let mut sum = 0_u64;
    for pair in data.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    u16::try_from(sum).unwrap()
}

fn pseudo_header(source: Ipv4Addr, destination: Ipv4Addr, protocol: Protocol, len: u16) -> Vec<u8> {
    let [high, low] = len.to_be_bytes();
    [
        &source.octets()[..],
        &destination.octets(),
        &[0, protocol.0, high, low],
    ]
    .concat()
}

#[test]
fn example_of_rfc_1071_has_its_sum() {
    // RFC 1071 §3.
    let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(Sum::new().add(&data).fold(), 0xddf2);
    assert_eq!(Sum::new().add(&data).finish(), 0x220d);
}

#[test]
fn nothing_and_all_ones_keep_their_zeros_apart() {
    assert_eq!(Sum::new().fold(), 0);
    assert_eq!(Sum::new().add(&[0; 300]).fold(), 0);
    assert_eq!(Sum::new().add(&[0xff; 300]).fold(), 0xffff);
    assert_eq!(Sum::new().add(&[0xff; 301]).fold(), naive(&[0xff; 301]));
    assert_eq!(Sum::new().add(&[0xff; 100_000]).add(&[0, 1]).fold(), 1);
}

#[test]
fn carry_of_the_last_fold_is_not_lost() {
    // On a little-endian machine each fold of this word but the last leaves more than 16 bits.
    let data = [0xff, 0xff, 0xff, 0xff, 0, 0, 1, 0];
    assert_eq!(Sum::new().add(&data).fold(), naive(&data));
}

#[test]
fn captured_header_and_segments_verify() {
    assert_eq!(Sum::new().add(&ipv4_packet(HELLO)[..20]).fold(), 0xffff);
    assert!(verify_tcp_v4(NEAR, FAR, &ipv4_payload(SYN)));
    assert!(verify_tcp_v4(NEAR, FAR, &ipv4_payload(HELLO)));
    assert!(verify_tcp_v4(FAR, NEAR, &ipv4_payload(RST)));
    assert!(verify_udp_v4(NEAR, FAR, &ipv4_payload(UDP_HEY)));
    assert!(!verify_tcp_v4(NEAR, FAR, &ipv4_payload(SYN_PARTIAL)));
}

#[test]
fn any_flipped_bit_of_a_segment_or_its_addresses_is_noticed() {
    let segment = ipv4_payload(HELLO);
    for bit in 0..segment.len() * 8 {
        let mut segment = segment.clone();
        segment[bit / 8] ^= 1 << (bit % 8);
        assert!(!verify_tcp_v4(NEAR, FAR, &segment), "bit {bit}");
    }
    for bit in 0..32 {
        assert!(!verify_tcp_v4(
            Ipv4Addr::from_bits(NEAR.to_bits() ^ 1 << bit),
            FAR,
            &segment
        ));
    }
    assert!(!verify_tcp_v4(NEAR, FAR, &segment[..segment.len() - 1]));
}

#[test]
fn datagram_without_checksum_is_accepted_and_a_short_one_is_not() {
    let mut datagram = ipv4_payload(UDP_HEY);
    datagram[8] ^= 1;
    assert!(!verify_udp_v4(NEAR, FAR, &datagram));
    datagram[6..8].fill(0);
    assert!(verify_udp_v4(NEAR, FAR, &datagram));
    assert!(!verify_udp_v4(NEAR, FAR, &hex("0001")));
}

#[test]
fn a_datagram_without_checksum_is_refused_over_ipv6() {
    // RFC 8200 §8.1.
    let mut datagram = ipv4_payload(UDP_HEY);
    datagram[6..8].fill(0);
    assert!(verify_udp(NEAR.into(), FAR.into(), &datagram));
    let (near, far) = (NEAR.to_ipv6_mapped(), FAR.to_ipv6_mapped());
    assert!(!verify_udp(near.into(), far.into(), &datagram));
    let sum = Sum::new().pseudo_header_v6(near, far, Protocol::UDP, datagram.len());
    let checksum = sum.add(&datagram).finish();
    datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
    assert!(verify_udp(near.into(), far.into(), &datagram));
    assert!(!verify_udp(NEAR.into(), FAR.into(), &datagram[..7]));
}

proptest! {
    #[test]
    fn a_sum_is_right_when_it_folds_to_minus_zero(
        words in proptest::collection::vec(prop_oneof![Just(0_u16), Just(0xffff), any::<u16>()], 0..40), is_made_right: bool,
    ) {
        let mut sum = words.iter().fold(Sum::new(), |sum, word| sum.add_u16(*word));
        if is_made_right {
            sum = sum.add_u16(sum.finish());
        }
        prop_assert_eq!(sum.is_right(), sum.fold() == 0xffff);
    }

    #[test]
    fn the_pseudo_header_of_ipv6_counts_like_its_bytes(
        (source, destination) in (crate::test_support::ipv6_address(), crate::test_support::ipv6_address()),
        protocol in any::<u8>().prop_map(Protocol),
        len in any::<u16>(),
    ) {
        // RFC 8200 §8.1.
        let bytes = [&source.octets()[..], &destination.octets(), &u32::from(len).to_be_bytes(), &[0, 0, 0, protocol.0]].concat();
        let sum = Sum::new().pseudo_header_v6(source, destination, protocol, usize::from(len));
        prop_assert_eq!(sum.fold(), naive(&bytes));
        let same = Sum::new().pseudo_header(source.into(), destination.into(), protocol, usize::from(len));
        prop_assert_eq!(same.fold(), sum.fold());
    }

    #[test]
    fn sum_equals_the_naive_one_however_it_is_cut(
        data in proptest::collection::vec(any::<u8>(), 0..700),
        mut cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
    ) {
        let mut cuts: Vec<usize> = cuts.drain(..).map(|cut| cut.index(data.len() + 1)).collect();
        cuts.push(data.len());
        cuts.sort_unstable();
        let (mut sum, mut start) = (Sum::new(), 0);
        for cut in cuts {
            sum = sum.add(&data[start..cut]);
            start = cut;
        }
        prop_assert_eq!(sum.fold(), naive(&data));
        prop_assert_eq!(sum.finish(), !naive(&data));
    }

    #[test]
    fn words_and_pseudo_headers_count_like_their_bytes(
        before in proptest::collection::vec(any::<u8>(), 0..5),
        value in any::<u16>(),
        (source, destination) in (ipv4_address(), ipv4_address()),
        protocol in any::<u8>().prop_map(Protocol),
        len in any::<u16>(),
        after in proptest::collection::vec(any::<u8>(), 0..5),
    ) {
        let sum = Sum::new()
            .add(&before)
            .add_u16(value)
            .pseudo_header_v4(source, destination, protocol, usize::from(len))
            .add(&after);
        let pseudo = pseudo_header(source, destination, protocol, len);
        let bytes = [&before[..], &value.to_be_bytes(), &pseudo, &after].concat();
        prop_assert_eq!(sum.fold(), naive(&bytes));
    }

    #[test]
    fn segment_with_its_checksum_in_place_verifies(
        (source, destination) in (ipv4_address(), ipv4_address()),
        mut segment in proptest::collection::vec(any::<u8>(), 20..200),
    ) {
        segment[16..18].fill(0);
        let len = segment.len();
        let checksum = Sum::new().pseudo_header_v4(source, destination, Protocol::TCP, len).add(&segment).finish();
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
        prop_assert!(verify_tcp_v4(source, destination, &segment));
    }
}
