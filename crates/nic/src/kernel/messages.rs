//! The bytes of rtnetlink(7): what is asked, and what answers and news say of one interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ::wire::ethernet;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload as Payload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteNextHopFlags,
    RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Neighbour, News, Route};

/// Netlink messages start at multiples of this (`NLMSG_ALIGNTO`).
const ALIGN: usize = 4;
/// `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;

/// What is asked.
pub(super) struct Request {
    body: RouteNetlinkMessage,
    flags: u16,
    /// One message answers it, and nothing says that this was all.
    pub has_single_answer: bool,
}

impl Request {
    pub(super) fn serialize(&self, sequence: u32) -> Vec<u8> {
        let mut header = NetlinkHeader::default();
        header.flags = self.flags | NLM_F_REQUEST;
        header.sequence_number = sequence;
        let mut message = NetlinkMessage::new(header, Payload::from(self.body.clone()));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }
}

/// The interface itself.
pub(super) fn link(index: u32) -> Request {
    let mut link = LinkMessage::default();
    link.header.index = index;
    Request {
        body: RouteNetlinkMessage::GetLink(link),
        flags: 0,
        has_single_answer: true,
    }
}

/// All addresses of all interfaces.
pub(super) fn addresses() -> Request {
    Request {
        body: RouteNetlinkMessage::GetAddress(AddressMessage::default()),
        flags: NLM_F_DUMP,
        has_single_answer: false,
    }
}

/// All routes.
pub(super) fn routes() -> Request {
    Request {
        body: RouteNetlinkMessage::GetRoute(RouteMessage::default()),
        flags: NLM_F_DUMP,
        has_single_answer: false,
    }
}

/// One neighbour.
pub(super) fn neighbour(address: IpAddr, index: u32) -> Request {
    Request {
        body: RouteNetlinkMessage::GetNeighbour(of_neighbour(address, index)),
        flags: 0,
        has_single_answer: true,
    }
}

/// That a neighbour is to be used.
pub(super) fn use_neighbour(address: IpAddr, index: u32) -> Request {
    let mut message = of_neighbour(address, index);
    message.header.flags = NeighbourFlags::Use;
    Request {
        body: RouteNetlinkMessage::NewNeighbour(message),
        flags: NLM_F_CREATE | NLM_F_ACK,
        has_single_answer: false,
    }
}

fn of_neighbour(address: IpAddr, index: u32) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    let (family, destination) = match address {
        IpAddr::V4(v4) => (AddressFamily::Inet, NeighbourAddress::Inet(v4)),
        IpAddr::V6(v6) => (AddressFamily::Inet6, NeighbourAddress::Inet6(v6)),
    };
    message.header.family = family;
    message.header.ifindex = index;
    message
        .attributes
        .push(NeighbourAttribute::Destination(destination));
    message
}

/// A piece of an answer.
pub(super) enum Part {
    Message(RouteNetlinkMessage),
    /// It is over, by an error if there is one.
    End(Option<io::Error>),
}

/// The messages in what a socket gave, of whatever sequence. What the crate does not understand is left out.
pub(super) fn parts(bytes: &[u8]) -> impl Iterator<Item = Part> {
    messages(bytes).filter_map(|(_, bytes)| part(bytes))
}

/// Those that answer question number `sequence`.
pub(super) fn parts_of(bytes: &[u8], sequence: u32) -> impl Iterator<Item = Part> {
    messages(bytes)
        .filter(move |(of, _)| *of == sequence)
        .filter_map(|(_, bytes)| part(bytes))
}

/// Each message with its sequence number.
fn messages(mut rest: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    core::iter::from_fn(move || {
        let word = |at: usize| {
            let bytes = rest.get(at..at + 4)?.first_chunk::<4>()?;
            Some(u32::from_ne_bytes(*bytes))
        };
        let len = usize::try_from(word(0)?).ok()?;
        let sequence = word(8)?;
        let message = rest.get(..len).filter(|_| len >= HEADER_BYTES)?;
        rest = rest.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
        Some((sequence, message))
    })
}

fn part(bytes: &[u8]) -> Option<Part> {
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).ok()?;
    match message.payload {
        Payload::InnerMessage(inner) => Some(Part::Message(inner)),
        Payload::Done(_) => Some(Part::End(None)),
        Payload::Error(error) => Some(Part::End(error.code.map(|_| error.to_io()))),
        _ => None,
    }
}

