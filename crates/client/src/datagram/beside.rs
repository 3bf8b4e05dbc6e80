//! What the backing socket must not hear because the engine hears it too: both stacks receive what is for
//! everybody on the engine's link, and for groups there, and the program shall get it once.
//!
//! A socket filter (socket(7), SO_ATTACH_FILTER) on the backing socket of a socket on ANY. What this host
//! has sent itself comes back to the stack that sent it only, and passes; so do groups of a socket that has
//! joined one by an address of the kernel's.

use core::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use hostif::control::Sharing;
use libc::sock_filter;

use crate::route::{EngineNetworks, LOOPBACK_INDEX};

/// Classic BPF: linux/filter.h.
const LOAD_WORD: u16 = 0x20;
const LOAD_BYTE: u16 = 0x30;
const SHIFT_RIGHT: u16 = 0x74;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// `SKF_AD_OFF` with `SKF_AD_PKTTYPE` and `SKF_AD_IFINDEX`; `SKF_NET_OFF`: from the IP header on.
const PACKET_TYPE: u32 = 0xffff_f000 + 4;
const INTERFACE: u32 = 0xffff_f000 + 8;
const IP_HEADER: u32 = 0xfff0_0000;
/// linux/if_packet.h: a copy of what this host has sent.
const PACKET_LOOPBACK: u32 = 5;
const ACCEPT: u32 = u32::MAX;
const REJECT: u32 = 0;

/// The filter; `None`: no engine is on a link of this kernel. With `hears_groups` groups pass.
#[must_use]
pub fn filter(all: &[Arc<EngineNetworks>], hears_groups: bool) -> Option<Vec<sock_filter>> {
    let links = links(all);
    if links.is_empty() {
        return None;
    }
    let mut program = vec![
        plain(LOAD_WORD, PACKET_TYPE),
        unless_equal(PACKET_LOOPBACK, 1),
        plain(RETURN, ACCEPT),
        plain(LOAD_WORD, INTERFACE),
    ];
    for link in &links {
        let part = match link.sharing {
            // The kernel gets all that the engine gets.
            Sharing::Doubled => vec![plain(RETURN, REJECT)],
            Sharing::Owned | Sharing::Steered => for_many(link, hears_groups),
        };
        program.push(if_equal(link.scope_id, 1));
        program.push(plain(JUMP, u32::try_from(part.len()).ok()?));
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

/// Holds back what reaches everybody on a link, and groups there; every way through it ends.
fn for_many(networks: &EngineNetworks, hears_groups: bool) -> Vec<sock_filter> {
    let groups = if hears_groups { ACCEPT } else { REJECT };
    // RFC 4291 §2.7.
    let ipv6 = [
        plain(LOAD_BYTE, IP_HEADER + 24),
        unless_equal(0xff, 1),
        plain(RETURN, groups),
        plain(RETURN, ACCEPT),
    ];
    let mut program = vec![
        plain(LOAD_BYTE, IP_HEADER),
        plain(SHIFT_RIGHT, 4),
        unless_equal(6, 4),
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
        program.push(unless_equal(everybody.to_bits(), 1));
        program.push(plain(RETURN, REJECT));
    }
    // RFC 1112 §4.
    program.extend([
        plain(AND, 0xf000_0000),
        unless_equal(0xe000_0000, 1),
        plain(RETURN, groups),
        plain(RETURN, ACCEPT),
    ]);
    program
}

fn plain(code: u16, k: u32) -> sock_filter {
    sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

fn if_equal(k: u32, skip: u8) -> sock_filter {
    sock_filter {
        jt: skip,
        ..plain(JUMP_IF_EQUAL, k)
    }
}

fn unless_equal(k: u32, skip: u8) -> sock_filter {
    sock_filter {
        jf: skip,
        ..plain(JUMP_IF_EQUAL, k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Network;

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

    /// The kernel's semantics for the instructions used.
    fn passes(program: &[sock_filter], packet: &Packet) -> bool {
        let (mut accumulator, mut at) = (0_u32, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            match code {
                LOAD_WORD if k == PACKET_TYPE => accumulator = packet.kind,
                LOAD_WORD if k == INTERFACE => accumulator = packet.interface,
                LOAD_WORD | LOAD_BYTE => {
                    let start = usize::try_from(k - IP_HEADER).unwrap();
                    let len = if code == LOAD_WORD { 4 } else { 1 };
                    let bytes = &packet.ip[start..start + len];
                    accumulator = bytes
                        .iter()
                        .fold(0, |word, byte| word << 8 | u32::from(*byte));
                }
                SHIFT_RIGHT => accumulator >>= k,
                AND => accumulator &= k,
                JUMP => at += usize::try_from(k).unwrap(),
                JUMP_IF_EQUAL => at += usize::from(if accumulator == k { jt } else { jf }),
                RETURN => return k == ACCEPT,
                other => panic!("instruction {other:#x}"),
            }
        }
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
        let [all, groups] = [false, true].map(|groups| filter(&engines, groups).unwrap());
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
        assert!(filter(&nowhere, false).is_none());
    }
}
