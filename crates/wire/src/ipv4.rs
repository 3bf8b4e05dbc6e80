//! IPv4 headers (RFC 791; RFC 6864 for the identification field, RFC 3168 §5 for the ECN bits).
//!
//! Options of received headers are skipped by their total length; which of them a host must not take is
//! [`options`]' to say. Emitted headers have no options.
//! Fragments are described here and put together in `stack`.

pub mod options;

use core::net::Ipv4Addr;

use crate::checksum::Sum;
use crate::{Error, header_mut, split_header};

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
/// The fragment offset, in units of eight bytes.
const OFFSET_MASK: u16 = 0x1fff;
/// Version 4 with a header of five 32-bit words.
const VERSION_AND_LEN: u8 = 0x45;

/// What an IPv4 packet carries (IANA "Protocol Numbers").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    /// ICMP, RFC 792.
    pub const ICMP: Protocol = Protocol(1);
    /// TCP, RFC 9293.
    pub const TCP: Protocol = Protocol(6);
    /// IGMP, RFC 3376.
    pub const IGMP: Protocol = Protocol(2);
    /// UDP, RFC 768.
    pub const UDP: Protocol = Protocol(17);
}

/// An IPv4 header without its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The sender.
    pub source: Ipv4Addr,
    /// The receiver.
    pub destination: Ipv4Addr,
    /// What the payload is.
    pub protocol: Protocol,
    /// Hops left.
    pub ttl: u8,
    /// Differentiated services code point (upper six bits) and ECN (lower two).
    pub dscp_ecn: u8,
    /// Names the packet among others while its fragments are collected.
    pub identification: u16,
    /// Routers must not fragment the packet.
    pub dont_fragment: bool,
    /// More fragments of the same packet follow.
    pub more_fragments: bool,
    /// Where this fragment's payload belongs, in bytes: a multiple of eight.
    pub fragment_offset: u16,
    /// Bytes of header and payload as received; `emit` computes it.
    pub total_len: u16,
    /// Bytes of the header with its options as received; `emit` writes [`Header::LEN`].
    pub header_len: usize,
}

impl Header {
    /// Bytes of a header without options.
    pub const LEN: usize = 20;
    /// Bytes of a header with the router alert option.
    pub const ROUTER_ALERT_LEN: usize = 24;
    /// Bytes of the longest header.
    pub const MAX_LEN: usize = 60;
    /// The longest payload that a header without options can announce.
    pub const MAX_PAYLOAD_LEN: usize = 65_535 - Header::LEN;

    /// The header of a whole packet that no router may cut, with 64 hops left.
    #[inline]
    pub const fn new(source: Ipv4Addr, destination: Ipv4Addr, protocol: Protocol) -> Header {
        Header {
            source,
            destination,
            protocol,
            ttl: 64,
            dscp_ecn: 0,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            total_len: 0,
            header_len: Self::LEN,
        }
    }

    /// Reads the header and verifies its checksum; returns it with the payload, cut to the length that
    /// the header gives (short Ethernet frames are padded).
    ///
    /// # Errors
    /// [`Error::Truncated`] when `packet` ends before the packet does, [`Error::Malformed`] for another
    /// version, contradicting lengths or a fragment past the largest packet, [`Error::Checksum`].
    #[inline(always)]
    pub fn parse(packet: &[u8]) -> Result<(Header, &[u8]), Error> {
        let (header, rest) = Self::parse_header(packet)?;
        header.cut(rest, usize::from(header.total_len))
    }

    /// As [`Header::parse`], for a frame that a device or the kernel merged from several: a total length
    /// of zero then means that the packet takes the whole frame, because 16 bits cannot say its length.
    /// Linux calls it BIG TCP.
    ///
    /// # Errors
    /// As [`Header::parse`].
    #[inline]
    pub fn parse_merged(packet: &[u8]) -> Result<(Header, &[u8]), Error> {
        let (header, rest) = Self::parse_header(packet)?;
        let total_len = match header.total_len {
            0 if !header.is_fragment() && header.protocol == Protocol::TCP => packet.len(),
            len => usize::from(len),
        };
        header.cut(rest, total_len)
    }

    /// Type of service and payload of a packet that is no fragment and has no options, as [`Header::parse`] would
    /// find them; `None`: it finds something else, or an error.
    #[must_use]
    #[inline]
    pub fn parse_plain(packet: &[u8]) -> Option<(u8, &[u8])> {
        let (fixed, _) = packet.split_first_chunk::<{ Header::LEN }>()?;
        let fragment = u16::from_be_bytes([fixed[6], fixed[7]]);
        let is_plain = fixed[0] == VERSION_AND_LEN && fragment & !DONT_FRAGMENT & 0x7fff == 0;
        let total_len = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        if !is_plain || !Sum::new().add(fixed).is_right() {
            return None;
        }
        Some((fixed[1], packet.get(Header::LEN..total_len)?))
    }

