//! What an ICMP error quotes of the packet that it is about. Its lengths say nothing about what is there, and its
//! checksums may have been changed on the way (RFC 5927 §4).

use core::net::{Ipv4Addr, SocketAddr};
use wire::ipv4::Protocol;
use wire::ipv6::{self, extension};

/// The start of a packet that this host is said to have sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotedPacket<'a> {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    /// What the packet says of its length.
    pub(crate) total_len: u16,
    /// The first eight bytes of the TCP or UDP header.
    pub(crate) header: &'a [u8; 8],
    /// What follows those.
    pub(crate) rest: &'a [u8],
}

impl<'a> QuotedPacket<'a> {
    /// Reads the start of a packet of `protocol`, if it is its first fragment.
    pub(crate) fn parse(quoted: &'a [u8], protocol: Protocol) -> Option<Self> {
        let (source, destination, total_len, transport) = match quoted.first()? >> 4 {
            4 => {
                let ip = quoted.first_chunk::<20>()?;
                let header_len = usize::from(ip[0] & 0x0f) * 4;
                let offset = u16::from_be_bytes([ip[6], ip[7]]) & 0x1fff;
                if header_len < 20 || ip[9] != protocol.0 || offset != 0 {
                    return None;
                }
                let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
                let total_len = u16::from_be_bytes([ip[2], ip[3]]);
                let (source, destination) = (address(12).into(), address(16).into());
                (source, destination, total_len, quoted.get(header_len..)?)
            }
            6 => {
                let fixed = quoted.first_chunk::<{ ipv6::Header::LEN }>()?;
                let mut whole = *fixed;
                whole[4..6].fill(0);
                let (header, _) = ipv6::Header::parse(&whole).ok()?;
                let chain = extension::walk(quoted, extension::Start::behind(&header)).ok()?;
                if chain.protocol != protocol
                    || chain.fragment.is_some_and(|part| part.header.offset != 0)
                {
                    return None;
                }
                let total_len = u16::from_be_bytes([fixed[4], fixed[5]]).saturating_add(40);
                let (source, destination) = (header.source.into(), header.destination.into());
                (source, destination, total_len, chain.payload)
            }
            _ => return None,
        };
        let (header, rest) = transport.split_first_chunk::<8>()?;
        let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        Some(Self {
            source: SocketAddr::new(source, port(0)),
            destination: SocketAddr::new(destination, port(2)),
            total_len,
            header,
            rest,
        })
    }
}
