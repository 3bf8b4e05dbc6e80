//! Ethernet frames of the scripted peer: built from and taken apart into plain values. Written anew
//! here, and not taken from `wire`, so that a mistake there cannot hide itself.

pub mod icmp;
mod neighbour;
pub mod tcp;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use neighbour::Asked;
pub use tcp::{Option as TcpOption, Tcp};

/// Bytes of an Ethernet header.
pub const ETHERNET_LEN: usize = 14;
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const ICMPV4: u8 = 1;
const ICMPV6: u8 = 58;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// TCP's control bits by their names.
pub mod flags {
    /// No more data.
    pub const FIN: u8 = 0x01;
    /// Synchronize.
    pub const SYN: u8 = 0x02;
    /// Reset.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment number counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
    /// ECN echo.
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced.
    pub const CWR: u8 = 0x80;

    const NAMES: [(&str, u8); 8] = [
        ("SYN", SYN),
        ("FIN", FIN),
        ("RST", RST),
        ("PSH", PSH),
        ("ACK", ACK),
        ("URG", URG),
        ("ECE", ECE),
        ("CWR", CWR),
    ];

    /// The bit of that name.
    pub fn by_name(name: &str) -> Option<u8> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, bit)| *bit)
    }

    /// `SYN+ACK` and its like.
    pub fn names(bits: u8) -> String {
        let set: Vec<&str> = NAMES
            .iter()
            .filter(|(_, bit)| bits & bit != 0)
            .map(|(name, _)| *name)
            .collect();
        if set.is_empty() {
            "none".to_owned()
        } else {
            set.join("+")
        }
    }
}

/// Who speaks to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Ethernet address of the host under test.
    pub host_mac: Mac,
    /// Ethernet address of the peer.
    pub peer_mac: Mac,
    /// Address of the host under test.
    pub host: IpAddr,
    /// Address of the peer.
    pub peer: IpAddr,
}

/// What a packet from the host says above IP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A TCP segment.
    Tcp(Tcp),
    /// It asks for the Ethernet address of one of ours.
    Asks(Asked),
    /// It answers the echo request with this number.
    EchoReply(u16),
    /// Something that no script is about.
    Other,
}

/// A frame that the host has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Where it goes, where that is known.
    pub to: Option<IpAddr>,
    /// The ECN field.
    pub ecn: u8,
    /// "Don't fragment"; always with IPv6.
    pub df: bool,
    /// What it carries.
    pub content: Content,
}

impl Received {
    const OTHER: Self = Self {
        to: None,
        ecn: 0,
        df: false,
        content: Content::Other,
    };
}

/// What IP says around a segment that arrives.
#[derive(Clone, Copy, Debug, Default)]
pub struct IpFields {
    /// The ECN field.
    pub ecn: u8,
    /// "Don't fragment".
    pub df: bool,
}

/// Takes a frame apart. What is malformed is [`Content::Other`].
pub fn parse(frame: &[u8]) -> Received {
    let Some((header, rest)) = frame.split_first_chunk::<ETHERNET_LEN>() else {
        return Received::OTHER;
    };
    let parsed = match u16::from_be_bytes([header[12], header[13]]) {
        IPV4 => parse_ipv4(rest),
        IPV6 => parse_ipv6(rest),
        ARP => neighbour::parse_arp(rest).map(|asked| Received {
            content: Content::Asks(asked),
            ..Received::OTHER
        }),
        _ => None,
    };
    parsed.unwrap_or(Received::OTHER)
}

fn parse_ipv4(packet: &[u8]) -> Option<Received> {
    let header = packet.first_chunk::<20>()?;
    let header_len = usize::from(header[0] & 15) * 4;
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let body = packet.get(header_len..total_len)?;
    let source = Ipv4Addr::new(header[12], header[13], header[14], header[15]);
    let to = Ipv4Addr::new(header[16], header[17], header[18], header[19]);
    let content = match header[9] {
        TCP => Content::Tcp(Tcp::parse(source.into(), to.into(), body)?),
        ICMPV4 => icmp::echo_reply(body, true).map_or(Content::Other, Content::EchoReply),
        _ => Content::Other,
    };
    Some(Received {
        to: Some(to.into()),
        ecn: header[1] & 3,
        df: header[6] & 0x40 != 0,
        content,
    })
}

