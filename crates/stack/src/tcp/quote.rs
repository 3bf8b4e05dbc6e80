//! What an ICMP error quotes of the segment that it is about.

use crate::containers::demux::FourTuple;
use crate::link::interface::InterfaceId;
use core::net::Ipv4Addr;
use wire::ipv4::Protocol;
use wire::ipv6::{Header, extension};

/// The connection and the sequence number that an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quote {
    pub(crate) tuple: FourTuple,
    pub(crate) seq: u32,
    pub(crate) total_len: u16,
}

impl Quote {
    /// Reads the start of a TCP packet that this host is said to have sent. Its length says nothing
    /// about what is there, and its checksum may have been changed on the way (RFC 5927 §4).
    pub(crate) fn parse_v4(quoted: &[u8]) -> Option<Self> {
        let ip = quoted.first_chunk::<20>()?;
        let header_len = usize::from(ip[0] & 0x0f) * 4;
        let offset = u16::from_be_bytes([ip[6], ip[7]]) & 0x1fff;
        if ip[0] >> 4 != 4 || header_len < 20 || ip[9] != Protocol::TCP.0 || offset != 0 {
            return None;
        }
        let tcp = quoted.get(header_len..)?.first_chunk::<8>()?;
        let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        Some(Self {
            tuple: FourTuple::new(address(12).into(), port(0), address(16).into(), port(2)),
            seq: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
            total_len: u16::from_be_bytes([ip[2], ip[3]]),
        })
    }

    /// Reads the start of a TCP packet that this host is said to have sent on the link of `interface`.
    pub(crate) fn parse_v6(quoted: &[u8], interface: InterfaceId) -> Option<Self> {
        let fixed = quoted.first_chunk::<{ Header::LEN }>()?;
        // The quote is cut, so its own length says nothing about what is there.
        let mut whole = *fixed;
        whole[4..6].fill(0);
        let (header, _) = Header::parse(&whole).ok()?;
        let chain = extension::walk(quoted, extension::Start::behind(&header)).ok()?;
        if chain.protocol != Protocol::TCP
            || chain.fragment.is_some_and(|part| part.header.offset != 0)
        {
            return None;
        }
        let tcp = chain.payload.first_chunk::<8>()?;
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let payload_len = u16::from_be_bytes([fixed[4], fixed[5]]);
        Some(Self {
            tuple: FourTuple::new(
                header.source.into(),
                port(0),
                header.destination.into(),
                port(2),
            )
            .on_link(interface),
            seq: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
            total_len: payload_len.saturating_add(40),
        })
    }
}
