//! Who speaks to whom in a frame, as far as its first bytes tell: for filters of captures. Read first: the heads of
//! `ethernet`, `ipv4` and `ipv6`.
//!
//! Lengths and checksums are not believed and not needed: a frame may be cut, or its checksum unfinished.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ethernet::{EtherType, Header as Ethernet};
use crate::ipv4::Protocol;

/// Extension headers of IPv6 that are passed over, at most.
const EXTENSIONS_MAX: usize = 8;

/// What a frame is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// It is ARP (RFC 826).
    pub is_arp: bool,
    /// Source and destination of its IP packet.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// What the packet carries.
    pub protocol: Option<Protocol>,
    /// Source and destination ports of TCP and UDP; of fragments only the first has them.
    pub ports: Option<(u16, u16)>,
}

impl Outline {
    /// Of a frame that starts with an Ethernet header, perhaps with a VLAN tag (IEEE 802.1Q).
    #[must_use]
    pub fn of(frame: &[u8]) -> Self {
        let Ok((ethernet, mut packet)) = Ethernet::parse(frame) else {
            return Self::default();
        };
        let mut kind = ethernet.ethertype;
        if kind == EtherType::VLAN
            && let Some(([_, _, high, low], rest)) = packet.split_first_chunk()
        {
            (kind, packet) = (EtherType(u16::from_be_bytes([*high, *low])), rest);
        }
        let found = match kind {
            EtherType::IPV4 => of_ipv4(packet),
            EtherType::IPV6 => of_ipv6(packet),
            _ => None,
        };
        Self {
            is_arp: kind == EtherType::ARP,
            ..found.unwrap_or_default()
        }
    }
}

fn of_ipv4(packet: &[u8]) -> Option<Outline> {
    let header = packet.first_chunk::<20>()?;
    let four =
        |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    // RFC 791 §3.1: the offset of this fragment.
    let is_first = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
    let len = usize::from(header[0] & 0x0f) * 4;
    let payload = packet.get(len..).filter(|_| is_first);
    let protocol = Protocol(header[9]);
    Some(Outline {
        is_arp: false,
        addresses: Some((four(12).into(), four(16).into())),
        protocol: Some(protocol),
        ports: payload.and_then(|payload| ports(protocol, payload)),
    })
}

fn of_ipv6(packet: &[u8]) -> Option<Outline> {
    let (header, mut payload) = packet.split_first_chunk::<40>()?;
    let (source, destination) = header[8..].split_first_chunk::<16>()?;
    let destination = destination.first_chunk::<16>()?;
    let (mut next, mut is_first) = (header[6], true);
    for _ in 0..EXTENSIONS_MAX {
        // RFC 8200 §4: hop-by-hop options, routing, destination options; fragment.
        let len = match (next, payload) {
            (0 | 43 | 60, [_, len, ..]) => 8 + usize::from(*len) * 8,
            (44, [_, _, high, low, ..]) => {
                is_first &= u16::from_be_bytes([*high, *low]) & 0xfff8 == 0;
                8
            }
            _ => break,
        };
        next = payload[0];
        payload = payload.get(len..).unwrap_or_default();
    }
    let protocol = Protocol(next);
    Some(Outline {
        is_arp: false,
        addresses: Some((
            Ipv6Addr::from(*source).into(),
            Ipv6Addr::from(*destination).into(),
        )),
        protocol: Some(protocol),
        ports: ports(protocol, payload).filter(|_| is_first),
    })
}

fn ports(protocol: Protocol, payload: &[u8]) -> Option<(u16, u16)> {
    let [a, b, c, d] = *payload.first_chunk::<4>()?;
    let has_ports = protocol == Protocol::TCP || protocol == Protocol::UDP;
    has_ports.then_some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An Ethernet header, a packet of 20 bytes with an IPv4 header, ports 80 and 5000.
    fn ipv4(protocol: u8, offset: u8) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([
            0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, offset, 64, protocol, 0, 0,
        ]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 80, 0x13, 0x88]);
        frame
    }

    #[test]
    fn the_ends_of_ipv4_are_seen_and_those_of_later_fragments_are_not() {
        let seen = Outline::of(&ipv4(6, 0));
        let ends = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        assert_eq!(seen.addresses, Some(ends));
        assert_eq!(
            (seen.protocol, seen.ports),
            (Some(Protocol::TCP), Some((80, 5000)))
        );
        assert_eq!(Outline::of(&ipv4(6, 5)).ports, None);
        assert_eq!(Outline::of(&ipv4(1, 0)).ports, None);
    }

    #[test]
    fn a_vlan_tag_is_passed_over() {
        let mut frame = ipv4(17, 0);
        frame.splice(12..12, [0x81, 0x00, 0, 5]);
        assert_eq!(Outline::of(&frame).ports, Some((80, 5000)));
    }

    #[test]
    fn extension_headers_of_ipv6_are_passed_over() {
        let mut frame = vec![2; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 0, 64]);
        frame.extend([0xfe; 32]);
        frame.extend([44, 0, 0, 0, 0, 0, 0, 0]); // hop-by-hop, then a fragment
        frame.extend([17, 0, 0, 1, 0, 0, 0, 0]); // the first one, of UDP
        frame.extend([0, 80, 0x13, 0x88]);
        let seen = Outline::of(&frame);
        assert_eq!(
            (seen.protocol, seen.ports),
            (Some(Protocol::UDP), Some((80, 5000)))
        );
        let at = frame.len() - 10;
        frame[at] = 1;
        assert_eq!(Outline::of(&frame).ports, None);
    }

    #[test]
    fn what_is_cut_anywhere_is_no_panic() {
        let mut frames = vec![ipv4(6, 0)];
        frames.push([&[2; 12][..], &[0x86, 0xdd], &[60; 60]].concat());
        for frame in frames {
            for len in 0..frame.len() {
                let _ = Outline::of(&frame[..len]);
            }
        }
        let arp = [&[2; 12][..], &[0x08, 0x06]].concat();
        assert!(Outline::of(&arp).is_arp);
    }
}
