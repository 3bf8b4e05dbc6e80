//! UDP headers (RFC 768; RFC 1122 §4.1).
//!
//! `parse` does not verify the checksum, which covers addresses of the layer below:
//! [`crate::checksum::verify_udp_v4`] does.

use crate::{Error, header_mut, split_header};

/// Where the checksum stands in the header, as partial checksums need it.
pub const CHECKSUM_OFFSET: u16 = 6;

/// A UDP header; its length follows from the payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
}

impl Header {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// Reads the header; returns it with the payload, cut to the length that the header gives.
    ///
    /// # Errors
    /// [`Error::Truncated`] when the input ends before the datagram does, [`Error::Malformed`] when the
    /// length is shorter than the header.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Result<(Header, &[u8]), Error> {
        let (&[s0, s1, d0, d1, l0, l1, _, _], _) = split_header::<{ Header::LEN }>(datagram)?;
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        if len < Header::LEN {
            return Err(Error::Malformed);
        }
        let payload = datagram.get(Header::LEN..len).ok_or(Error::Truncated)?;
        let header = Header {
            source_port: u16::from_be_bytes([s0, s1]),
            destination_port: u16::from_be_bytes([d0, d1]),
        };
        Ok((header, payload))
    }

    /// Writes the header for `payload_len` bytes of payload to the start of `out`, with a checksum field
    /// of 0.
    ///
    /// # Panics
    /// When `out` is shorter than [`Header::LEN`] or the datagram longer than 65535 bytes.
    #[inline]
    #[track_caller]
    pub fn emit(&self, payload_len: usize, out: &mut [u8]) {
        let out = header_mut::<{ Header::LEN }>(out);
        let len = u16::try_from(Header::LEN + payload_len)
            .expect("invariant: a UDP datagram is at most 65535 bytes long");
        out[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        out[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        out[4..6].copy_from_slice(&len.to_be_bytes());
        out[6..8].copy_from_slice(&[0, 0]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::{UDP_HEY, ipv4_payload};

    #[test]
    fn captured_datagram_is_read_field_by_field() {
        let datagram = ipv4_payload(UDP_HEY);
        let expected = Header {
            source_port: 0xbf50,
            destination_port: 9999,
        };
        assert_eq!(Header::parse(&datagram), Ok((expected, &b"hey"[..])));
    }

    #[test]
    fn length_below_the_header_is_malformed() {
        for len in 0..8 {
            assert_eq!(
                Header::parse(&[0, 1, 0, 2, 0, len, 0, 0, 0]),
                Err(Error::Malformed)
            );
        }
    }

    proptest! {
        #[test]
        fn emitted_headers_parse_back(
            (source_port, destination_port) in any::<(u16, u16)>(),
            payload in proptest::collection::vec(any::<u8>(), 0..60),
            padding in 0_usize..20,
        ) {
            let header = Header { source_port, destination_port };
            let mut datagram = vec![0xaa; Header::LEN];
            header.emit(payload.len(), &mut datagram);
            datagram.extend_from_slice(&payload);
            for len in 0..datagram.len() {
                prop_assert_eq!(Header::parse(&datagram[..len]), Err(Error::Truncated));
            }
            datagram.resize(datagram.len() + padding, 0xee);
            prop_assert_eq!(Header::parse(&datagram), Ok((header, &payload[..])));
        }
    }
}
