//! Options about groups as programs write them (ip(7), ipv6(7), RFC 3493 §5.2, RFC 3678).

pub mod filter;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use client::address::Family;
use client::engines::EngineIndex;
use hostif::MembershipChange;

/// linux/in.h; MCAST_JOIN_GROUP and its kin are not in the C library's bindings for every target.
const IP_UNBLOCK_SOURCE: i32 = 37;
const IP_BLOCK_SOURCE: i32 = 38;
const MCAST_JOIN_GROUP: i32 = 42;
const MCAST_BLOCK_SOURCE: i32 = 43;
const MCAST_UNBLOCK_SOURCE: i32 = 44;
const MCAST_LEAVE_GROUP: i32 = 45;
const MCAST_JOIN_SOURCE_GROUP: i32 = 46;
const MCAST_LEAVE_SOURCE_GROUP: i32 = 47;

/// How a program names an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// Not at all.
    Any,
    /// By an address of it.
    Address(Ipv4Addr),
    /// By its number.
    Index(u32),
}

/// An option as it was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A group, or its sources.
    Member {
        /// What is to be changed.
        change: MembershipChange,
        /// The group.
        group: IpAddr,
        /// The only source, if one is named.
        source: Option<IpAddr>,
        /// The interface.
        named: Named,
    },
    /// IP_MULTICAST_IF, IPV6_MULTICAST_IF.
    Interface(Family, Named),
}

/// A group that a socket is in, or is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The group.
    pub group: IpAddr,
    /// The only source, if one was named.
    pub source: Option<IpAddr>,
    /// The engine that receives for it.
    pub place: EngineIndex,
    /// That source is not heard, of a group that is heard otherwise.
    pub is_blocked: bool,
}

/// Whether an option is about groups.
pub fn is_about_groups((level, name): (i32, i32)) -> bool {
    match level {
        libc::IPPROTO_IP => (libc::IP_ADD_MEMBERSHIP..=filter::MCAST_MSFILTER).contains(&name),
        libc::IPPROTO_IPV6 => {
            [libc::IPV6_ADD_MEMBERSHIP, libc::IPV6_DROP_MEMBERSHIP].contains(&name)
                || (MCAST_JOIN_GROUP..=filter::MCAST_MSFILTER).contains(&name)
        }
        _ => false,
    }
}

/// What an option asks for; `None`: it is about no single group.
pub fn parse(level: i32, name: i32, value: &[u8]) -> Option<Change> {
    use MembershipChange::{Block, Join, Leave, Unblock};
    match (level, name) {
        (libc::IPPROTO_IP, libc::IP_MULTICAST_IF) => {
            Some(Change::Interface(Family::V4, interface_v4(value)?))
        }
        (libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP) => request(Join, value),
        (libc::IPPROTO_IP, libc::IP_DROP_MEMBERSHIP) => request(Leave, value),
        (libc::IPPROTO_IP, libc::IP_ADD_SOURCE_MEMBERSHIP) => source_request(Join, value),
        (libc::IPPROTO_IP, libc::IP_DROP_SOURCE_MEMBERSHIP) => source_request(Leave, value),
        (libc::IPPROTO_IP, IP_BLOCK_SOURCE) => source_request(Block, value),
        (libc::IPPROTO_IP, IP_UNBLOCK_SOURCE) => source_request(Unblock, value),
        (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF) => {
            Some(Change::Interface(Family::V6, index(value, 0)?))
        }
        (libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP) => request_v6(Join, value),
        (libc::IPPROTO_IPV6, libc::IPV6_DROP_MEMBERSHIP) => request_v6(Leave, value),
        (libc::IPPROTO_IP | libc::IPPROTO_IPV6, MCAST_JOIN_GROUP) => storage(Join, value, false),
        (libc::IPPROTO_IP | libc::IPPROTO_IPV6, MCAST_LEAVE_GROUP) => storage(Leave, value, false),
        (libc::IPPROTO_IP | libc::IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP) => {
            storage(Join, value, true)
        }
        (libc::IPPROTO_IP | libc::IPPROTO_IPV6, MCAST_LEAVE_SOURCE_GROUP) => {
            storage(Leave, value, true)
        }
        (libc::IPPROTO_IP | libc::IPPROTO_IPV6, MCAST_BLOCK_SOURCE) => storage(Block, value, true),
        (libc::IPPROTO_IP | libc::IPPROTO_IPV6, MCAST_UNBLOCK_SOURCE) => {
            storage(Unblock, value, true)
        }
        _ => None,
    }
}

pub(crate) fn v4(value: &[u8], at: usize) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from(*value.get(at..)?.first_chunk::<4>()?))
}

pub(crate) fn index(value: &[u8], at: usize) -> Option<Named> {
    Some(match u32::from_ne_bytes(*value.get(at..)?.first_chunk()?) {
        0 => Named::Any,
        index => Named::Index(index),
    })
}

pub(crate) fn by_address(address: Ipv4Addr) -> Named {
    if address.is_unspecified() {
        Named::Any
    } else {
        Named::Address(address)
    }
}

/// struct in_addr, ip_mreq or ip_mreqn, whose index counts before its address.
fn interface_v4(value: &[u8]) -> Option<Named> {
    match value.len() {
        ..8 => Some(by_address(v4(value, 0)?)),
        _ => in_request(value),
    }
}

