//! What can be known of a received frame's transport checksum without a word from the kernel. Read first:
//! `Documentation/networking/checksum-offloads.rst` of the kernel.
//!
//! A sender on this very host leaves the sum to a device that never comes: the field then holds the folded
//! sum of the pseudo header, exactly (`CHECKSUM_PARTIAL`), and an XDP program cannot see the kernel's word for
//! it. A frame that happened to be damaged into just that field passes unseen once in 65,536, as often as any
//! damage passes the checksum itself.

use ::wire::checksum::Sum;
use ::wire::ethernet::{self, EtherType};
use ::wire::ipv4::{self, Protocol};
use ::wire::ipv6;

use crate::driver::RxChecksum;

/// [`RxChecksum::Partial`] for an unfragmented TCP or UDP frame whose checksum field holds what an unfinished
/// one does; else [`RxChecksum::Unknown`].
pub(super) fn state(frame: &[u8]) -> RxChecksum {
    match is_unfinished(frame) {
        Some(true) => RxChecksum::Partial,
        _ => RxChecksum::Unknown,
    }
}

fn is_unfinished(frame: &[u8]) -> Option<bool> {
    let (link, packet) = ethernet::Header::parse(frame).ok()?;
    let is_v6 = link.ethertype == EtherType::IPV6;
    let (protocol, transport) = match link.ethertype {
        EtherType::IPV4 => of_ipv4(packet)?,
        EtherType::IPV6 => of_ipv6(packet)?,
        _ => return None,
    };
    let field = match protocol {
        Protocol::TCP => transport.get(16..18)?,
        Protocol::UDP => transport.get(6..8)?,
        _ => return None,
    };
    let pseudo = if is_v6 { pseudo_v6 } else { pseudo_v4 };
    let sum = pseudo(packet, protocol, transport.len())?.fold();
    Some(field == sum.to_be_bytes())
}

/// Protocol and payload of a packet that is no fragment.
fn of_ipv4(packet: &[u8]) -> Option<(Protocol, &[u8])> {
    let header_len = usize::from(*packet.first()? & 0x0f) * 4;
    let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]);
    // RFC 791 §3.1: more fragments, or not the first.
    if header_len < ipv4::Header::LEN || fragment & 0x3fff != 0 {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    Some((Protocol(*packet.get(9)?), packet.get(header_len..total)?))
}

fn of_ipv6(packet: &[u8]) -> Option<(Protocol, &[u8])> {
    let len = usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
    let payload = packet.get(ipv6::Header::LEN..)?.get(..len)?;
    Some((Protocol(*packet.get(6)?), payload))
}

fn pseudo_v4(packet: &[u8], protocol: Protocol, len: usize) -> Option<Sum> {
    let source: [u8; 4] = *packet.get(12..16)?.first_chunk()?;
    let destination: [u8; 4] = *packet.get(16..20)?.first_chunk()?;
    Some(Sum::new().pseudo_header_v4(source.into(), destination.into(), protocol, len))
}

fn pseudo_v6(packet: &[u8], protocol: Protocol, len: usize) -> Option<Sum> {
    let source: [u8; 16] = *packet.get(8..24)?.first_chunk()?;
    let destination: [u8; 16] = *packet.get(24..40)?.first_chunk()?;
    Some(Sum::new().pseudo_header_v6(source.into(), destination.into(), protocol, len))
}

