//! Tests of the extension headers.

use proptest::prelude::*;

use super::*;

const TCP: u8 = 6;

/// An IPv6 packet with these bytes behind its header.
fn packet(next_header: u8, rest: &[u8]) -> Vec<u8> {
    let header = Header {
        source: "2001:db8::1".parse().unwrap(),
        destination: "2001:db8::2".parse().unwrap(),
        next_header: Protocol(next_header),
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
    };
    let mut packet = vec![0; Header::LEN];
    header.emit(rest.len(), &mut packet);
    packet.extend_from_slice(rest);
    packet
}

fn walk_all(packet: &[u8]) -> Result<Chain<'_>, Problem> {
    let (header, _) = Header::parse(packet).unwrap();
    walk(packet, Start::behind(&header))
}

fn report(code: u8, pointer: usize, even_for_groups: bool) -> Problem {
    Problem::Report {
        code,
        pointer,
        even_for_groups,
    }
}

#[test]
fn a_packet_without_extension_headers_is_its_payload() {
    let packet = packet(TCP, b"segment");
    let chain = walk_all(&packet).unwrap();
    assert_eq!(
        (chain.protocol, chain.payload, chain.payload_at),
        (Protocol::TCP, &b"segment"[..], 40)
    );
    assert_eq!(chain.next_header_at, 6);
}

#[test]
fn options_and_a_spent_route_are_skipped() {
    let bytes = [
        &[60, 0, 5, 2, 0, 0, 0, 0][..], // hop-by-hop: router alert, two Pad1
        &[43, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], // destination: PadN
        &[TCP, 0, 0, 0, 0, 0, 0, 0],    // routing type 0, nothing left
        b"segment",
    ]
    .concat();
    let packet = packet(0, &bytes);
    let chain = walk_all(&packet).unwrap();
    assert_eq!(
        (chain.protocol, chain.payload),
        (Protocol::TCP, &b"segment"[..])
    );
    assert!(chain.router_alert);
    assert_eq!((chain.payload_at, chain.next_header_at), (72, 64));
}

#[test]
fn a_route_with_segments_left_is_refused_whatever_its_type() {
    // RFC 5095 §3: type 0 as any unknown type.
    for kind in [0, 2, 4, 253] {
        let packet = packet(43, &[TCP, 0, kind, 1, 0, 0, 0, 0]);
        assert_eq!(walk_all(&packet), Err(report(0, 42, false)));
    }
}

#[test]
fn hop_by_hop_options_anywhere_but_first_are_not_recognized() {
    let packet = packet(60, &[0, 0, 1, 4, 0, 0, 0, 0, TCP, 0, 1, 4, 0, 0, 0, 0]);
    assert_eq!(walk_all(&packet), Err(report(1, 40, false)));
}

#[test]
fn unknown_options_do_what_their_highest_bits_say() {
    // RFC 8200 §4.2.
    let with_option = |kind| packet(60, &[TCP, 0, 1, 0, kind, 2, 0, 0]);
    assert!(walk_all(&with_option(0x1e)).is_ok());
    assert_eq!(walk_all(&with_option(0x5e)), Err(Problem::Discard));
    assert_eq!(walk_all(&with_option(0x9e)), Err(report(2, 44, true)));
    assert_eq!(walk_all(&with_option(0xde)), Err(report(2, 44, false)));
}

#[test]
fn an_option_longer_than_its_header_is_dropped() {
    let cut = packet(60, &[TCP, 0, 1, 5, 0, 0, 0, 0]);
    assert_eq!(walk_all(&cut), Err(Problem::Discard));
    let cut = packet(60, &[TCP, 0, 0, 0, 0, 0, 0, 0x1e]);
    assert_eq!(walk_all(&cut), Err(Problem::Discard));
}

#[test]
fn an_endless_chain_is_given_up() {
    let one = [60, 0, 1, 4, 0, 0, 0, 0];
    assert_eq!(
        walk_all(&packet(60, &one.repeat(100))),
        Err(Problem::Discard)
    );
    let mut many = [&one[..]; HEADERS_MAX - 1].concat();
    let last = many.len() - 8;
    many[last] = TCP;
    assert!(walk_all(&packet(60, &many)).is_ok());
}

#[test]
fn many_options_are_given_up_and_much_padding_is_not() {
    let mut bytes = vec![TCP, 3];
    bytes.extend_from_slice(&[0x1e, 0].repeat(15));
    assert_eq!(walk_all(&packet(60, &bytes)), Err(Problem::Discard));
    bytes[2..].fill(0);
    assert!(walk_all(&packet(60, &bytes)).is_ok());
}

#[test]
fn a_part_ends_the_walk_and_an_atomic_fragment_does_not() {
    let mut bytes = [0; 24];
    let header = Fragment {
        next_header: Protocol::DESTINATION_OPTIONS,
        offset: 0,
        more: true,
        identification: 7,
    };
    header.emit(&mut bytes);
    bytes[8..16].copy_from_slice(&[TCP, 0, 1, 4, 0, 0, 0, 0]);
    let first = packet(44, &bytes);
    let chain = walk_all(&first).unwrap();
    let (at, named_at) = (40, 6);
    let part = FragmentPart {
        header,
        at,
        named_at,
    };
    assert_eq!(chain.fragment, Some(part));
    assert_eq!(
        (chain.protocol, chain.payload.len(), chain.payload_at),
        (Protocol::DESTINATION_OPTIONS, 16, 48)
    );
    assert_eq!(chain.next_header_at, 40);
    let whole = Fragment {
        more: false,
        ..header
    };
    whole.emit(&mut bytes);
    let atomic = packet(44, &bytes);
    let chain = walk_all(&atomic).unwrap();
    assert_eq!((chain.fragment, chain.protocol), (None, Protocol::TCP));
    assert!(chain.is_marked_fragment);
    assert_eq!(chain.payload.len(), 8);
}

proptest! {
    #[test]
    fn emitted_fragment_headers_parse_back(
        (next_header, more, identification) in any::<(u8, bool, u32)>(),
        offset in 0_u16..=8_191,
    ) {
        let header = Fragment { next_header: Protocol(next_header), offset: offset * 8, more, identification };
        let mut bytes = [0xaa; 10];
        header.emit(&mut bytes);
        prop_assert_eq!(Fragment::parse(&bytes), Ok((header, &[0xaa; 2][..])));
        for len in 0..Fragment::LEN {
            prop_assert_eq!(Fragment::parse(&bytes[..len]), Err(Error::Truncated));
        }
    }

    #[test]
    fn any_chain_ends_within_the_packet(
        next_header in proptest::sample::select(vec![0_u8, 43, 44, 59, 60, TCP]),
        bytes in proptest::collection::vec(proptest::sample::select(vec![0_u8, 1, 2, 5, 43, 44, 60, 0x9e, TCP, 255]), 0..200),
    ) {
        let packet = packet(next_header, &bytes);
        match walk_all(&packet) {
            Ok(chain) => {
                prop_assert_eq!(&packet[chain.payload_at..], chain.payload);
                prop_assert_eq!(packet[chain.next_header_at], chain.protocol.0);
            }
            Err(Problem::Report { pointer, .. }) => prop_assert!(pointer < packet.len()),
            Err(Problem::Discard) => {}
        }
    }
}
