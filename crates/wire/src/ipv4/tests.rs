//! Tests of the IPv4 header.

use proptest::prelude::*;

use super::*;
use crate::test_support::{HELLO, ipv4_address, ipv4_packet};

/// `packet` after `change`, with its header checksum made right again.
fn changed(mut packet: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut packet);
    packet[10..12].fill(0);
    let header_len = usize::from(packet[0] & 0x0f) * 4;
    let checksum = Sum::new()
        .add(&packet[..header_len.min(packet.len())])
        .finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
}

#[test]
fn captured_header_is_read_field_by_field() {
    let packet = ipv4_packet(HELLO);
    let expected = Header {
        source: Ipv4Addr::new(10, 7, 0, 1),
        destination: Ipv4Addr::new(10, 7, 0, 2),
        protocol: Protocol::TCP,
        ttl: 64,
        dscp_ecn: 0,
        identification: 0x4208,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        total_len: 57,
        header_len: 20,
    };
    assert_eq!(Header::parse(&packet), Ok((expected, &packet[20..])));
    assert!(!expected.is_fragment());

    let mut emitted = [0; 20];
    expected.emit(37, &mut emitted);
    assert_eq!(emitted, packet[..20]);
}

#[test]
fn a_plain_packet_is_read_as_any_and_others_are_not() {
    let packet = ipv4_packet(HELLO);
    assert_eq!(Header::parse_plain(&packet), Some((0, &packet[20..])));
    for at in 0..20 {
        for bit in 0..8 {
            for is_mended in [false, true] {
                let mut other = packet.clone();
                other[at] ^= 1 << bit;
                if is_mended && at != 10 && at != 11 && other[0] & 0x0f >= 5 {
                    other = changed(other, |_| ());
                }
                let any = Header::parse(&other).ok();
                let plain = any.filter(|(any, _)| any.header_len == 20 && !any.is_fragment());
                let expected = plain.map(|(any, payload)| (any.dscp_ecn, payload));
                assert_eq!(
                    Header::parse_plain(&other),
                    expected,
                    "byte {at}, bit {bit}"
                );
            }
        }
    }
    assert_eq!(Header::parse_plain(&packet[..56]), None);
}

#[test]
fn ethernet_padding_is_cut_off() {
    let mut packet = ipv4_packet(HELLO);
    packet.extend_from_slice(&[0xee; 6]);
    let (_, payload) = Header::parse(&packet).unwrap();
    assert_eq!(payload.len(), 37);
}

#[test]
fn a_merged_packet_may_be_longer_than_its_header_can_say() {
    let header = Header {
        more_fragments: false,
        ..Header::parse(&ipv4_packet(HELLO)).unwrap().0
    };
    let mut packet = vec![7; 20 + 100_000];
    header.emit(100_000, &mut packet);
    assert_eq!(Header::parse(&packet), Err(Error::Malformed));
    let (parsed, payload) = Header::parse_merged(&packet).unwrap();
    assert_eq!((parsed.total_len, payload.len()), (0, 100_000));
    let ordinary = ipv4_packet(HELLO);
    assert_eq!(Header::parse_merged(&ordinary), Header::parse(&ordinary));
}

#[test]
fn a_merged_packet_of_length_zero_is_believed_of_whole_tcp_segments_only() {
    let lies: [fn(&mut Vec<u8>); 2] = [|packet| packet[9] = 17, |packet| packet[6] = 0x20];
    for lie in lies {
        let packet = changed(ipv4_packet(HELLO), |packet| {
            packet[2..4].fill(0);
            lie(packet);
        });
        assert_eq!(Header::parse_merged(&packet), Err(Error::Malformed));
    }
}