fn parse_ipv6(packet: &[u8]) -> Option<Received> {
    let header = packet.first_chunk::<40>()?;
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let body = packet.get(40..40 + len)?;
    let address = |at: usize| {
        let octets: [u8; 16] = header[at..at + 16].try_into().ok()?;
        Some(Ipv6Addr::from(octets))
    };
    let (source, to) = (address(8)?, address(24)?);
    let content = match header[6] {
        TCP => Content::Tcp(Tcp::parse(source.into(), to.into(), body)?),
        ICMPV6 => match icmp::echo_reply(body, false) {
            Some(number) => Content::EchoReply(number),
            None => {
                neighbour::parse_solicitation(source, body).map_or(Content::Other, Content::Asks)
            }
        },
        _ => Content::Other,
    };
    Some(Received {
        to: Some(to.into()),
        ecn: (header[1] >> 4) & 3,
        df: true,
        content,
    })
}

/// A whole frame from the peer to the host.
fn wrap(link: &Link, protocol: u8, fields: IpFields, body: &[u8]) -> Vec<u8> {
    let packet = ip(link.peer, link.host, protocol, fields, body);
    let kind = if link.host.is_ipv4() { IPV4 } else { IPV6 };
    ethernet(link.host_mac, link.peer_mac, kind, &packet)
}

fn ethernet(to: Mac, from: Mac, kind: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET_LEN + body.len());
    frame.extend(to);
    frame.extend(from);
    frame.extend(kind.to_be_bytes());
    frame.extend(body);
    frame
}

/// An IP packet.
fn ip(from: IpAddr, to: IpAddr, protocol: u8, fields: IpFields, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).expect("invariant: a script's segments fit a packet");
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = [0_u8; 20];
            header[0] = 0x45;
            header[1] = fields.ecn;
            header[2..4].copy_from_slice(&len.saturating_add(20).to_be_bytes());
            header[6] = if fields.df { 0x40 } else { 0 };
            header[8] = 64;
            header[9] = protocol;
            header[12..16].copy_from_slice(&from.octets());
            header[16..20].copy_from_slice(&to.octets());
            let sum = checksum(&[&header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            [&header, body].concat()
        }
        (from, to) => {
            let mut header = [0_u8; 40];
            header[0] = 0x60;
            header[1] = fields.ecn << 4;
            header[4..6].copy_from_slice(&len.to_be_bytes());
            header[6] = protocol;
            // Neighbour discovery believes only what no router has passed on (RFC 4861 §7.1).
            header[7] = 255;
            header[8..24].copy_from_slice(&octets(from));
            header[24..40].copy_from_slice(&octets(to));
            [&header, body].concat()
        }
    }
}

/// Sixteen bytes of an address; an IPv4 one is mapped.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// What the checksums of TCP and ICMPv6 cover besides the packet's body (RFC 9293 §3.1, RFC 8200 §8.1).
fn pseudo_header(from: IpAddr, to: IpAddr, protocol: u8, len: usize) -> Vec<u8> {
    let len = u32::try_from(len).expect("invariant: a packet is short");
    let mut bytes = Vec::with_capacity(40);
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            bytes.extend(from.octets());
            bytes.extend(to.octets());
        }
        (from, to) => {
            bytes.extend(octets(from));
            bytes.extend(octets(to));
        }
    }
    bytes.extend(len.to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes
}

/// The Internet checksum (RFC 1071) of parts, each but the last of even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u64;
    for part in parts {
        for pair in part.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u64::from(u16::from_be_bytes([pair[0], low]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("invariant: folded to sixteen bits")
}
