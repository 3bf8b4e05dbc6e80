//! What the backing socket must not receive because the engine hears it too: both stacks receive what is for
//! everybody on the engine's link, and for groups there, and the program shall get it once.
//!
//! A socket filter (socket(7), SO_ATTACH_FILTER) on the backing socket of a socket on ANY. What this host
//! has sent itself comes back to the stack that sent it only, and passes; so do groups of a socket that has
//! joined one by an address of the kernel's.

use core::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bpf::classic::ancillary::{INTERFACE, IP_HEADER, PACKET_TYPE};
use bpf::classic::{
    ACCEPT, AND, Instruction, JUMP, LOAD_BYTE, LOAD_WORD, REJECT, RETURN, SHIFT_RIGHT, if_equal,
    length, plain,
};
use hostif::control::Sharing;

use crate::engines::route::{EngineNetworks, LOOPBACK_INDEX};

/// linux/if_packet.h: a copy of what this host has sent.
const PACKET_LOOPBACK: u32 = 5;

/// The filter; `None`: no engine is on a link of this kernel. With `hears_groups` groups pass.
#[must_use]
pub fn duplicate_filter(
    all: &[Arc<EngineNetworks>],
    hears_groups: bool,
) -> Option<Vec<Instruction>> {
    let links = links(all);
    if links.is_empty() {
        return None;
    }
    let mut program = vec![
        plain(LOAD_WORD, PACKET_TYPE),
        if_equal(PACKET_LOOPBACK, 0, 1),
        plain(RETURN, ACCEPT),
        plain(LOAD_WORD, INTERFACE),
    ];
    for link in &links {
        let part = match link.sharing {
            // The kernel gets all that the engine gets.
            Sharing::Doubled => vec![plain(RETURN, REJECT)],
            Sharing::Owned | Sharing::Steered => for_many(link, hears_groups),
        };
        program.push(if_equal(link.scope_id, 1, 0));
        program.push(plain(JUMP, length(&part)));
        program.extend(part);
    }
    program.push(plain(RETURN, ACCEPT));
    Some(program)
}

/// The links of this kernel that engines are on, each with the networks of all of them.
fn links(all: &[Arc<EngineNetworks>]) -> Vec<EngineNetworks> {
    let mut links: Vec<EngineNetworks> = Vec::new();
    // An engine on `lo` hears nothing by it.
    let is_link = |one: &&Arc<EngineNetworks>| ![0, LOOPBACK_INDEX].contains(&one.scope_id);
    for one in all.iter().filter(is_link) {
        let known = links.iter_mut().find(|link| link.scope_id == one.scope_id);
        let Some(link) = known else {
            links.push(EngineNetworks::clone(one));
            continue;
        };
        link.interfaces.extend_from_slice(&one.interfaces);
        if one.sharing == Sharing::Doubled {
            link.sharing = Sharing::Doubled;
        }
    }
    links
}

