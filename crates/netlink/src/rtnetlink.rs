//! The messages of rtnetlink(7) that [`crate::Monitor`] sends and takes: links, addresses, routes and neighbours of one
//! interface. Read first: linux/rtnetlink.h.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::ethernet;

use crate::kernel::Link;
use crate::message::{self, Request, attribute, attributes, flag, word};
use crate::monitor::{Change, Neighbour, Route};

pub(crate) const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
pub(crate) const SET_LINK: u16 = 19;
pub(crate) const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;
pub(crate) const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const GET_ROUTE: u16 = 26;
const NEW_NEIGHBOUR: u16 = 28;
const DELETE_NEIGHBOUR: u16 = 29;
const GET_NEIGHBOUR: u16 = 30;

/// `struct ifinfomsg`: family, type, number, flags, mask of flags.
pub(crate) const LINK_BYTES: usize = 16;
/// `struct ifaddrmsg`: family, prefix length, flags, scope, number of the interface.
pub(crate) const ADDRESS_BYTES: usize = 8;
/// `struct rtmsg`: family, prefix lengths, TOS, table, protocol, scope, type, flags.
const ROUTE_BYTES: usize = 12;
/// `struct ndmsg`: family, number of the interface, state, flags, type.
const NEIGHBOUR_BYTES: usize = 12;
/// `struct rtnexthop`: length, flags, weight, number of the interface.
const NEXT_HOP_BYTES: usize = 8;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_MTU: u16 = 4;
pub(crate) const IFLA_LINKINFO: u16 = 18;
pub(crate) const IFLA_INFO_KIND: u16 = 1;
pub(crate) const IFLA_INFO_DATA: u16 = 2;
pub(crate) const IFA_ADDRESS: u16 = 1;
pub(crate) const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;

/// `IFA_F_TENTATIVE` and `IFA_F_DADFAILED` of linux/if_addr.h.
const UNUSABLE: u8 = 0x40 | 0x08;
const RT_TABLE_MAIN: u32 = 254;
const RTN_UNICAST: u8 = 1;
/// `RTM_F_CLONED` and `RTNH_F_DEAD`.
const ROUTE_UNUSABLE: u32 = 0x200 | 1;
const RTNH_F_DEAD: u8 = 1;
/// linux/neighbour.h.
const NTF_USE: u8 = 1;
const NUD_INCOMPLETE: u16 = 0x01;
const NUD_REACHABLE: u16 = 0x02;
const NUD_STALE: u16 = 0x04;
const NUD_DELAY: u16 = 0x08;
const NUD_PROBE: u16 = 0x10;
const NUD_FAILED: u16 = 0x20;
const NUD_NOARP: u16 = 0x40;
const NUD_PERMANENT: u16 = 0x80;

