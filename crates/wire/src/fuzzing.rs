//! The body of the `wire_parse` fuzz target, here so that ordinary tests run it too.
//!
//! It checks what must hold for any input: no panic, payloads that lie within the input, and headers
//! that come back equal when they are emitted and parsed again.

use crate::checksum::{self, Sum};
use crate::{Error, arp, ethernet, icmpv4, icmpv6, igmp, ipv4, ipv6, mld, tcp, udp, virtio};
use core::net::{IpAddr, Ipv6Addr};

/// Follows the layers of a frame as a receiver would, then offers the same bytes to every parser.
pub fn parse_any(data: &[u8]) {
    check_ethernet(data);
    check_arp(data);
    check_ipv4(data);
    check_ipv6(data);
    check_icmpv4(data);
    check_igmp(data);
    check_icmpv6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, data);
    check_tcp(data);
    check_udp(data);
    check_virtio(data);
}

fn check_ethernet(data: &[u8]) {
    let Ok((header, payload)) = ethernet::Header::parse(data) else {
        assert!(data.len() < ethernet::Header::LEN);
        return;
    };
    let mut emitted = [0; ethernet::Header::LEN];
    header.emit(&mut emitted);
    assert_eq!(emitted, data[..ethernet::Header::LEN]);
    assert_eq!(payload, &data[ethernet::Header::LEN..]);
    match header.ethertype {
        ethernet::EtherType::ARP => check_arp(payload),
        ethernet::EtherType::IPV4 => check_ipv4(payload),
        ethernet::EtherType::IPV6 => check_ipv6(payload),
        _ => {}
    }
}

fn check_arp(data: &[u8]) {
    let Ok(packet) = arp::Packet::parse(data) else {
        return;
    };
    let mut emitted = [0; arp::Packet::LEN];
    packet.emit(&mut emitted);
    assert_eq!(emitted, data[..arp::Packet::LEN]);
}

fn check_ipv4(data: &[u8]) {
    let repaired;
    let data = match ipv4::Header::parse(data) {
        // Chance will not find the checksum; beyond it lies all the rest.
        Err(Error::Checksum) => {
            let header_len = usize::from(data[0] & 0x0f) * 4;
            repaired = with_checksum(data, 10, header_len);
            &repaired
        }
        _ => data,
    };
    let Ok((header, payload)) = ipv4::Header::parse(data) else {
        return;
    };
    assert_eq!(
        header.header_len + payload.len(),
        usize::from(header.total_len)
    );
    assert_eq!(
        payload,
        &data[header.header_len..usize::from(header.total_len)]
    );

    let mut emitted = vec![0; ipv4::Header::LEN];
    header.emit(payload.len(), &mut emitted);
    emitted.extend_from_slice(payload);
    let (again, payload_again) = ipv4::Header::parse(&emitted).expect("an emitted header parses");
    let without_options = ipv4::Header {
        total_len: again.total_len,
        header_len: ipv4::Header::LEN,
        ..header
    };
    assert_eq!((again, payload_again), (without_options, payload));

    match header.protocol {
        ipv4::Protocol::ICMP => check_icmpv4(payload),
        ipv4::Protocol::IGMP => check_igmp(payload),
        ipv4::Protocol::TCP => {
            let _ = checksum::verify_tcp_v4(header.source, header.destination, payload);
            check_tcp(payload);
        }
        ipv4::Protocol::UDP => {
            let _ = checksum::verify_udp_v4(header.source, header.destination, payload);
            check_udp(payload);
        }
        _ => {}
    }
}

fn check_ipv6(data: &[u8]) {
    let Ok((header, payload)) = ipv6::Header::parse(data) else {
        return;
    };
    let packet = &data[..ipv6::Header::LEN + payload.len()];
    let mut emitted = vec![0; ipv6::Header::LEN];
    header.emit(payload.len(), &mut emitted);
    assert_eq!(emitted, packet[..ipv6::Header::LEN]);

    let start = ipv6::extension::Start::behind(&header);
    let chain = match ipv6::extension::walk(packet, start) {
        Ok(chain) => chain,
        Err(ipv6::extension::Problem::Report { pointer, .. }) => {
            assert!(
                pointer < packet.len(),
                "the pointer names a byte of the packet"
            );
            return;
        }
        Err(ipv6::extension::Problem::Discard) => return,
    };
    assert_eq!(chain.payload, &packet[chain.payload_at..]);
    assert_eq!(packet[chain.next_header_at], chain.protocol.0);
    if let Some(part) = chain.fragment {
        let fragment = part.header;
        let mut emitted = [0; ipv6::extension::Fragment::LEN];
        fragment.emit(&mut emitted);
        let again = ipv6::extension::Fragment::parse(&emitted);
        assert_eq!(again, Ok((fragment, &[][..])));
        return;
    }
    let (source, destination) = (IpAddr::V6(header.source), IpAddr::V6(header.destination));
    match chain.protocol {
        ipv6::Protocol::ICMPV6 => check_icmpv6(header.source, header.destination, chain.payload),
        ipv6::Protocol::TCP => {
            let _ = checksum::verify(source, destination, chain.protocol, chain.payload);
            check_tcp(chain.payload);
        }
        ipv6::Protocol::UDP => {
            let _ = checksum::verify_udp(source, destination, chain.payload);
            check_udp(chain.payload);
        }
        _ => {}
    }
}