/// Holds back what reaches everybody on a link, and groups there; every path through the filter ends with a verdict.
fn for_many(networks: &EngineNetworks, hears_groups: bool) -> Vec<Instruction> {
    let groups = if hears_groups { ACCEPT } else { REJECT };
    // RFC 4291 §2.7.
    let ipv6 = [
        plain(LOAD_BYTE, IP_HEADER + 24),
        if_equal(0xff, 0, 1),
        plain(RETURN, groups),
        plain(RETURN, ACCEPT),
    ];
    let mut program = vec![
        plain(LOAD_BYTE, IP_HEADER),
        plain(SHIFT_RIGHT, 4),
        if_equal(6, 0, 4),
    ];
    program.extend(ipv6);
    program.push(plain(LOAD_WORD, IP_HEADER + 16));
    let own = networks.interfaces.iter().filter_map(|network| {
        let IpAddr::V4(address) = network.address else {
            return None;
        };
        let host = u32::MAX.checked_shr(u32::from(network.prefix_len));
        let last = Ipv4Addr::from_bits(address.to_bits() | host.unwrap_or(0));
        networks.is_broadcast(last).then_some(last)
    });
    for everybody in own.chain([Ipv4Addr::BROADCAST]) {
        program.push(if_equal(everybody.to_bits(), 0, 1));
        program.push(plain(RETURN, REJECT));
    }
    // RFC 1112 §4.
    program.extend([
        plain(AND, 0xf000_0000),
        if_equal(0xe000_0000, 0, 1),
        plain(RETURN, groups),
        plain(RETURN, ACCEPT),
    ]);
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::route::Network;

    struct Packet {
        kind: u32,
        interface: u32,
        ip: Vec<u8>,
    }

    fn packet(interface: u32, to: &str) -> Packet {
        let mut ip = vec![0; 40];
        match to.parse().unwrap() {
            IpAddr::V4(to) => {
                ip[0] = 0x45;
                ip[16..20].copy_from_slice(&to.octets());
            }
            IpAddr::V6(to) => {
                ip[0] = 0x60;
                ip[24..40].copy_from_slice(&to.octets());
            }
        }
        Packet {
            kind: 0,
            interface,
            ip,
        }
    }

    fn passes(program: &[Instruction], packet: &Packet) -> bool {
        let result = bpf::classic::run(program, &|bytes, at| match at {
            PACKET_TYPE => Some(packet.kind),
            INTERFACE => Some(packet.interface),
            _ => {
                let start = usize::try_from(at - IP_HEADER).unwrap();
                let found = &packet.ip[start..start + usize::try_from(bytes).unwrap()];
                Some(
                    found
                        .iter()
                        .fold(0, |word, byte| word << 8 | u32::from(*byte)),
                )
            }
        });
        result == ACCEPT
    }

    #[test]
    fn only_what_the_engine_hears_too_is_held_back() {
        let network = |text: &str, prefix_len| Network {
            address: text.parse().unwrap(),
            prefix_len,
        };
        let networks = EngineNetworks {
            interfaces: vec![network("10.0.0.2", 24), network("2001:db8::2", 64)],
            scope_id: 7,
            ..EngineNetworks::default()
        };
        // Beside it another on the same link, and one on a link of its own that leaves the kernel everything.
        let beside = EngineNetworks {
            interfaces: vec![network("10.0.2.2", 24)],
            scope_id: 7,
            ..EngineNetworks::default()
        };
        let doubled = EngineNetworks {
            interfaces: vec![network("10.0.3.2", 24)],
            scope_id: 9,
            sharing: Sharing::Doubled,
            ..EngineNetworks::default()
        };
        let engines = [networks, beside, doubled].map(Arc::new);
        let [all, groups] = [false, true].map(|groups| duplicate_filter(&engines, groups).unwrap());
        for (interface, to, passing, passing_groups) in [
            (7, "10.0.0.255", false, false),
            (7, "255.255.255.255", false, false),
            (7, "10.0.1.255", true, true),
            (7, "10.0.2.255", false, false),
            (9, "10.0.3.2", false, false),
            (7, "10.0.0.1", true, true),
            (7, "239.1.2.3", false, true),
            (7, "ff02::fb", false, true),
            (7, "2001:db8::1", true, true),
            (8, "10.0.0.255", true, true),
            (8, "ff02::fb", true, true),
        ] {
            let one = packet(interface, to);
            let found = (passes(&all, &one), passes(&groups, &one));
            assert_eq!(found, (passing, passing_groups), "{to} by {interface}");
        }
        let sent_by_us = Packet {
            kind: PACKET_LOOPBACK,
            ..packet(7, "10.0.0.255")
        };
        assert!(passes(&all, &sent_by_us));
        let nowhere = [Arc::new(EngineNetworks::default())];
        assert!(duplicate_filter(&nowhere, false).is_none());
    }
}
