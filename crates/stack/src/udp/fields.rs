//! The headers of one datagram, whole or in fragments (RFC 768, 791 §3.2, 8200 §4.5).
//!
//! Which way it goes and what is cut is `send.rs`'s.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use wire::checksum::Sum;
use wire::ipv4::{self, Protocol};
use wire::ipv6::{self, extension::Fragment};
use wire::udp;

/// All that the headers of one datagram say. Both ends are of one family.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderFields {
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) ttl: u8,
    pub(super) tos: u8,
    pub(super) dont_fragment: bool,
    /// RFC 6437 §3, over IPv6: the same between the same two ends, so that fragments take one way.
    pub(super) flow_label: u32,
}

/// Which part of a packet is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Where it begins.
    pub(super) offset: u16,
    pub(super) more: bool,
    pub(super) identification: u32,
}

impl HeaderFields {
    /// Writes the IP header of a whole datagram of `len` bytes.
    pub(super) fn emit_ip(&self, identification: u32, len: usize, out: &mut [u8]) {
        let whole = Part {
            offset: 0,
            more: false,
            identification,
        };
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.ipv6(source, destination, Protocol::UDP).emit(len, out);
            }
            _ => self.emit_ipv4(whole, self.dont_fragment, len, out),
        }
    }

    /// Bytes of the headers in front of a fragment's data.
    pub(super) fn fragment_headers_len(&self) -> usize {
        match self.destination {
            SocketAddr::V4(_) => ipv4::Header::LEN,
            SocketAddr::V6(_) => ipv6::Header::LEN + Fragment::LEN,
        }
    }

    /// Writes the headers of a fragment with `len` bytes of data.
    pub(super) fn emit_fragment(&self, part: Part, len: usize, out: &mut [u8]) {
        let (IpAddr::V6(source), IpAddr::V6(destination)) =
            (self.source.ip(), self.destination.ip())
        else {
            return self.emit_ipv4(part, false, len, out);
        };
        self.ipv6(source, destination, Protocol::FRAGMENT)
            .emit(Fragment::LEN + len, out);
        let header = Fragment {
            next_header: Protocol::UDP,
            offset: part.offset,
            more: part.more,
            identification: part.identification,
        };
        header.emit(&mut out[ipv6::Header::LEN..]);
    }

    fn emit_ipv4(&self, part: Part, dont_fragment: bool, len: usize, out: &mut [u8]) {
        let (IpAddr::V4(source), IpAddr::V4(destination)) =
            (self.source.ip(), self.destination.ip())
        else {
            unreachable!("invariant: both ends of a datagram are of one family");
        };
        let header = ipv4::Header {
            ttl: self.ttl,
            dscp_ecn: self.tos,
            identification: u16::try_from(part.identification & 0xffff)
                .expect("invariant: 16 bits remain"),
            dont_fragment,
            more_fragments: part.more,
            fragment_offset: part.offset,
            ..ipv4::Header::new(source, destination, Protocol::UDP)
        };
        header.emit(len, out);
    }

    fn ipv6(&self, source: Ipv6Addr, destination: Ipv6Addr, next_header: Protocol) -> ipv6::Header {
        ipv6::Header {
            source,
            destination,
            next_header,
            hop_limit: self.ttl,
            traffic_class: self.tos,
            flow_label: self.flow_label,
        }
    }

    pub(super) fn emit_udp(&self, payload_len: usize, out: &mut [u8]) {
        let header = udp::Header {
            source_port: self.source.port(),
            destination_port: self.destination.port(),
        };
        header.emit(payload_len, out);
    }

    pub(super) fn pseudo_header(&self, datagram_len: usize) -> Sum {
        let (source, destination) = (self.source.ip(), self.destination.ip());
        Sum::new().pseudo_header(source, destination, Protocol::UDP, datagram_len)
    }
}

/// Writes the checksum field of a UDP header.
pub(super) fn put_checksum(header: &mut [u8], value: u16) {
    let field = usize::from(udp::CHECKSUM_OFFSET);
    header[field..field + 2].copy_from_slice(&value.to_be_bytes());
}
