//! The virtio network header (virtio 1.2 §5.1.6; `linux/virtio_net.h`) as TAP and `AF_PACKET` with
//! `PACKET_VNET_HDR` put it before a frame, and the completion of partial checksums in software.
//!
//! Fields are in the byte order of the host, which both interfaces use unless told otherwise
//! (packet(7), `TUNSETVNETLE`); on little-endian hosts that is also the order of virtio 1.0 devices.

use crate::checksum::Sum;
use crate::{Error, header_mut, split_header};

/// Metadata of one frame: what is left to do on its checksum, and how it is to be cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NetHeader {
    /// [`NetHeader::NEEDS_CSUM`], [`NetHeader::DATA_VALID`].
    pub flags: u8,
    /// How the frame is cut into segments: one of the `GSO_` constants, perhaps with
    /// [`NetHeader::GSO_ECN`].
    pub gso_type: u8,
    /// Bytes of all headers of the frame; a hint.
    pub hdr_len: u16,
    /// Payload bytes of each segment.
    pub gso_size: u16,
    /// Where the checksummed part of the frame starts.
    pub csum_start: u16,
    /// Where the checksum goes, counted from `csum_start`.
    pub csum_offset: u16,
}

impl NetHeader {
    /// Bytes of the header.
    pub const LEN: usize = 10;

    /// Flag: the checksum field holds only the pseudo-header sum; `csum_start` and `csum_offset` count.
    pub const NEEDS_CSUM: u8 = 1;
    /// Flag: the device has verified the checksum.
    pub const DATA_VALID: u8 = 2;

    /// The frame is one segment.
    pub const GSO_NONE: u8 = 0;
    /// To be cut as TCP over IPv4.
    pub const GSO_TCPV4: u8 = 1;
    /// To be cut as TCP over IPv6.
    pub const GSO_TCPV6: u8 = 4;
    /// Added to the type: the first segment carries CWR, and only the first.
    pub const GSO_ECN: u8 = 0x80;

    /// Reads the ten-byte header; returns it with the frame.
    ///
    /// # Errors
    /// [`Error::Truncated`] below [`NetHeader::LEN`] bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(NetHeader, &[u8]), Error> {
        let (&[flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1], frame) =
            split_header::<{ NetHeader::LEN }>(bytes)?;
        let header = NetHeader {
            flags,
            gso_type,
            hdr_len: u16::from_ne_bytes([h0, h1]),
            gso_size: u16::from_ne_bytes([g0, g1]),
            csum_start: u16::from_ne_bytes([s0, s1]),
            csum_offset: u16::from_ne_bytes([o0, o1]),
        };
        Ok((header, frame))
    }

    /// Writes the ten-byte header to the start of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than [`NetHeader::LEN`].
    #[inline]
    #[track_caller]
    pub fn emit(&self, out: &mut [u8]) {
        let out = header_mut::<{ NetHeader::LEN }>(out);
        out[0] = self.flags;
        out[1] = self.gso_type;
        out[2..4].copy_from_slice(&self.hdr_len.to_ne_bytes());
        out[4..6].copy_from_slice(&self.gso_size.to_ne_bytes());
        out[6..8].copy_from_slice(&self.csum_start.to_ne_bytes());
        out[8..10].copy_from_slice(&self.csum_offset.to_ne_bytes());
    }
}

/// Completes a partial checksum in place: the field at `csum_start + csum_offset` holds the sum of the
/// pseudo header (not complemented) and gets the checksum over everything from `csum_start` on.
///
/// # Errors
/// [`Error::Malformed`] when the field does not lie within the frame; the frame is then unchanged.
pub fn fill_partial(frame: &mut [u8], csum_start: u16, csum_offset: u16) -> Result<(), Error> {
    let covered = frame
        .get_mut(usize::from(csum_start)..)
        .ok_or(Error::Malformed)?;
    let checksum = finish_partial(Sum::new().add(covered));
    let field = covered
        .get_mut(usize::from(csum_offset)..)
        .and_then(|rest| rest.first_chunk_mut::<2>())
        .ok_or(Error::Malformed)?;
    *field = checksum.to_be_bytes();
    Ok(())
}

