//! Tests of ICMPv6 and neighbour discovery.

use proptest::prelude::*;

use super::ndp::{Options, PrefixInformation, RouterAdvertisement};
use super::*;
use crate::ethernet::Address;

fn near() -> Ipv6Addr {
    "fe80::1".parse().unwrap()
}

fn far() -> Ipv6Addr {
    "fe80::2".parse().unwrap()
}

fn emitted(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = vec![0xaa; message.emit_len()];
    assert_eq!(message.emit(near(), far(), &mut bytes), bytes.len());
    bytes
}

#[test]
fn a_solicitation_has_the_bytes_of_rfc_4861() {
    let option = ndp::source_link_layer(Address([2, 0, 0, 0, 0, 1]));
    let message = Message::Ndp(ndp::Message::NeighbourSolicitation {
        target: far(),
        options: Options::parse(&option).unwrap(),
    });
    let bytes = emitted(&message);
    let expected = crate::test_support::hex(
        "8700 0000 00000000 fe800000000000000000000000000002 0101 020000000001",
    );
    assert_eq!((&bytes[..2], &bytes[4..]), (&expected[..2], &expected[4..]));
    assert_eq!(Message::parse(near(), far(), &bytes), Ok(message));
}

#[test]
fn the_checksum_covers_the_addresses() {
    let message = Message::EchoRequest {
        identifier: 1,
        sequence: 2,
        data: b"data",
    };
    let bytes = emitted(&message);
    assert_eq!(Message::parse(near(), far(), &bytes), Ok(message));
    let other = "fe80::3".parse().unwrap();
    assert_eq!(Message::parse(other, far(), &bytes), Err(Error::Checksum));
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(
            Message::parse(near(), far(), &bytes),
            Err(Error::Checksum),
            "bit {bit}"
        );
    }
}

#[test]
fn options_without_length_or_past_the_end_are_malformed() {
    for options in [
        &[1_u8, 0, 0, 0, 0, 0, 0, 0][..],
        &[1, 2, 0, 0, 0, 0, 0, 0],
        &[1],
    ] {
        assert_eq!(Options::parse(options), Err(Error::Malformed));
    }
}

#[test]
fn known_options_are_found_among_unknown_ones() {
    let hardware = Address([2, 0, 0, 0, 0, 9]);
    let prefix = PrefixInformation {
        prefix: "2001:db8::".parse().unwrap(),
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_lifetime_s: 2_592_000,
        preferred_lifetime_s: 604_800,
    };
    let unknown = [200, 1, 0, 0, 0, 0, 0, 0];
    let bytes = [
        &unknown[..],
        &prefix.to_bytes(),
        &ndp::mtu_option(1_400),
        &ndp::source_link_layer(hardware),
    ]
    .concat();
    let options = Options::parse(&bytes).unwrap();
    assert_eq!(options.source_link_layer(), Some(hardware));
    assert_eq!(options.target_link_layer(), None);
    assert_eq!(options.mtu(), Some(1_400));
    assert_eq!(options.prefixes().collect::<Vec<_>>(), [prefix]);
    assert_eq!(options.iter().count(), 4);
}

#[test]
fn errors_are_told_from_information() {
    let other = |kind| Message::Other {
        kind,
        code: 0,
        body: &[],
    };
    assert!(other(100).is_error());
    assert!(!other(143).is_error());
    assert!(
        Message::PacketTooBig {
            mtu: 1_280,
            quoted: &[]
        }
        .is_error()
    );
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    let option = (
        any::<u8>(),
        proptest::collection::vec(any::<[u8; 8]>(), 1..4),
    )
        .prop_map(|(kind, words)| {
            let mut bytes = words.concat();
            bytes[0] = kind;
            bytes[1] = u8::try_from(words.len()).unwrap();
            bytes
        });
    proptest::collection::vec(option, 0..4).prop_map(|options| options.concat())
}

fn check(message: &Message<'_>) -> Result<(), TestCaseError> {
    let bytes = emitted(message);
    prop_assert_eq!(Message::parse(near(), far(), &bytes), Ok(*message));
    for len in 0..bytes.len().min(COMMON_LEN) {
        prop_assert_eq!(
            Message::parse(near(), far(), &bytes[..len]),
            Err(Error::Truncated)
        );
    }
    for len in COMMON_LEN..bytes.len() {
        prop_assert!(Message::parse(near(), far(), &bytes[..len]) != Ok(*message));
    }
    Ok(())
}

proptest! {
    #[test]
    fn emitted_errors_and_echoes_parse_back(
        data in proptest::collection::vec(any::<u8>(), 0..60),
        (code, word) in any::<(u8, u32)>(),
        (identifier, sequence) in any::<(u16, u16)>(),
        kind in prop_oneof![5_u8..128, 130_u8..133, 138_u8..=255],
    ) {
        let (quoted, data) = (&data[..], &data[..]);
        check(&Message::DestinationUnreachable { code, quoted })?;
        check(&Message::PacketTooBig { mtu: word, quoted })?;
        check(&Message::TimeExceeded { code, quoted })?;
        check(&Message::ParameterProblem { code, pointer: word, quoted })?;
        check(&Message::EchoRequest { identifier, sequence, data })?;
        check(&Message::EchoReply { identifier, sequence, data })?;
        check(&Message::Other { kind, code, body: data })?;
    }

    #[test]
    fn emitted_neighbour_discovery_parses_back(
        options in options(),
        target in crate::test_support::ipv6_address(),
        (router, solicited, overrides) in any::<(bool, bool, bool)>(),
        (hop_limit, flags, router_lifetime_s) in any::<(u8, u8, u16)>(),
        (reachable_time_ms, retransmission_time_ms) in any::<(u32, u32)>(),
    ) {
        let options = Options::parse(&options).unwrap();
        check(&Message::Ndp(ndp::Message::RouterSolicitation { options }))?;
        check(&Message::Ndp(ndp::Message::NeighbourSolicitation { target, options }))?;
        check(&Message::Ndp(ndp::Message::NeighbourAdvertisement { target, router, solicited, overrides, options }))?;
        check(&Message::Ndp(ndp::Message::Redirect { target, destination: target, options }))?;
        check(&Message::Ndp(ndp::Message::RouterAdvertisement(RouterAdvertisement {
            hop_limit, flags, router_lifetime_s, reachable_time_ms, retransmission_time_ms, options,
        })))?;
    }

    #[test]
    fn emitted_prefixes_parse_back(
        prefix in crate::test_support::ipv6_address(),
        (prefix_len, on_link, autonomous) in any::<(u8, bool, bool)>(),
        (valid_lifetime_s, preferred_lifetime_s) in any::<(u32, u32)>(),
    ) {
        let option = PrefixInformation { prefix, prefix_len, on_link, autonomous, valid_lifetime_s, preferred_lifetime_s };
        let bytes = option.to_bytes();
        prop_assert_eq!(Options::parse(&bytes).unwrap().prefixes().collect::<Vec<_>>(), [option]);
    }
}