fn check_icmpv6(source: Ipv6Addr, destination: Ipv6Addr, data: &[u8]) {
    let repaired;
    let data = match icmpv6::Message::parse(source, destination, data) {
        Err(Error::Checksum) => {
            let mut bytes = data.to_vec();
            bytes[2..4].fill(0);
            let checksum = Sum::new()
                .pseudo_header_v6(source, destination, ipv6::Protocol::ICMPV6, bytes.len())
                .add(&bytes)
                .finish();
            bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
            repaired = bytes;
            &repaired
        }
        _ => data,
    };
    let Ok(message) = icmpv6::Message::parse(source, destination, data) else {
        return;
    };
    if let icmpv6::Message::Ndp(icmpv6::ndp::Message::RouterAdvertisement(advertisement)) = message
    {
        let options = advertisement.options;
        assert!(options.prefixes().count() <= options.iter().count());
        let _ = (options.mtu(), options.source_link_layer());
    }
    if let icmpv6::Message::Other { kind, body, .. } = message
        && let Ok(mld::Message::Query(query)) = mld::Message::parse(kind, body)
    {
        assert!(query.sources().count() * 16 <= body.len());
    }
    let mut emitted = vec![0; message.emit_len()];
    assert_eq!(
        message.emit(source, destination, &mut emitted),
        emitted.len()
    );
    let again = icmpv6::Message::parse(source, destination, &emitted);
    assert_eq!(again, Ok(message));
}

fn check_igmp(data: &[u8]) {
    let repaired;
    let data = match igmp::Message::parse(data) {
        Err(Error::Checksum) => {
            repaired = with_checksum(data, 2, data.len());
            &repaired
        }
        _ => data,
    };
    if let Ok(igmp::Message::Query(query)) = igmp::Message::parse(data) {
        assert!(query.sources().count() * 4 <= data.len());
    }
}

fn check_icmpv4(data: &[u8]) {
    let repaired;
    let data = match icmpv4::Message::parse(data) {
        Err(Error::Checksum) => {
            repaired = with_checksum(data, 2, data.len());
            &repaired
        }
        _ => data,
    };
    let Ok(message) = icmpv4::Message::parse(data) else {
        assert!(data.len() < icmpv4::HEADER_LEN);
        return;
    };
    let mut emitted = vec![0; message.emit_len()];
    assert_eq!(message.emit(&mut emitted), emitted.len());
    assert_eq!(icmpv4::Message::parse(&emitted), Ok(message));
}

fn check_tcp(data: &[u8]) {
    let Ok((header, payload)) = tcp::Header::parse(data) else {
        return;
    };
    assert!(data.len() - payload.len() <= tcp::Header::MAX_LEN);
    assert!(data.ends_with(payload));

    let mut emitted = [0; tcp::Header::MAX_LEN];
    let len = header.emit(&mut emitted);
    assert_eq!(len, header.header_len());
    let (again, rest) = tcp::Header::parse(&emitted[..len]).expect("an emitted header parses");
    assert!(rest.is_empty());
    // Packed options have room for a block more than aligned ones.
    let mut expected = header;
    expected.options.sack = tcp::SackBlocks::new();
    for (left, right) in header
        .options
        .sack
        .iter()
        .take(header.options.sack_capacity())
    {
        expected.options.sack.push(left, right);
    }
    assert_eq!(again, expected);
}

fn check_udp(data: &[u8]) {
    let Ok((header, payload)) = udp::Header::parse(data) else {
        return;
    };
    assert_eq!(payload, &data[udp::Header::LEN..][..payload.len()]);
    let mut emitted = vec![0; udp::Header::LEN];
    header.emit(payload.len(), &mut emitted);
    emitted.extend_from_slice(payload);
    assert_eq!(udp::Header::parse(&emitted), Ok((header, payload)));
}

fn check_virtio(data: &[u8]) {
    let Ok((header, frame)) = virtio::NetHeader::parse(data) else {
        assert!(data.len() < virtio::NetHeader::LEN);
        return;
    };
    let mut emitted = [0; virtio::NetHeader::LEN];
    header.emit(&mut emitted);
    assert_eq!(emitted, data[..virtio::NetHeader::LEN]);

    let start = usize::from(header.csum_start);
    let mut completed = frame.to_vec();
    match virtio::fill_partial(&mut completed, header.csum_start, header.csum_offset) {
        Ok(()) => {
            let field = start + usize::from(header.csum_offset);
            completed[field..field + 2].copy_from_slice(&frame[field..field + 2]);
            assert_eq!(completed, frame, "only the field may change");
        }
        Err(_) => assert_eq!(completed, frame, "a refused frame stays as it was"),
    }
}

/// `data` with the checksum of its first `covered` bytes put at offset `field`.
fn with_checksum(data: &[u8], field: usize, covered: usize) -> Vec<u8> {
    let mut data = data.to_vec();
    data[field..field + 2].fill(0);
    let checksum = Sum::new().add(&data[..covered]).finish();
    data[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    data
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::parse_any;
    use crate::test_support::{FRAMES, hex};

    #[test]
    fn captured_frames_hold_at_every_length() {
        for frame in FRAMES {
            let frame = hex(frame);
            for len in 0..=frame.len() {
                parse_any(&frame[..len]);
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(data in proptest::collection::vec(any::<u8>(), 0..200)) {
            parse_any(&data);
        }

        #[test]
        fn damaged_frames_never_panic(
            frame in proptest::sample::select(FRAMES),
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
            len in any::<proptest::sample::Index>(),
        ) {
            let mut frame = hex(frame);
            for (at, value) in damage {
                let at = at.index(frame.len());
                frame[at] = value;
            }
            parse_any(&frame);
            parse_any(&frame[..len.index(frame.len())]);
        }
    }
}