/// What a message is news of, if it concerns interface `index`.
pub(super) fn news(message: &RouteNetlinkMessage, index: u32) -> Option<News> {
    use RouteNetlinkMessage as M;
    match message {
        M::NewLink(link) | M::DelLink(link) => {
            (link.header.index == index).then_some(News::Interface)
        }
        M::NewAddress(address) | M::DelAddress(address) => {
            (address.header.index == index).then_some(News::Interface)
        }
        M::NewRoute(_) | M::DelRoute(_) => Some(News::Interface),
        M::NewNeighbour(neighbour) => {
            let (address, state) = neighbour_of(neighbour, index)?;
            Some(News::Neighbour(address, state))
        }
        M::DelNeighbour(neighbour) => {
            let (address, _) = neighbour_of(neighbour, index)?;
            Some(News::Neighbour(address, Neighbour::Unknown))
        }
        _ => None,
    }
}

fn neighbour_of(message: &NeighbourMessage, index: u32) -> Option<(IpAddr, Neighbour)> {
    if message.header.ifindex != index {
        return None;
    }
    let (mut address, mut hardware) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                address = Some(IpAddr::V4(*v4));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                address = Some(IpAddr::V6(*v6));
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                hardware = bytes.as_slice().try_into().ok().map(ethernet::Address);
            }
            _ => {}
        }
    }
    use NeighbourState as S;
    let state = match (message.header.state, hardware) {
        (S::Reachable | S::Permanent | S::Noarp, Some(hardware)) => Neighbour::At {
            hardware,
            is_fresh: true,
        },
        (S::Stale | S::Delay | S::Probe, Some(hardware)) => Neighbour::At {
            hardware,
            is_fresh: false,
        },
        (S::Failed, _) => Neighbour::Silent,
        (S::Incomplete, _) => Neighbour::Asked,
        _ => Neighbour::Unknown,
    };
    Some((address?, state))
}

/// MTU, and whether the link is up.
pub(super) fn of_link(link: &LinkMessage) -> (u32, bool) {
    let mtu = link
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Mtu(mtu) => Some(*mtu),
            _ => None,
        });
    (mtu.unwrap_or(0), link.header.flags.contains(LinkFlags::Up))
}

/// An address of interface `index` that packets may leave from, with the length of its network's prefix.
pub(super) fn address(message: &AddressMessage, index: u32) -> Option<(IpAddr, u8)> {
    // RFC 4862 §2: a tentative address is not yet, and a duplicate never, an own one.
    let unusable = AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed;
    if message.header.index != index || message.header.flags.intersects(unusable) {
        return None;
    }
    let (mut local, mut network) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => local = Some(*address),
            AddressAttribute::Address(address) => network = Some(*address),
            _ => {}
        }
    }
    let own = local.or(network)?;
    // A point-to-point link: the prefix is that of the other end.
    let is_peer = network.is_some_and(|network| network != own);
    let prefix_len = match own {
        IpAddr::V4(_) if is_peer => 32,
        IpAddr::V6(_) if is_peer => 128,
        _ => message.header.prefix_len,
    };
    Some((own, prefix_len))
}