/// The value for the checksum field when `sum` covers everything from `csum_start` on, the partial sum
/// in the field included: for frames that lie in several pieces.
#[must_use]
pub fn finish_partial(sum: Sum) -> u16 {
    // Both zeros of ones' complement verify, but a UDP field of 0 means "no checksum" (RFC 768).
    match sum.finish() {
        0 => 0xffff,
        checksum => checksum,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checksum::{verify_tcp_v4, verify_udp_v4};
    use crate::ipv4::{self, Protocol};
    use crate::test_support::{SYN_PARTIAL, hex};
    use crate::{tcp, udp};

    #[test]
    fn constants_are_those_of_the_kernel_headers() {
        assert_eq!((NetHeader::NEEDS_CSUM, NetHeader::DATA_VALID), (1, 2));
        assert_eq!(
            (
                NetHeader::GSO_NONE,
                NetHeader::GSO_TCPV4,
                NetHeader::GSO_TCPV6
            ),
            (0, 1, 4)
        );
        assert_eq!(NetHeader::GSO_ECN, 0x80);
    }

    #[test]
    fn captured_partial_checksum_is_completed() {
        let mut frame = hex(SYN_PARTIAL);
        fill_partial(&mut frame, 34, tcp::CHECKSUM_OFFSET).unwrap();
        let (ip, segment) = ipv4::Header::parse(&frame[14..]).unwrap();
        assert!(verify_tcp_v4(ip.source, ip.destination, segment));
    }

    #[test]
    fn field_outside_the_frame_is_refused_and_nothing_written() {
        let frame = hex(SYN_PARTIAL);
        let len = u16::try_from(frame.len()).unwrap();
        for (start, offset) in [
            (len, 0),
            (len + 1, 0),
            (len - 1, 0),
            (34, len - 35),
            (0, u16::MAX),
            (u16::MAX, u16::MAX),
        ] {
            let mut changed = frame.clone();
            assert_eq!(
                fill_partial(&mut changed, start, offset),
                Err(Error::Malformed),
                "{start} {offset}"
            );
            assert_eq!(changed, frame);
        }
        assert_eq!(fill_partial(&mut frame.clone(), 34, len - 36), Ok(()));
    }

    #[test]
    fn udp_sum_of_all_ones_does_not_become_no_checksum() {
        // Everything but the field sums to 0xffff, so that the complement would be 0.
        let mut datagram = [0xff, 0xff, 0, 0, 0, 0, 0, 0];
        fill_partial(&mut datagram, 0, udp::CHECKSUM_OFFSET).unwrap();
        assert_eq!(datagram[6..], [0xff, 0xff]);
    }

    prop_compose! {
        fn net_header()(
            (flags, gso_type, hdr_len) in any::<(u8, u8, u16)>(),
            (gso_size, csum_start, csum_offset) in any::<(u16, u16, u16)>(),
        ) -> NetHeader {
            NetHeader { flags, gso_type, hdr_len, gso_size, csum_start, csum_offset }
        }
    }

    proptest! {
        #[test]
        fn emitted_headers_parse_back(header in net_header()) {
            let mut bytes = [0xaa; 14];
            header.emit(&mut bytes);
            prop_assert_eq!(NetHeader::parse(&bytes), Ok((header, &[0xaa; 4][..])));
            for len in 0..NetHeader::LEN {
                prop_assert_eq!(NetHeader::parse(&bytes[..len]), Err(Error::Truncated));
            }
        }

        #[test]
        fn completed_partial_checksum_equals_the_full_one(
            source in crate::test_support::ipv4_address(),
            destination in crate::test_support::ipv4_address(),
            before in proptest::collection::vec(any::<u8>(), 0..50),
            mut segment in proptest::collection::vec(any::<u8>(), 20..120),
            (cut_a, cut_b) in any::<(proptest::sample::Index, proptest::sample::Index)>(),
            is_udp in any::<bool>(),
        ) {
            let (protocol, offset) = if is_udp { (Protocol::UDP, udp::CHECKSUM_OFFSET) } else { (Protocol::TCP, tcp::CHECKSUM_OFFSET) };
            let field = usize::from(offset)..usize::from(offset) + 2;
            let pseudo = Sum::new().pseudo_header_v4(source, destination, protocol, segment.len());
            segment[field.clone()].fill(0);
            let full = pseudo.add(&segment).finish();

            segment[field.clone()].copy_from_slice(&pseudo.fold().to_be_bytes());
            let (a, b) = (cut_a.index(segment.len()), cut_b.index(segment.len()));
            let (a, b) = (a.min(b), a.max(b));
            let in_pieces = finish_partial(Sum::new().add(&segment[..a]).add(&segment[a..b]).add(&segment[b..]));

            let start = u16::try_from(before.len()).unwrap();
            let mut frame = [before.clone(), segment].concat();
            fill_partial(&mut frame, start, offset).unwrap();
            let (untouched, segment) = frame.split_at(before.len());
            let filled = u16::from_be_bytes([segment[field.start], segment[field.start + 1]]);
            prop_assert_eq!(filled, in_pieces);
            prop_assert_eq!(filled, if full == 0 { 0xffff } else { full });
            prop_assert_eq!(untouched, before);
            let verify = if is_udp { verify_udp_v4 } else { verify_tcp_v4 };
            prop_assert!(verify(source, destination, segment));
        }
    }
}