    /// What follows the header, up to the packet's end.
    #[inline(always)]
    fn cut(self, rest: &[u8], total_len: usize) -> Result<(Header, &[u8]), Error> {
        let payload_len = total_len
            .checked_sub(self.header_len)
            .ok_or(Error::Malformed)?;
        let payload = rest.get(..payload_len).ok_or(Error::Truncated)?;
        // A fragment that would end past the largest packet is the "ping of death".
        if self.is_fragment() && usize::from(self.fragment_offset) + total_len > 65_535 {
            return Err(Error::Malformed);
        }
        Ok((self, payload))
    }

    #[inline(always)]
    fn parse_header(packet: &[u8]) -> Result<(Header, &[u8]), Error> {
        let (fixed, _) = split_header::<{ Header::LEN }>(packet)?;
        if fixed[0] >> 4 != 4 {
            return Err(Error::Malformed);
        }
        let header_len = usize::from(fixed[0] & 0x0f) * 4;
        if header_len < Header::LEN {
            return Err(Error::Malformed);
        }
        let header_bytes = packet.get(..header_len).ok_or(Error::Truncated)?;
        // RFC 1122 §3.2.1.2: a host must verify the checksum and drop silently what fails.
        let sum = if header_len == Header::LEN {
            Sum::new().add(fixed)
        } else {
            Sum::new().add(header_bytes)
        };
        if !sum.is_right() {
            return Err(Error::Checksum);
        }
        let rest = packet.get(header_len..).unwrap_or_default();
        Ok((Header::from_fixed(fixed, header_len), rest))
    }

    #[inline(always)]
    fn from_fixed(fixed: &[u8; Header::LEN], header_len: usize) -> Header {
        let u16_at = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        // The reserved bit is ignored as Linux does: RFC 791 §3.1 only says that senders clear it.
        let fragment = u16_at(6);
        Header {
            source: Ipv4Addr::new(fixed[12], fixed[13], fixed[14], fixed[15]),
            destination: Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19]),
            protocol: Protocol(fixed[9]),
            ttl: fixed[8],
            dscp_ecn: fixed[1],
            identification: u16_at(4),
            dont_fragment: fragment & DONT_FRAGMENT != 0,
            more_fragments: fragment & MORE_FRAGMENTS != 0,
            fragment_offset: (fragment & OFFSET_MASK) * 8,
            total_len: u16_at(2),
            header_len,
        }
    }

    /// As [`Header::emit`], with the option that has routers look at the packet (RFC 2113).
    ///
    /// # Panics
    /// As [`Header::emit`], with [`Header::ROUTER_ALERT_LEN`] for the length.
    #[track_caller]
    pub fn emit_with_router_alert(&self, payload_len: usize, out: &mut [u8]) {
        let out = &mut out[..Header::ROUTER_ALERT_LEN];
        self.emit(payload_len + 4, out);
        out[0] = 0x46;
        out[20..].copy_from_slice(&[0x94, 4, 0, 0]);
        out[10..12].fill(0);
        let checksum = Sum::new().add(out).finish();
        out[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Whether this is a part of a larger packet.
    #[must_use]
    pub const fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }

    /// Writes a header without options for `payload_len` bytes of payload to the start of `out`, with
    /// its checksum. `total_len` and `header_len` of `self` are not used.
    ///
    /// # Panics
    /// When `out` is shorter than [`Header::LEN`], the payload longer than
    /// [`Header::MAX_PAYLOAD_LEN`] (except of TCP: see [`Header::parse_merged`]), or the fragment offset
    /// not a multiple of eight.
    #[inline]
    #[track_caller]
    pub fn emit(&self, payload_len: usize, out: &mut [u8]) {
        let out = header_mut::<{ Header::LEN }>(out);
        let total_len = u16::try_from(Header::LEN + payload_len).unwrap_or_else(|_| {
            assert!(
                self.protocol == Protocol::TCP,
                "invariant: an IPv4 packet that no device cuts is at most 65535 bytes long"
            );
            0
        });
        assert!(
            self.fragment_offset.is_multiple_of(8),
            "invariant: fragments start at multiples of eight"
        );
        let mut fragment = self.fragment_offset / 8;
        if self.dont_fragment {
            fragment |= DONT_FRAGMENT;
        }
        if self.more_fragments {
            fragment |= MORE_FRAGMENTS;
        }
        // Summed from the fields: reading back what was just written byte by byte would stall.
        let checksum = Sum::new()
            .add(&[VERSION_AND_LEN, self.dscp_ecn])
            .add_u16(total_len)
            .add_u16(self.identification)
            .add_u16(fragment)
            .add(&[self.ttl, self.protocol.0])
            .add(&self.source.octets())
            .add(&self.destination.octets())
            .finish();
        out[0] = VERSION_AND_LEN;
        out[1] = self.dscp_ecn;
        out[2..4].copy_from_slice(&total_len.to_be_bytes());
        out[4..6].copy_from_slice(&self.identification.to_be_bytes());
        out[6..8].copy_from_slice(&fragment.to_be_bytes());
        out[8] = self.ttl;
        out[9] = self.protocol.0;
        out[10..12].copy_from_slice(&checksum.to_be_bytes());
        out[12..16].copy_from_slice(&self.source.octets());
        out[16..20].copy_from_slice(&self.destination.octets());
    }
}

#[cfg(test)]
mod tests;