/// A frame longer than the link carries was merged, or never cut: payload bytes of the segments that it
/// stands for, if it is TCP. How long they were on a wire the kernel does not say here; full ones fill the MTU.
pub(super) fn segment_size(frame: &[u8], mtu: u32) -> Option<u16> {
    let mtu = usize::try_from(mtu).ok()?;
    let packet = frame.get(ethernet::Header::LEN..)?;
    if packet.len() <= mtu {
        return None;
    }
    let (protocol, ip_len) = match packet.first()? >> 4 {
        4 => (*packet.get(9)?, usize::from(*packet.first()? & 0x0f) * 4),
        6 => (*packet.get(6)?, ipv6::Header::LEN),
        _ => return None,
    };
    if protocol != Protocol::TCP.0 {
        return None;
    }
    let headers = ip_len + usize::from(packet.get(ip_len + 12)? >> 4) * 4;
    u16::try_from(mtu.checked_sub(headers)?)
        .ok()
        .filter(|size| *size > 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::offload::locate_checksum;

    /// A frame whose checksum field holds the folded pseudo header.
    fn unfinished(is_v6: bool, is_tcp: bool, payload: usize, mtu_fields: [u8; 8]) -> Vec<u8> {
        let transport = if is_tcp { 20 } else { 8 } + payload;
        let protocol = if is_tcp { Protocol::TCP } else { Protocol::UDP };
        let len = u16::try_from(transport).unwrap();
        let mut frame = vec![2; 12];
        let mut sum = Sum::new();
        if is_v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([protocol.0, 64]);
            frame.extend(mtu_fields.iter().cycle().take(32));
            sum = pseudo_v6(&frame[14..], protocol, transport)
                .unwrap()
                .add(&[]);
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((len + 20).to_be_bytes());
            frame.extend([0, 1, 0x40, 0, 64, protocol.0, 0, 0]);
            frame.extend(mtu_fields);
            sum = sum.add(
                pseudo_v4(&frame[14..], protocol, transport)
                    .unwrap()
                    .fold()
                    .to_be_bytes()
                    .as_slice(),
            );
        }
        let at = frame.len();
        frame.resize(at + transport, 7);
        if is_tcp {
            frame[at + 12] = 0x50;
        }
        let field = at + if is_tcp { 16 } else { 6 };
        frame[field..field + 2].copy_from_slice(&sum.fold().to_be_bytes());
        frame
    }

    proptest! {
        #[test]
        fn only_the_exact_sum_counts_as_unfinished(
            is_v6: bool, is_tcp: bool, payload in 0_usize..1400, addresses: [u8; 8], wrong in 1_u16..,
        ) {
            let mut frame = unfinished(is_v6, is_tcp, payload, addresses);
            prop_assert_eq!(state(&frame), RxChecksum::Partial);
            let place = locate_checksum(&frame);
            // Ethernet pads short frames; the padding is no part of it.
            frame.extend([0; 6]);
            prop_assert_eq!(state(&frame), RxChecksum::Partial);
            if let Some(place) = place {
                let at = usize::from(place.start + place.offset);
                let field = u16::from_be_bytes([frame[at], frame[at + 1]]).wrapping_add(wrong);
                frame[at..at + 2].copy_from_slice(&field.to_be_bytes());
                prop_assert_eq!(state(&frame), RxChecksum::Unknown);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100), v6: bool) {
            let mut bytes = bytes;
            if bytes.len() > 14 {
                bytes[12..14].copy_from_slice(if v6 { &[0x86, 0xdd] } else { &[8, 0] });
            }
            let _ = (state(&bytes), segment_size(&bytes, 20));
        }
    }

    #[test]
    fn a_fragment_is_never_unfinished() {
        let mut frame = unfinished(false, true, 100, [1; 8]);
        frame[20] = 0x20;
        assert_eq!(state(&frame), RxChecksum::Unknown);
    }

    #[test]
    fn what_is_longer_than_the_link_carries_was_merged_from_full_segments() {
        let frame = unfinished(false, true, 10_000, [1; 8]);
        assert_eq!(segment_size(&frame, 1500), Some(1460));
        assert_eq!(
            segment_size(&unfinished(true, true, 10_000, [1; 8]), 1500),
            Some(1440)
        );
        assert_eq!(segment_size(&frame, 10_040), None);
        assert_eq!(
            segment_size(&unfinished(false, false, 10_000, [1; 8]), 1500),
            None
        );
    }
}
