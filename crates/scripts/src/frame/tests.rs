//! Frames survive a round trip, and garbage is no panic.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

fn link(host: &str, peer: &str) -> Link {
    Link {
        host_mac: [2, 0, 0, 0, 0, 1],
        peer_mac: [2, 0, 0, 0, 0, 2],
        host: host.parse().unwrap(),
        peer: peer.parse().unwrap(),
    }
}

fn segment() -> Tcp {
    Tcp {
        source_port: 20_001,
        destination_port: 80,
        seq: 0xffff_fff0,
        ack: 7,
        flags: flags::ACK | flags::PSH,
        window: 500,
        urgent: 0,
        options: vec![TcpOption::Nop, TcpOption::Nop, TcpOption::Timestamps(1, 2)],
        payload: vec![1, 2, 3],
        is_checksum_right: true,
    }
}

#[test]
fn a_segment_survives_a_round_trip_in_both_versions() {
    for (host, peer) in [("10.0.0.1", "10.0.0.2"), ("fd77::1", "fd77::2")] {
        for is_checksum_right in [true, false] {
            let sent = Tcp {
                is_checksum_right,
                ..segment()
            };
            let link = link(host, peer);
            let received = parse(&sent.frame(&link, IpFields { ecn: 3, df: true }));
            assert_eq!((received.ecn, received.df), (3, true));
            assert_eq!(received.to, Some(link.host));
            assert_eq!(received.content, Content::Tcp(sent));
        }
    }
}

#[test]
fn known_bytes_have_the_known_checksum() {
    // RFC 1071 §3.
    assert_eq!(
        checksum(&[&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]]),
        !0xddf2
    );
}

#[test]
fn a_question_for_an_address_is_answered_to_whom_it_came_from() {
    let asked = Asked {
        target: "10.0.0.9".parse::<IpAddr>().unwrap(),
        by: "10.0.0.1".parse().unwrap(),
        by_mac: [2, 0, 0, 0, 0, 1],
    };
    let mut request = asked.answer([9; 6]);
    assert_eq!(request[..6], [2, 0, 0, 0, 0, 1]);
    // An answer is no question.
    assert_eq!(parse(&request).content, Content::Other);
    request[21] = 1;
    assert!(matches!(parse(&request).content, Content::Asks(_)));
}

proptest! {
    #[test]
    fn garbage_is_no_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0..4_u8) {
        if bytes.len() > 24 {
            let head: &[u8] = match kind {
                0 => &[8, 0, 0x45],
                1 => &[8, 6],
                2 => &[0x86, 0xdd, 0x60],
                _ => &[],
            };
            bytes[12..12 + head.len()].copy_from_slice(head);
            bytes[23] = 6;
        }
        let _ = parse(&bytes);
    }
}