/// `AF_INET` or `AF_INET6`, as one byte.
pub(crate) fn family(address: IpAddr) -> u8 {
    let family = match address {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    u8::try_from(family).expect("invariant: 2 or 10")
}

/// `struct ifinfomsg` with a number and the flags that are set; no other flag changes.
pub(crate) fn link_structure(index: u32, flags: u32) -> [u8; LINK_BYTES] {
    let mut bytes = [0; LINK_BYTES];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

/// Asks for the interface itself.
pub(crate) fn link(index: u32) -> Request {
    Request::new(GET_LINK, 0, &link_structure(index, 0))
}

/// Asks for all interfaces.
pub(crate) fn links() -> Request {
    Request::new(GET_LINK, flag::DUMP, &[0; LINK_BYTES])
}

/// Asks for all addresses of all interfaces.
pub(crate) fn addresses() -> Request {
    Request::new(GET_ADDRESS, flag::DUMP, &[0; ADDRESS_BYTES])
}

/// Asks for all routes.
pub(crate) fn routes() -> Request {
    Request::new(GET_ROUTE, flag::DUMP, &[0; ROUTE_BYTES])
}

/// Asks for one neighbour.
pub(crate) fn neighbour(address: IpAddr, index: u32) -> Request {
    of_neighbour(GET_NEIGHBOUR, 0, address, index, 0)
}

/// Asks that a neighbour be used.
pub(crate) fn use_neighbour(address: IpAddr, index: u32) -> Request {
    let flags = flag::CREATE | flag::ACK;
    of_neighbour(NEW_NEIGHBOUR, flags, address, index, NTF_USE)
}

fn of_neighbour(kind: u16, flags: u16, address: IpAddr, index: u32, entry_flags: u8) -> Request {
    let mut structure = [0; NEIGHBOUR_BYTES];
    structure[0] = family(address);
    structure[4..8].copy_from_slice(&index.to_ne_bytes());
    structure[10] = entry_flags;
    Request::new(kind, flags, &structure).attribute(NDA_DST, &message::octets(address))
}

/// What a message is news of, if it concerns interface `index`.
pub(crate) fn change(kind: u16, body: &[u8], index: u32) -> Option<Change> {
    match kind {
        // Links and addresses have the number of their interface at the same place.
        NEW_LINK | DELETE_LINK | NEW_ADDRESS | DELETE_ADDRESS => {
            (word(body, 4)? == index).then_some(Change::Interface)
        }
        NEW_ROUTE | DELETE_ROUTE => Some(Change::Interface),
        NEW_NEIGHBOUR => {
            let (address, state) = neighbour_of(body, index)?;
            Some(Change::Neighbour(address, state))
        }
        DELETE_NEIGHBOUR => {
            let (address, _) = neighbour_of(body, index)?;
            Some(Change::Neighbour(address, Neighbour::Unknown))
        }
        _ => None,
    }
}

fn neighbour_of(body: &[u8], index: u32) -> Option<(IpAddr, Neighbour)> {
    let (structure, rest) = body.split_at_checked(NEIGHBOUR_BYTES)?;
    if word(structure, 4)? != index {
        return None;
    }
    let address = message::address(attribute(rest, NDA_DST)?)?;
    let hardware = attribute(rest, NDA_LLADDR).and_then(|bytes| bytes.try_into().ok());
    let hardware = hardware.map(ethernet::Address);
    let state = match (u16::from_ne_bytes([structure[8], structure[9]]), hardware) {
        (NUD_REACHABLE | NUD_PERMANENT | NUD_NOARP, Some(hardware)) => Neighbour::At {
            hardware,
            is_fresh: true,
        },
        (NUD_STALE | NUD_DELAY | NUD_PROBE, Some(hardware)) => Neighbour::At {
            hardware,
            is_fresh: false,
        },
        (NUD_FAILED, _) => Neighbour::Silent,
        (NUD_INCOMPLETE, _) => Neighbour::Asked,
        _ => Neighbour::Unknown,
    };
    Some((address, state))
}

/// MTU in bytes, and whether the link is up.
pub(crate) fn of_link(body: &[u8]) -> Option<(u32, bool)> {
    let up = libc::IFF_UP.cast_unsigned();
    let is_up = word(body, 8)? & up != 0;
    let mtu = attribute(body.get(LINK_BYTES..)?, IFLA_MTU).and_then(|value| word(value, 0));
    Some((mtu.unwrap_or(0), is_up))
}

/// An interface as a dump of all describes it, still without addresses.
pub(crate) fn described_link(body: &[u8]) -> Option<Link> {
    let (mtu_bytes, is_up) = of_link(body)?;
    let rest = body.get(LINK_BYTES..)?;
    let name = attribute(rest, IFLA_IFNAME)?;
    let name = name.split(|&byte| byte == 0).next()?;
    let hardware = attribute(rest, IFLA_ADDRESS).and_then(|bytes| bytes.try_into().ok());
    Some(Link {
        index: word(body, 4)?,
        name: String::from_utf8_lossy(name).into_owned(),
        mtu_bytes,
        is_up,
        hardware_address: hardware.map(ethernet::Address),
        addresses: Vec::new(),
    })
}

/// An address of interface `index` that packets may leave from, with the length of its network's prefix.
pub(crate) fn address(body: &[u8], index: u32) -> Option<(IpAddr, u8)> {
    let (structure, rest) = body.split_at_checked(ADDRESS_BYTES)?;
    let [_, prefix_len, flags, ..] = *structure.first_chunk::<ADDRESS_BYTES>()?;
    // RFC 4862 §2: a tentative address is not yet, and a duplicate never, an own one.
    if word(structure, 4)? != index || flags & UNUSABLE != 0 {
        return None;
    }
    let find = |kind| attribute(rest, kind).and_then(message::address);
    let network = find(IFA_ADDRESS);
    let own = find(IFA_LOCAL).or(network)?;
    // A point-to-point link: the prefix is that of the other end.
    let is_peer = network.is_some_and(|network| network != own);
    let prefix_len = match own {
        IpAddr::V4(_) if is_peer => 32,
        IpAddr::V6(_) if is_peer => 128,
        _ => prefix_len,
    };
    Some((own, prefix_len))
}

/// A unicast route of the main table over interface `index`.
pub(crate) fn route(body: &[u8], index: u32) -> Option<Route> {
    let (structure, rest) = body.split_at_checked(ROUTE_BYTES)?;
    let [family, prefix_len, _, _, table, _, _, kind, ..] =
        *structure.first_chunk::<ROUTE_BYTES>()?;
    let mut table = u32::from(table);
    let (mut interface, mut metric) = (None, 0);
    let (mut destination, mut gateway, mut source) = (None, None, None);
    for (kind, value) in attributes(rest) {
        match kind {
            RTA_TABLE => table = word(value, 0)?,
            RTA_OIF => interface = Some(word(value, 0)?),
            RTA_PRIORITY => metric = word(value, 0)?,
            RTA_DST => destination = message::address(value),
            RTA_GATEWAY => gateway = message::address(value),
            RTA_PREFSRC => source = message::address(value),
            RTA_MULTIPATH => {
                // One of several ways; the kernel spreads flows over them, this takes the first of ours.
                let own = next_hops(value)
                    .find(|hop| hop.interface == index && hop.flags & RTNH_F_DEAD == 0)?;
                interface = Some(index);
                gateway = attribute(own.attributes, RTA_GATEWAY).and_then(message::address);
            }
            // A router of the other family (RFC 5549).
            RTA_VIA => return None,
            _ => {}
        }
    }
    let is_usable =
        kind == RTN_UNICAST && word(structure, 8)? & ROUTE_UNUSABLE == 0 && table == RT_TABLE_MAIN;
    let everything = match i32::from(family) {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    (is_usable && interface == Some(index)).then_some(Route {
        destination: destination.unwrap_or(everything),
        prefix_len,
        gateway,
        metric,
        source,
    })
}

/// A unicast route of the main table with the number of its interface; of several ways each interface once.
pub(crate) fn routes_of_all(body: &[u8]) -> Vec<(u32, Route)> {
    let rest = body.get(ROUTE_BYTES..).unwrap_or_default();
    let mut interfaces: Vec<u32> = Vec::new();
    for (kind, value) in attributes(rest) {
        match kind {
            RTA_OIF => interfaces.extend(word(value, 0)),
            RTA_MULTIPATH => interfaces.extend(next_hops(value).map(|hop| hop.interface)),
            _ => {}
        }
    }
    interfaces.sort_unstable();
    interfaces.dedup();
    let found = interfaces.into_iter();
    let found = found.filter_map(|index| Some((index, route(body, index)?)));
    found.collect()
}

/// One of several ways of a route.
struct NextHop<'a> {
    flags: u8,
    interface: u32,
    attributes: &'a [u8],
}

fn next_hops(mut rest: &[u8]) -> impl Iterator<Item = NextHop<'_>> {
    core::iter::from_fn(move || {
        let [low, high, flags, ..] = *rest.first_chunk::<NEXT_HOP_BYTES>()?;
        let len = usize::from(u16::from_ne_bytes([low, high]));
        let hop = NextHop {
            flags,
            interface: word(rest, 4)?,
            attributes: rest.get(NEXT_HOP_BYTES..len)?,
        };
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(hop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{AnswerPart, nested, parts};

    const OURS: u32 = 7;

    /// What follows the header of a message.
    fn body(request: Request) -> Vec<u8> {
        let bytes = request.finish(1);
        match parts(&bytes).next() {
            Some((1, AnswerPart::Message(_, body))) => body.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn route_bytes(destination: Option<IpAddr>, prefix_len: u8, interface: u32) -> Vec<u8> {
        let mut bytes = vec![0; ROUTE_BYTES];
        bytes[0] = family(Ipv4Addr::UNSPECIFIED.into());
        bytes[1] = prefix_len;
        bytes[4] = 254;
        bytes[7] = RTN_UNICAST;
        bytes.extend(nested(&[(RTA_OIF, &interface.to_ne_bytes())]));
        if let Some(destination) = destination {
            bytes.extend(nested(&[(RTA_DST, &message::octets(destination))]));
        }
        bytes
    }

    #[test]
    fn routes_of_our_interface_in_the_main_table_count() {
        let network = IpAddr::from([10, 0, 0, 0]);
        let plain = route_bytes(Some(network), 24, OURS);
        let found = route(&plain, OURS).unwrap();
        assert_eq!((found.destination, found.prefix_len), (network, 24));
        assert_eq!(route(&route_bytes(Some(network), 24, OURS + 1), OURS), None);
        // Tables: local, then another by an attribute; types: a blackhole; flags: dead.
        for (at, value) in [(4, 255), (7, 6), (8, 1)] {
            let mut other = plain.clone();
            other[at] = value;
            assert_eq!(route(&other, OURS), None, "byte {at}");
        }
        let other = [
            plain.clone(),
            nested(&[(RTA_TABLE, &100_u32.to_ne_bytes())]),
        ]
        .concat();
        assert_eq!(route(&other, OURS), None);
        let via = [plain, nested(&[(RTA_VIA, &[0; 18])])].concat();
        assert_eq!(route(&via, OURS), None);
    }

    #[test]
    fn a_default_route_has_its_router_and_metric() {
        let router = IpAddr::from([10, 0, 0, 1]);
        let more = nested(&[
            (RTA_GATEWAY, &message::octets(router)),
            (RTA_PRIORITY, &100_u32.to_ne_bytes()),
        ]);
        let default = [route_bytes(None, 0, OURS), more].concat();
        let expected = Route {
            destination: Ipv4Addr::UNSPECIFIED.into(),
            prefix_len: 0,
            gateway: Some(router),
            metric: 100,
            source: None,
        };
        assert_eq!(route(&default, OURS), Some(expected));
    }

    #[test]
    fn of_several_ways_the_first_living_one_of_our_interface_counts() {
        let hop = |flags: u8, interface: u32, last: u8| {
            let gateway = nested(&[(RTA_GATEWAY, &[10, 0, 0, last])]);
            let len = u16::try_from(NEXT_HOP_BYTES + gateway.len()).unwrap();
            let [low, high] = len.to_ne_bytes();
            let head = [&[low, high, flags, 0][..], &interface.to_ne_bytes()].concat();
            [head, gateway].concat()
        };
        let hops = [
            hop(0, OURS + 1, 1),
            hop(RTNH_F_DEAD, OURS, 2),
            hop(0, OURS, 3),
        ]
        .concat();
        let mut several = route_bytes(None, 0, OURS);
        several.truncate(ROUTE_BYTES);
        several.extend(nested(&[(RTA_MULTIPATH, &hops)]));
        let found = route(&several, OURS).unwrap();
        assert_eq!(found.gateway, Some(IpAddr::from([10, 0, 0, 3])));
        assert_eq!(route(&several, OURS + 2), None);
        let all = routes_of_all(&several);
        let interfaces: Vec<u32> = all.iter().map(|(index, _)| *index).collect();
        assert_eq!(interfaces, [OURS, OURS + 1]);
    }

    fn address_bytes(flags: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; ADDRESS_BYTES];
        (bytes[1], bytes[2]) = (64, flags);
        bytes[4..].copy_from_slice(&OURS.to_ne_bytes());
        [bytes, nested(attributes)].concat()
    }

    #[test]
    fn addresses_that_are_not_sure_yet_are_left_out() {
        let own = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5);
        let of = |flags| address_bytes(flags, &[(IFA_ADDRESS, &own.octets())]);
        assert_eq!(address(&of(0x80), OURS), Some((own.into(), 64)));
        assert_eq!(address(&of(0x80), OURS + 1), None);
        assert_eq!(address(&of(0x40), OURS), None, "tentative");
        assert_eq!(address(&of(0x08), OURS), None, "a duplicate");
    }

    #[test]
    fn the_network_of_a_point_to_point_link_is_its_other_end() {
        let (own, peer) = ([10, 0, 0, 1], [10, 9, 9, 9]);
        let bytes = address_bytes(0, &[(IFA_ADDRESS, &peer), (IFA_LOCAL, &own)]);
        assert_eq!(address(&bytes, OURS), Some((own.into(), 32)));
        let bytes = address_bytes(0, &[(IFA_ADDRESS, &own), (IFA_LOCAL, &own)]);
        assert_eq!(address(&bytes, OURS), Some((own.into(), 64)));
    }

    #[test]
    fn what_is_known_of_a_neighbour_follows_its_state() {
        let there = IpAddr::from([10, 0, 0, 9]);
        let hardware = ethernet::Address([2, 0, 0, 0, 0, 9]);
        let at = |is_fresh| Neighbour::At { hardware, is_fresh };
        let request = neighbour(there, OURS).attribute(NDA_LLADDR, &hardware.0);
        let mut bytes = body(request);
        for (state, expected) in [
            (NUD_REACHABLE, at(true)),
            (NUD_PERMANENT, at(true)),
            (NUD_STALE, at(false)),
            (NUD_INCOMPLETE, Neighbour::Asked),
            (NUD_FAILED, Neighbour::Silent),
            (0, Neighbour::Unknown),
        ] {
            bytes[8..10].copy_from_slice(&state.to_ne_bytes());
            let expected = Change::Neighbour(there, expected);
            assert_eq!(change(NEW_NEIGHBOUR, &bytes, OURS), Some(expected));
        }
        let unknown = Change::Neighbour(there, Neighbour::Unknown);
        assert_eq!(change(DELETE_NEIGHBOUR, &bytes, OURS), Some(unknown));
        assert_eq!(change(DELETE_NEIGHBOUR, &bytes, OURS + 1), None);
    }

    #[test]
    fn a_link_tells_its_mtu_and_whether_it_is_up() {
        let mut bytes = link_structure(OURS, 1).to_vec();
        assert_eq!(of_link(&bytes), Some((0, true)));
        bytes.extend(nested(&[(IFLA_MTU, &9_000_u32.to_ne_bytes())]));
        bytes.extend(nested(&[(IFLA_IFNAME, b"eth0\0"), (IFLA_ADDRESS, &[2; 6])]));
        let described = described_link(&bytes).unwrap();
        assert_eq!((described.index, &*described.name), (OURS, "eth0"));
        assert_eq!(described.hardware_address, Some(ethernet::Address([2; 6])));
        bytes[8] = 0;
        assert_eq!(of_link(&bytes), Some((9_000, false)));
        assert_eq!(change(NEW_LINK, &bytes, OURS), Some(Change::Interface));
        assert_eq!(change(NEW_LINK, &bytes, OURS + 1), None);
    }

    #[test]
    fn what_is_cut_short_is_nothing_and_no_panic() {
        let network = IpAddr::from([10, 0, 0, 0]);
        let whole = route_bytes(Some(network), 24, OURS);
        for len in 0..whole.len() {
            let bytes = &whole[..len];
            let _ = (route(bytes, OURS), address(bytes, OURS), of_link(bytes));
            let _ = change(NEW_NEIGHBOUR, bytes, OURS);
        }
    }
}
