//! ARP (RFC 826) and neighbour solicitation (RFC 4861 §4.3): the peer answers for each of its addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{ARP, ICMPV6, IPV6, IpFields, Mac, checksum, ethernet, ip, pseudo_header};

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;

/// A question for the Ethernet address of `target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Whose address is wanted.
    pub target: IpAddr,
    /// Who asks.
    pub by: IpAddr,
    /// Its Ethernet address.
    pub by_mac: Mac,
}

pub(super) fn parse_arp(packet: &[u8]) -> Option<Asked> {
    let packet = packet.first_chunk::<28>()?;
    // Ethernet, IPv4, 6, 4, request
    if packet[..8] != [0, 1, 8, 0, 6, 4, 0, 1] {
        return None;
    }
    let address =
        |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
    Some(Asked {
        target: address(24).into(),
        by: address(14).into(),
        by_mac: packet[8..14].try_into().ok()?,
    })
}

pub(super) fn parse_solicitation(source: Ipv6Addr, message: &[u8]) -> Option<Asked> {
    if *message.first()? != SOLICITATION || source.is_unspecified() {
        return None;
    }
    let target: [u8; 16] = message.get(8..24)?.try_into().ok()?;
    // Source link-layer address; a solicitation without it is one we need not answer.
    let option = message.get(24..32)?;
    if option[..2] != [1, 1] {
        return None;
    }
    Some(Asked {
        target: Ipv6Addr::from(target).into(),
        by: source.into(),
        by_mac: option[2..8].try_into().ok()?,
    })
}

impl Asked {
    /// The frame that answers: `mac` has the target.
    pub fn answer(&self, mac: Mac) -> Vec<u8> {
        match (self.target, self.by) {
            (IpAddr::V4(target), IpAddr::V4(by)) => {
                let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 2];
                packet.extend(mac);
                packet.extend(target.octets());
                packet.extend(self.by_mac);
                packet.extend(by.octets());
                ethernet(self.by_mac, mac, ARP, &packet)
            }
            (target, by) => {
                // Solicited, override.
                let mut message = vec![ADVERTISEMENT, 0, 0, 0, 0x60, 0, 0, 0];
                message.extend(super::octets(target));
                message.extend([2, 1]);
                message.extend(mac);
                let pseudo = pseudo_header(target, by, ICMPV6, message.len());
                let sum = checksum(&[&pseudo, &message]);
                message[2..4].copy_from_slice(&sum.to_be_bytes());
                let packet = ip(target, by, ICMPV6, IpFields::default(), &message);
                ethernet(self.by_mac, mac, IPV6, &packet)
            }
        }
    }
}