#[test]
fn options_are_skipped() {
    let packet = changed(ipv4_packet(HELLO), |packet| {
        packet[0] = 0x47;
        packet[3] += 8;
        packet.splice(20..20, [0x94, 4, 0, 0, 0, 0, 0, 0]);
    });
    let (header, payload) = Header::parse(&packet).unwrap();
    assert_eq!((header.header_len, payload.len()), (28, 37));
    assert_eq!(payload, &ipv4_packet(HELLO)[20..]);
    for len in 0..packet.len() {
        assert_eq!(Header::parse(&packet[..len]), Err(Error::Truncated));
    }
}

#[test]
fn any_flipped_bit_of_the_header_is_refused() {
    let packet = ipv4_packet(HELLO);
    for bit in 0..20 * 8 {
        let mut packet = packet.clone();
        packet[bit / 8] ^= 1 << (bit % 8);
        assert!(Header::parse(&packet).is_err(), "bit {bit}");
    }
}

#[test]
fn contradicting_lengths_and_versions_are_malformed() {
    let parse =
        |change: fn(&mut Vec<u8>)| Header::parse(&changed(ipv4_packet(HELLO), change)).map(|_| ());
    assert_eq!(
        parse(|packet| packet[0] = 0x65),
        Err(Error::Malformed),
        "version 6"
    );
    assert_eq!(
        parse(|packet| packet[0] = 0x44),
        Err(Error::Malformed),
        "header of four words"
    );
    assert_eq!(
        parse(|packet| packet[3] = 19),
        Err(Error::Malformed),
        "shorter than its header"
    );
    assert_eq!(
        parse(|packet| packet[3] = 58),
        Err(Error::Truncated),
        "longer than the input"
    );
    assert_eq!(parse(|packet| packet[3] = 20), Ok(()), "no payload");
}

#[test]
fn fragment_past_the_largest_packet_is_malformed() {
    let parse = |units: u16, total_len: u8| {
        let packet = changed(ipv4_packet(HELLO), |packet| {
            packet.resize(usize::from(total_len), 0);
            packet[3] = total_len;
            packet[6..8].copy_from_slice(&units.to_be_bytes());
        });
        Header::parse(&packet).map(|(header, _)| header.fragment_offset)
    };
    assert_eq!(parse(8184, 63), Ok(65_472), "ends at 65535");
    assert_eq!(parse(8184, 64), Err(Error::Malformed), "ends at 65536");
    assert_eq!(parse(OFFSET_MASK, 20), Err(Error::Malformed));
}

#[test]
#[should_panic(expected = "at most 65535 bytes")]
fn emitting_an_impossible_length_is_a_bug_of_the_caller() {
    let header = Header {
        protocol: Protocol::UDP,
        ..Header::parse(&ipv4_packet(HELLO)).unwrap().0
    };
    header.emit(Header::MAX_PAYLOAD_LEN + 1, &mut [0; 20]);
}

prop_compose! {
    fn header()(
        source in ipv4_address(),
        destination in ipv4_address(),
        protocol in any::<u8>().prop_map(Protocol),
        (ttl, dscp_ecn, identification) in any::<(u8, u8, u16)>(),
        (dont_fragment, more_fragments) in any::<(bool, bool)>(),
        fragment_units in 0_u16..8100,
    ) -> Header {
        Header {
            source, destination, protocol, ttl, dscp_ecn, identification, dont_fragment, more_fragments,
            fragment_offset: fragment_units * 8,
            total_len: 0,
            header_len: Header::LEN,
        }
    }
}

proptest! {
    #[test]
    fn emitted_headers_parse_back(
        header in header(),
        payload in proptest::collection::vec(any::<u8>(), 0..100),
        padding in 0_usize..20,
    ) {
        let mut packet = vec![0; Header::LEN];
        header.emit(payload.len(), &mut packet);
        packet.extend_from_slice(&payload);
        let total_len = packet.len();
        for len in 0..total_len {
            prop_assert_eq!(Header::parse(&packet[..len]), Err(Error::Truncated));
        }
        packet.resize(total_len + padding, 0xee);
        let expected = Header { total_len: u16::try_from(total_len).unwrap(), ..header };
        prop_assert_eq!(Header::parse(&packet), Ok((expected, &payload[..])));
    }
}
