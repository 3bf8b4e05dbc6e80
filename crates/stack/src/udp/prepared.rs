//! Headers of datagrams of one socket to one destination, written once: each differs from the one before it in its length, and in the sums that
//! follow from it (as TCP's: `wire::template`).

use super::SendError;
use super::fields::{HeaderFields, put_checksum};
use crate::egress::{Egress, Frame, PartialChecksum, Payload};
use crate::link::Link;
use crate::link::interface::InterfaceId;
use wire::checksum::Sum;
use wire::ipv4::{self, Protocol};
use wire::{ethernet, ipv6, udp};

const IP_AT: usize = ethernet::Header::LEN;
const V4_HEADER_LEN: u16 = 20;
const _: () = assert!(ipv4::Header::LEN == V4_HEADER_LEN as usize);
const UDP_AT_V4: usize = IP_AT + ipv4::Header::LEN;
const UDP_AT_V6: usize = IP_AT + ipv6::Header::LEN;
/// Ethernet, IPv6 and UDP.
const LEN_MAX: usize = UDP_AT_V6 + udp::Header::LEN;

/// Ethernet, IP and UDP headers of whole datagrams that no router may cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prepared {
    bytes: [u8; LEN_MAX],
    is_v6: bool,
    /// Of the IPv4 header without its length and its checksum.
    ip: u16,
    /// Of the pseudo header without its length.
    pseudo: u16,
}

impl Prepared {
    /// For datagrams with these fields, whatever neighbour they name, from an interface with that address; `None`: the headers of each have an identification of its own.
    pub(super) fn new(fields: &HeaderFields, own: ethernet::Address) -> Option<Self> {
        let is_v6 = fields.envelope.destination.is_ipv6();
        // RFC 6864 §4: with DF set nobody looks at the identification.
        if !is_v6 && !fields.dont_fragment {
            return None;
        }
        let mut bytes = [0; LEN_MAX];
        fields.emit_udp(0, &mut bytes[udp_at(is_v6)..]);
        let envelope = &fields.envelope;
        envelope.emit(own, Protocol::UDP, udp::Header::LEN, &mut bytes);
        let mut ip = Sum::new();
        if !is_v6 {
            bytes[IP_AT + 2..IP_AT + 4].fill(0);
            bytes[IP_AT + 10..IP_AT + 12].fill(0);
            ip = ip.add(&bytes[IP_AT..UDP_AT_V4]);
        }
        Some(Self {
            bytes,
            is_v6,
            ip: ip.fold(),
            pseudo: fields.pseudo_header(0).fold(),
        })
    }

    /// Sends a datagram that fits the MTU to the neighbour with that address.
    pub(super) fn send(
        &self,
        link: &mut Link,
        interface: InterfaceId,
        neighbour: ethernet::Address,
        payload: &[u8],
        egress: &mut dyn Egress,
    ) -> Result<usize, SendError> {
        let ((bytes, len), checksum) = self.of(payload.len(), neighbour);
        let frame = Frame {
            interface,
            headers: &bytes[..len],
            payload: Payload::Bytes(payload),
            checksum: Some(checksum),
            segment_size: None,
        };
        egress.transmit(&frame).map_err(|_| SendError::Busy)?;
        link.counters.ip_out_requests += 1;
        link.counters.udp_out_datagrams += 1;
        Ok(payload.len())
    }

    /// The headers of a datagram with so many bytes of payload, which fit its length fields, and what is left to add to its checksum.
    #[inline]
    fn of(
        &self,
        payload_len: usize,
        neighbour: ethernet::Address,
    ) -> (([u8; LEN_MAX], usize), PartialChecksum) {
        let mut bytes = self.bytes;
        bytes[..6].copy_from_slice(&neighbour.0);
        let at = udp_at(self.is_v6);
        let datagram_len = u16::try_from(udp::Header::LEN + payload_len)
            .expect("invariant: a UDP datagram is at most 65535 bytes long");
        if self.is_v6 {
            bytes[IP_AT + 4..IP_AT + 6].copy_from_slice(&datagram_len.to_be_bytes());
        } else {
            // It fits the MTU of a link, which is 16 bits long.
            let total_len = datagram_len.saturating_add(V4_HEADER_LEN);
            let checksum = Sum::new().add_u16(self.ip).add_u16(total_len).finish();
            bytes[IP_AT + 2..IP_AT + 4].copy_from_slice(&total_len.to_be_bytes());
            bytes[IP_AT + 10..IP_AT + 12].copy_from_slice(&checksum.to_be_bytes());
        }
        bytes[at + 4..at + 6].copy_from_slice(&datagram_len.to_be_bytes());
        let partial = Sum::new().add_u16(self.pseudo).add_u16(datagram_len);
        put_checksum(&mut bytes[at..], partial.fold());
        let checksum = PartialChecksum {
            start: u16::try_from(at).unwrap_or(0),
            offset: udp::CHECKSUM_OFFSET,
        };
        ((bytes, at + udp::Header::LEN), checksum)
    }
}

const fn udp_at(is_v6: bool) -> usize {
    if is_v6 { UDP_AT_V6 } else { UDP_AT_V4 }
}
