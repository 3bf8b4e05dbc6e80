//! IPv6 headers (RFC 8200 §3; RFC 6437 for the flow label, RFC 3168 §5 for the ECN bits).
//!
//! Only the fixed header is read here; the extension headers behind it are in [`extension`]. Jumbograms
//! (RFC 2675) are not read: a payload length of 0 with more behind it is a packet without payload.

use core::net::Ipv6Addr;

pub use crate::ipv4::Protocol;
use crate::{Error, header_mut, split_header};

pub mod extension;

/// An IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The sender.
    pub source: Ipv6Addr,
    /// The receiver.
    pub destination: Ipv6Addr,
    /// What follows: an extension header or the upper layer.
    pub next_header: Protocol,
    /// Hops left.
    pub hop_limit: u8,
    /// Differentiated services code point (upper six bits) and ECN (lower two).
    pub traffic_class: u8,
    /// Names the flow to routers; 20 bits (RFC 6437).
    pub flow_label: u32,
}

/// The flow label's bits.
pub const FLOW_LABEL_MASK: u32 = 0x000f_ffff;
/// Largest packet that every IPv6 link carries (RFC 8200 §5).
pub const MINIMUM_MTU: u16 = 1_280;

impl Header {
    /// Bytes of the header.
    pub const LEN: usize = 40;
    /// The longest payload that the header can announce.
    pub const MAX_PAYLOAD_LEN: usize = 65_535;

    /// Reads the header; returns it with the payload, cut to the length that the header gives (short
    /// Ethernet frames are padded).
    ///
    /// # Errors
    /// [`Error::Truncated`] when `packet` ends before the packet does, [`Error::Malformed`] for another
    /// version.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(Header, &[u8]), Error> {
        let (fixed, rest) = split_header::<{ Header::LEN }>(packet)?;
        let first = u32::from_be_bytes([fixed[0], fixed[1], fixed[2], fixed[3]]);
        if first >> 28 != 6 {
            return Err(Error::Malformed);
        }
        let payload_len = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        let payload = rest.get(..payload_len).ok_or(Error::Truncated)?;
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&fixed[at..at + 16]);
            Ipv6Addr::from_octets(octets)
        };
        let header = Header {
            source: address(8),
            destination: address(24),
            next_header: Protocol(fixed[6]),
            hop_limit: fixed[7],
            traffic_class: (fixed[0] << 4) | (fixed[1] >> 4),
            flow_label: first & FLOW_LABEL_MASK,
        };
        Ok((header, payload))
    }

    /// Writes the header for `payload_len` bytes of payload to the start of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`Header::LEN`] or the payload longer than
    /// [`Header::MAX_PAYLOAD_LEN`].
    #[inline]
    #[track_caller]
    pub fn emit(&self, payload_len: usize, out: &mut [u8]) {
        let out = header_mut::<{ Header::LEN }>(out);
        let payload_len = u16::try_from(payload_len)
            .expect("invariant: an IPv6 payload is at most 65535 bytes long");
        let first =
            6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & FLOW_LABEL_MASK;
        out[..4].copy_from_slice(&first.to_be_bytes());
        out[4..6].copy_from_slice(&payload_len.to_be_bytes());
        out[6] = self.next_header.0;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&self.source.octets());
        out[24..40].copy_from_slice(&self.destination.octets());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::ipv6_address;

    #[test]
    fn fields_stand_where_rfc_8200_puts_them() {
        let mut packet = crate::test_support::hex(
            "6a512345 0003 06 3f 20010db8000000000000000000000001 fe800000000000000000000000000002",
        );
        packet.extend_from_slice(&[1, 2, 3, 0xee, 0xee]);
        let expected = Header {
            source: "2001:db8::1".parse().unwrap(),
            destination: "fe80::2".parse().unwrap(),
            next_header: Protocol::TCP,
            hop_limit: 63,
            traffic_class: 0xa5,
            flow_label: 0x1_2345,
        };
        assert_eq!(Header::parse(&packet), Ok((expected, &[1, 2, 3][..])));
        packet[0] = 0x4a;
        assert_eq!(Header::parse(&packet), Err(Error::Malformed));
    }

    proptest! {
        #[test]
        fn emitted_headers_parse_back(
            (source, destination) in (ipv6_address(), ipv6_address()),
            (next_header, hop_limit, traffic_class) in any::<(u8, u8, u8)>(),
            flow_label in 0..=FLOW_LABEL_MASK,
            payload in proptest::collection::vec(any::<u8>(), 0..60),
            padding in 0_usize..20,
        ) {
            let header = Header {
                source, destination, next_header: Protocol(next_header), hop_limit, traffic_class, flow_label,
            };
            let mut packet = vec![0xaa; Header::LEN];
            header.emit(payload.len(), &mut packet);
            packet.extend_from_slice(&payload);
            for len in 0..packet.len() {
                prop_assert_eq!(Header::parse(&packet[..len]), Err(Error::Truncated));
            }
            packet.resize(packet.len() + padding, 0xee);
            prop_assert_eq!(Header::parse(&packet), Ok((header, &payload[..])));
        }
    }
}