/// A unicast route of the main table over interface `index`.
pub(super) fn route(message: &RouteMessage, index: u32) -> Option<Route> {
    let header = &message.header;
    let mut table = u32::from(header.table);
    let (mut interface, mut metric) = (None, 0);
    let (mut destination, mut gateway, mut source) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Oif(number) => interface = Some(*number),
            RouteAttribute::Priority(priority) => metric = *priority,
            RouteAttribute::Destination(address) => destination = ip(address),
            RouteAttribute::Gateway(address) => gateway = ip(address),
            RouteAttribute::PrefSource(address) => source = ip(address),
            RouteAttribute::MultiPath(hops) => {
                // One of several ways; the kernel spreads flows over them, this takes the first of ours.
                let own = hops.iter().find(|hop| {
                    hop.interface_index == index && !hop.flags.contains(RouteNextHopFlags::Dead)
                })?;
                interface = Some(index);
                gateway = own.attributes.iter().find_map(|attribute| match attribute {
                    RouteAttribute::Gateway(address) => ip(address),
                    _ => None,
                });
            }
            // A router of the other family (RFC 5549).
            RouteAttribute::Via(_) => return None,
            _ => {}
        }
    }
    let is_usable = header.kind == RouteType::Unicast
        && !header
            .flags
            .intersects(RouteFlags::Cloned | RouteFlags::Dead)
        && table == u32::from(RouteHeader::RT_TABLE_MAIN);
    let everything = match header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    (is_usable && interface == Some(index)).then_some(Route {
        destination: destination.unwrap_or(everything),
        prefix_len: header.destination_prefix_length,
        gateway,
        metric,
        source,
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: u32 = 7;

    fn message(destination: Option<IpAddr>, prefix_len: u8, interface: u32) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.destination_prefix_length = prefix_len;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.kind = RouteType::Unicast;
        message.attributes.push(RouteAttribute::Oif(interface));
        if let Some(destination) = destination {
            let destination = RouteAddress::from(destination);
            message
                .attributes
                .push(RouteAttribute::Destination(destination));
        }
        message
    }

    #[test]
    fn routes_of_our_interface_in_the_main_table_count() {
        let network = IpAddr::from([10, 0, 0, 0]);
        let found = route(&message(Some(network), 24, OURS), OURS).unwrap();
        assert_eq!((found.destination, found.prefix_len), (network, 24));
        assert_eq!(route(&message(Some(network), 24, OURS + 1), OURS), None);
        let mut local = message(Some(network), 32, OURS);
        local.header.table = 255;
        assert_eq!(route(&local, OURS), None);
        let mut refused = message(Some(network), 32, OURS);
        refused.header.kind = RouteType::BlackHole;
        assert_eq!(route(&refused, OURS), None);
    }

    #[test]
    fn a_default_route_has_its_router_and_metric() {
        let router = IpAddr::from([10, 0, 0, 1]);
        let mut default = message(None, 0, OURS);
        let gateway = RouteAttribute::Gateway(RouteAddress::from(router));
        default
            .attributes
            .extend([gateway, RouteAttribute::Priority(100)]);
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
    fn addresses_that_are_not_sure_yet_are_left_out() {
        let own = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5));
        let mut message = AddressMessage::default();
        message.header.index = OURS;
        message.header.prefix_len = 64;
        message.attributes.push(AddressAttribute::Address(own));
        assert_eq!(address(&message, OURS), Some((own, 64)));
        assert_eq!(address(&message, OURS + 1), None);
        message.header.flags = AddressHeaderFlags::Tentative;
        assert_eq!(address(&message, OURS), None);
    }

    #[test]
    fn the_network_of_a_point_to_point_link_is_its_other_end() {
        let (own, peer) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 9, 9, 9]));
        let mut message = AddressMessage::default();
        message.header.index = OURS;
        message.header.prefix_len = 24;
        message.attributes.extend([
            AddressAttribute::Address(peer),
            AddressAttribute::Local(own),
        ]);
        assert_eq!(address(&message, OURS), Some((own, 32)));
    }

    #[test]
    fn what_is_known_of_a_neighbour_follows_its_state() {
        let there = IpAddr::from([10, 0, 0, 9]);
        let mut message = of_neighbour(there, OURS);
        let hardware = ethernet::Address([2, 0, 0, 0, 0, 9]);
        message
            .attributes
            .push(NeighbourAttribute::LinkLayerAddress(hardware.0.to_vec()));
        for (state, expected) in [
            (
                NeighbourState::Reachable,
                Neighbour::At {
                    hardware,
                    is_fresh: true,
                },
            ),
            (
                NeighbourState::Stale,
                Neighbour::At {
                    hardware,
                    is_fresh: false,
                },
            ),
            (NeighbourState::Incomplete, Neighbour::Asked),
            (NeighbourState::Failed, Neighbour::Silent),
        ] {
            message.header.state = state;
            let expected = News::Neighbour(there, expected);
            let told = RouteNetlinkMessage::NewNeighbour(message.clone());
            assert_eq!(news(&told, OURS), Some(expected));
        }
        let gone = RouteNetlinkMessage::DelNeighbour(message);
        let unknown = News::Neighbour(there, Neighbour::Unknown);
        assert_eq!(news(&gone, OURS), Some(unknown));
        assert_eq!(news(&gone, OURS + 1), None);
    }

    #[test]
    fn messages_that_are_cut_short_end_the_list() {
        let whole = link(OURS).serialize(5);
        let two = [whole.clone(), whole.clone()].concat();
        assert_eq!(messages(&two).count(), 2);
        assert_eq!(messages(&two[..two.len() - 1]).count(), 1);
        assert_eq!(messages(&[0; 64]).count(), 0, "a length of nothing");
        assert!(messages(&two).all(|(sequence, _)| sequence == 5));
    }
}
