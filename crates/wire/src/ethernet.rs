//! Ethernet II frame headers (IEEE 802.3 clause 3; RFC 894).
//!
//! VLAN tags are not taken apart: a tagged frame shows [`EtherType::VLAN`], and its payload starts at
//! the tag. The frame check sequence belongs to the device and never appears here.

use core::fmt;

use crate::{Error, header_mut, split_header};

/// A hardware address (EUI-48).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub [u8; 6]);

impl Address {
    /// Every station on the link.
    pub const BROADCAST: Address = Address([0xff; 6]);
    /// All zero: no address, as in the target field of an ARP request.
    pub const UNSPECIFIED: Address = Address([0; 6]);

    /// Whether the frame goes to every station.
    #[must_use]
    pub const fn is_broadcast(self) -> bool {
        matches!(self.0, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
    }

    /// Whether this is a group address; broadcast is one of them.
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether this can be the address of one station: neither a group nor unspecified.
    #[must_use]
    pub const fn is_unicast(self) -> bool {
        !self.is_multicast() && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }
}

impl From<[u8; 6]> for Address {
    fn from(bytes: [u8; 6]) -> Self {
        Address(bytes)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The protocol that a frame carries (IANA "ETHER TYPES").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4, RFC 894.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// ARP, RFC 826.
    pub const ARP: EtherType = EtherType(0x0806);
    /// A VLAN tag follows (IEEE 802.1Q).
    pub const VLAN: EtherType = EtherType(0x8100);
    /// IPv6, RFC 2464.
    pub const IPV6: EtherType = EtherType(0x86dd);
}

/// The header of an Ethernet II frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The station or group the frame goes to.
    pub destination: Address,
    /// The station it comes from.
    pub source: Address,
    /// What it carries.
    pub ethertype: EtherType,
}

impl Header {
    /// Bytes of the header.
    pub const LEN: usize = 14;

    /// Reads the header; returns it with the payload, which may end in padding.
    ///
    /// # Errors
    /// [`Error::Truncated`] below [`Header::LEN`] bytes.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Header, &[u8]), Error> {
        let (header, payload) = split_header::<{ Header::LEN }>(frame)?;
        let &[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = header;
        let header = Header {
            destination: Address([d0, d1, d2, d3, d4, d5]),
            source: Address([s0, s1, s2, s3, s4, s5]),
            ethertype: EtherType(u16::from_be_bytes([t0, t1])),
        };
        Ok((header, payload))
    }

    /// Writes the header to the start of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`Header::LEN`].
    #[inline]
    #[track_caller]
    pub fn emit(&self, out: &mut [u8]) {
        let out = header_mut::<{ Header::LEN }>(out);
        out[0..6].copy_from_slice(&self.destination.0);
        out[6..12].copy_from_slice(&self.source.0);
        out[12..14].copy_from_slice(&self.ethertype.0.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::{ARP_REQUEST, hardware_address, hex};

    #[test]
    fn captured_header_is_read_field_by_field() {
        let frame = hex(ARP_REQUEST);
        let (header, payload) = Header::parse(&frame).unwrap();
        assert_eq!(header.destination, Address::BROADCAST);
        assert_eq!(header.source, Address([2, 0, 0, 0, 0, 1]));
        assert_eq!(header.ethertype, EtherType::ARP);
        assert_eq!(payload, &frame[14..]);
    }

    #[test]
    fn addresses_know_their_kind() {
        let station = Address([2, 0, 0, 0, 0, 1]);
        let group = Address([0x01, 0, 0x5e, 0, 0, 1]);
        assert!(station.is_unicast() && !station.is_multicast() && !station.is_broadcast());
        assert!(group.is_multicast() && !group.is_unicast() && !group.is_broadcast());
        assert!(Address::BROADCAST.is_broadcast() && Address::BROADCAST.is_multicast());
        assert!(!Address::UNSPECIFIED.is_unicast() && !Address::UNSPECIFIED.is_multicast());
    }

    #[test]
    fn address_is_shown_as_colon_separated_hex() {
        assert_eq!(
            Address([0x02, 0, 0xab, 0, 0, 0x1f]).to_string(),
            "02:00:ab:00:00:1f"
        );
    }

    proptest! {
        #[test]
        fn emitted_headers_parse_back(
            destination in hardware_address(),
            source in hardware_address(),
            ethertype in any::<u16>().prop_map(EtherType),
            payload in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let header = Header { destination, source, ethertype };
            let mut frame = vec![0; Header::LEN];
            header.emit(&mut frame);
            for len in 0..Header::LEN {
                prop_assert_eq!(Header::parse(&frame[..len]), Err(Error::Truncated));
            }
            frame.extend_from_slice(&payload);
            prop_assert_eq!(Header::parse(&frame), Ok((header, &payload[..])));
        }
    }
}
