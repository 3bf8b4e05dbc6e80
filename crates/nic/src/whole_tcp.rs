//! What is spread over cores, and so can have come in a queue of another core ([`crate::Counters::rx_elsewhere`]).

use ::wire::ethernet::{self, EtherType};
use ::wire::ipv4::Protocol;

/// Whether the frame is of a kind that is spread over cores: a TCP packet in one piece, without extension headers of IPv6.
pub(crate) fn is_whole_tcp(frame: &[u8]) -> bool {
    let Ok((header, packet)) = ethernet::Header::parse(frame) else {
        return false;
    };
    match header.ethertype {
        EtherType::IPV4 => packet.first_chunk::<20>().is_some_and(|packet| {
            packet[9] == Protocol::TCP.0 && u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff == 0
        }),
        EtherType::IPV6 => packet.get(6) == Some(&Protocol::TCP.0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_packets_of_tcp_are_and_nothing_else() {
        let frame = |ethertype: u16, packet: &[u8]| {
            let mut frame = vec![2; 12];
            frame.extend(ethertype.to_be_bytes());
            frame.extend(packet);
            frame
        };
        let mut v4 = [0; 40];
        (v4[0], v4[9]) = (0x45, 6);
        assert!(is_whole_tcp(&frame(0x0800, &v4)));
        assert!(!is_whole_tcp(&frame(0x0806, &v4)));
        assert!(!is_whole_tcp(&frame(0x0800, &v4[..19])));
        let mut fragment = v4;
        fragment[7] = 1;
        assert!(!is_whole_tcp(&frame(0x0800, &fragment)));
        v4[9] = 17;
        assert!(!is_whole_tcp(&frame(0x0800, &v4)));
        let mut v6 = [0; 60];
        (v6[0], v6[6]) = (0x60, 6);
        assert!(is_whole_tcp(&frame(0x86dd, &v6)));
        v6[6] = 44;
        assert!(!is_whole_tcp(&frame(0x86dd, &v6)));
        assert!(!is_whole_tcp(&[]));
    }
}