/// struct ip_mreq or ip_mreqn.
fn in_request(value: &[u8]) -> Option<Named> {
    match index(value, 8) {
        Some(Named::Index(index)) => Some(Named::Index(index)),
        _ => Some(by_address(v4(value, 4)?)),
    }
}

fn request(change: MembershipChange, value: &[u8]) -> Option<Change> {
    Some(Change::Member {
        change,
        group: v4(value, 0)?.into(),
        source: None,
        named: in_request(value)?,
    })
}

/// struct ip_mreq_source: group, interface, source.
fn source_request(change: MembershipChange, value: &[u8]) -> Option<Change> {
    Some(Change::Member {
        change,
        group: v4(value, 0)?.into(),
        source: Some(v4(value, 8)?.into()),
        named: by_address(v4(value, 4)?),
    })
}

/// struct ipv6_mreq: group, index.
fn request_v6(change: MembershipChange, value: &[u8]) -> Option<Change> {
    Some(Change::Member {
        change,
        group: Ipv6Addr::from(*value.first_chunk::<16>()?).into(),
        source: None,
        named: index(value, 16)?,
    })
}

/// A `sockaddr_storage`.
pub(crate) fn stored_address(value: &[u8], at: usize) -> Option<IpAddr> {
    let bytes = value.get(at..)?;
    match i32::from(u16::from_ne_bytes(*bytes.first_chunk()?)) {
        libc::AF_INET => Some(IpAddr::V4(v4(bytes, 4)?)),
        libc::AF_INET6 => {
            let octets = bytes.get(8..)?.first_chunk::<16>()?;
            Some(IpAddr::V6(Ipv6Addr::from(*octets)))
        }
        _ => None,
    }
}

/// struct group_req or group_source_req: an index, and one or two of `sockaddr_storage` (RFC 3678 §5.1).
fn storage(change: MembershipChange, value: &[u8], has_source: bool) -> Option<Change> {
    Some(Change::Member {
        change,
        group: stored_address(value, 8)?,
        source: if has_source {
            Some(stored_address(value, 136)?)
        } else {
            None
        },
        named: index(value, 0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: [u8; 4] = [239, 1, 2, 3];

    fn change(change: MembershipChange, source: Option<[u8; 4]>, named: Named) -> Change {
        Change::Member {
            change,
            group: IpAddr::from(GROUP),
            source: source.map(IpAddr::from),
            named,
        }
    }

    #[test]
    fn all_ways_to_name_a_group_are_understood() {
        use MembershipChange::{Join, Leave};
        let (own, source) = ([10, 0, 0, 2], [10, 0, 0, 9]);
        let ip = libc::IPPROTO_IP;
        let plain = [GROUP, own].concat();
        assert_eq!(
            parse(ip, libc::IP_ADD_MEMBERSHIP, &plain),
            Some(change(Join, None, Named::Address(own.into())))
        );
        let of_source = [GROUP, own, source].concat();
        assert_eq!(
            parse(ip, libc::IP_DROP_SOURCE_MEMBERSHIP, &of_source),
            Some(change(Leave, Some(source), Named::Address(own.into())))
        );
        let mut request = vec![0; 264];
        for (at, address) in [(8, GROUP), (136, source)] {
            request[at..at + 2].copy_from_slice(&2_u16.to_ne_bytes());
            request[at + 4..at + 8].copy_from_slice(&address);
        }
        assert_eq!(
            parse(ip, MCAST_JOIN_SOURCE_GROUP, &request),
            Some(change(Join, Some(source), Named::Any))
        );
        assert_eq!(
            parse(ip, MCAST_LEAVE_GROUP, &request[..136]),
            Some(change(Leave, None, Named::Any))
        );
        assert_eq!(
            parse(ip, libc::IP_MULTICAST_IF, &own),
            Some(Change::Interface(Family::V4, Named::Address(own.into())))
        );
        assert_eq!(parse(ip, libc::IP_ADD_MEMBERSHIP, &plain[..7]), None);
    }

    #[test]
    fn groups_of_ipv6_come_with_an_index() {
        let (group, source): (Ipv6Addr, Ipv6Addr) =
            ("ff15::7".parse().unwrap(), "2001:db8::9".parse().unwrap());
        let index = 7_u32.to_ne_bytes();
        let expected = |change, source: Option<Ipv6Addr>| {
            Some(Change::Member {
                change,
                group: group.into(),
                source: source.map(IpAddr::from),
                named: Named::Index(7),
            })
        };
        let plain = [&group.octets()[..], &index].concat();
        assert_eq!(
            parse(libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, &plain),
            expected(MembershipChange::Join, None)
        );
        let mut request = vec![0; 264];
        request[..4].copy_from_slice(&index);
        for (at, address) in [(8, group), (136, source)] {
            request[at..at + 2].copy_from_slice(&10_u16.to_ne_bytes());
            request[at + 8..at + 24].copy_from_slice(&address.octets());
        }
        assert_eq!(
            parse(libc::IPPROTO_IPV6, MCAST_BLOCK_SOURCE, &request),
            expected(MembershipChange::Block, Some(source))
        );
        let interface = parse(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, &index);
        let named = Change::Interface(Family::V6, Named::Index(7));
        assert_eq!(interface, Some(named));
    }
}
