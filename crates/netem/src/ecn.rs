//! A router's mark on a packet: "congestion experienced", in the frame and its header checksum.
//!
//! Read first: RFC 3168 §5 and §8, RFC 1624 for the checksum. Whether to mark is the cable's choice.

/// Where the IP header starts in an Ethernet frame without a tag.
const IP_AT: usize = 14;

/// Marks the packet in `frame` if its sender allows that (an ECN-capable codepoint); says whether it
/// did. A packet that already bears the mark keeps it and counts as marked.
pub(crate) fn mark(frame: &mut [u8]) -> bool {
    match frame.get(IP_AT - 2..IP_AT) {
        Some([0x08, 0x00]) => mark_ipv4(frame),
        Some([0x86, 0xdd]) => mark_ipv6(frame),
        _ => false,
    }
}

fn mark_ipv4(frame: &mut [u8]) -> bool {
    const CODEPOINT: u8 = 0b11;
    let Some(header) = frame.get_mut(IP_AT..IP_AT + 20) else {
        return false;
    };
    if header[1] & CODEPOINT == 0 {
        return false;
    }
    let before = u16::from_be_bytes([header[0], header[1]]);
    header[1] |= CODEPOINT;
    let after = u16::from_be_bytes([header[0], header[1]]);
    // RFC 1624 §3, equation 3: HC' = ~(~HC + ~m + m').
    let checksum = u16::from_be_bytes([header[10], header[11]]);
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from(sum).expect("invariant: two folds leave sixteen bits");
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    true
}

fn mark_ipv6(frame: &mut [u8]) -> bool {
    // Version, eight bits of traffic class, flow label: the codepoint is bits 4 and 5 of byte 1.
    const CODEPOINT: u8 = 0b0011_0000;
    let Some(byte) = frame.get_mut(IP_AT + 1) else {
        return false;
    };
    if *byte & CODEPOINT == 0 {
        return false;
    }
    *byte |= CODEPOINT;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ones' complement sum of a correct IPv4 header is all ones (RFC 1071).
    fn header_sum(header: &[u8]) -> u32 {
        let words = header.as_chunks::<2>().0.iter();
        let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
        (sum & 0xffff) + (sum >> 16)
    }

    fn ipv4(codepoint: u8) -> Vec<u8> {
        let mut frame = vec![0; 14];
        frame[12] = 8;
        frame.extend_from_slice(&[
            0x45, codepoint, 0, 40, 1, 2, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        let sum = header_sum(&frame[14..]);
        let checksum = !u16::try_from(sum).unwrap();
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    #[test]
    fn capable_packets_are_marked_and_their_checksum_stays_right() {
        for codepoint in [0b01, 0b10, 0b11] {
            let mut frame = ipv4(0x28 | codepoint);
            assert!(mark(&mut frame));
            assert_eq!(frame[15], 0x28 | 0b11);
            assert_eq!(header_sum(&frame[14..]), 0xffff);
        }
    }

    #[test]
    fn other_packets_stay_as_they_are() {
        let mut frame = ipv4(0x28);
        let before = frame.clone();
        assert!(!mark(&mut frame));
        assert_eq!(frame, before);
        assert!(!mark(&mut [0; 10]));
        let mut arp = vec![0xff; 42];
        arp[12..14].copy_from_slice(&[8, 6]);
        assert!(!mark(&mut arp));
    }

    #[test]
    fn the_traffic_class_of_ipv6_carries_the_mark() {
        let mut frame = vec![0; 54];
        frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
        assert!(!mark(&mut frame));
        frame[15] = 0x20;
        assert!(mark(&mut frame));
        assert_eq!(frame[14..16], [0x60, 0x30]);
    }
}
