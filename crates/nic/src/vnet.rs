//! The virtio network header as AF_PACKET (`PACKET_VNET_HDR`) and TAP (`IFF_VNET_HDR`) use it: the
//! bridge between it and the frames of [`crate::driver`].
//!
//! Read first: virtio specification §5.1.6, packet(7), and: `hdr_len` covers all headers, `csum_start` and `csum_offset` point at the transport checksum.
//! It does no arithmetic on frames: that is [`crate::offload`].

use ::wire::virtio::NetHeader;

use crate::driver::{RxChecksum, TxFrame};

/// Bytes of the header without `num_buffers`.
pub(crate) const LEN: usize = NetHeader::LEN;

/// The header that asks the kernel to finish what `frame` leaves unfinished.
pub(crate) fn emit(frame: &TxFrame<'_>) -> [u8; LEN] {
    let mut header = NetHeader::default();
    if let Some(checksum) = frame.checksum {
        header.flags = NetHeader::NEEDS_CSUM;
        header.csum_start = checksum.start;
        header.csum_offset = checksum.offset;
    }
    if frame.is_large() {
        header.gso_type = if is_ipv6(frame.headers) {
            NetHeader::GSO_TCPV6
        } else {
            NetHeader::GSO_TCPV4
        };
        header.gso_size = frame.segment_size.unwrap_or_default();
        header.hdr_len = u16::try_from(frame.headers.len()).unwrap_or(u16::MAX);
    }
    let mut bytes = [0; LEN];
    header.emit(&mut bytes);
    bytes
}

/// What the header of a received frame says of it.
pub(crate) fn parse(bytes: &[u8]) -> Option<(RxChecksum, Option<u16>)> {
    let (header, _) = NetHeader::parse(bytes).ok()?;
    let checksum = if header.flags & NetHeader::NEEDS_CSUM != 0 {
        RxChecksum::Partial
    } else if header.flags & NetHeader::DATA_VALID != 0 {
        RxChecksum::Verified
    } else {
        RxChecksum::Unknown
    };
    let merged = header.gso_type != NetHeader::GSO_NONE && header.gso_size > 0;
    Some((checksum, merged.then_some(header.gso_size)))
}

fn is_ipv6(headers: &[u8]) -> bool {
    headers.get(12..14) == Some(&[0x86, 0xdd])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::PartialChecksum;
    use crate::shared_slice::SharedSlice;

    fn frame<'a>(headers: &'a [u8], payload: &'a [u8], segment_size: Option<u16>) -> TxFrame<'a> {
        TxFrame {
            headers,
            payload: TxFrame::spans([SharedSlice::from(payload)]),
            checksum: Some(PartialChecksum {
                start: 34,
                offset: 16,
            }),
            segment_size,
        }
    }

    #[test]
    fn a_large_tcp_segment_is_described_as_the_kernel_wants_it() {
        let mut headers = [0; 54];
        headers[12..14].copy_from_slice(&[0x08, 0x00]);
        let bytes = emit(&frame(&headers, &[0; 3000], Some(1460)));
        // flags, gso_type, hdr_len 54, gso_size 1460, csum_start 34, csum_offset 16
        assert_eq!(bytes, [1, 1, 54, 0, 0xb4, 0x05, 34, 0, 16, 0]);
    }

    #[test]
    fn over_ipv6_the_kernel_is_told_so() {
        let mut headers = [0; 74];
        headers[12..14].copy_from_slice(&[0x86, 0xdd]);
        let mut large = frame(&headers, &[0; 3000], Some(1440));
        large.checksum = Some(PartialChecksum {
            start: 54,
            offset: 16,
        });
        assert_eq!(emit(&large), [1, 4, 74, 0, 0xa0, 0x05, 54, 0, 16, 0]);
    }

    #[test]
    fn a_segment_that_fits_one_frame_asks_for_no_cutting() {
        let bytes = emit(&frame(&[0; 54], &[0; 1460], Some(1460)));
        assert_eq!(bytes, [1, 0, 0, 0, 0, 0, 34, 0, 16, 0]);
    }

    #[test]
    fn received_flags_become_checksum_states() {
        assert_eq!(parse(&[0; LEN]), Some((RxChecksum::Unknown, None)));
        assert_eq!(
            parse(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            Some((RxChecksum::Verified, None))
        );
        let merged = [1, 1, 54, 0, 0xb4, 0x05, 34, 0, 16, 0];
        assert_eq!(parse(&merged), Some((RxChecksum::Partial, Some(1460))));
        assert_eq!(parse(&[0; 5]), None);
    }
}
