//! The rtnetlink requests that build a cable, as bytes, see rtnetlink(7).
//!
//! They are built before the fork and sent after it (`sys.rs`), which is why the `rtnetlink` crate
//! with its runtime is not used. New links get an index of our choice, so that no request needs to
//! look one up.

use std::{
    net::{IpAddr, Ipv6Addr},
    os::fd::{AsRawFd, BorrowedFd},
};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope},
    link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
};

use crate::{Cidr, INTERFACE, ORDINARY_SEGMENT_BYTES};

/// Index of the loopback interface of every network namespace.
const LOOPBACK_INDEX: u32 = 1;

/// Index of the cable's end on every host: above what the kernel hands out by itself at start.
pub(crate) const CABLE_INDEX: u32 = 77;

/// Packets that may wait in a TAP for its reader. The kernel's 500 are 6 ms of a gigabit: a reader
/// that the scheduler keeps waiting longer would lose what no cable was told to lose.
const TAP_QUEUE_PACKETS: u32 = 20_000;

/// Creates a veth pair: one end here, its peer in the namespace `peer`.
pub(crate) fn create_veth(peer: BorrowedFd<'_>, mtu: u32, segment_bytes: u32) -> Vec<u8> {
    let mut far_end = end_of_cable(mtu, segment_bytes);
    far_end
        .attributes
        .push(LinkAttribute::NetNsFd(peer.as_raw_fd()));
    let mut near_end = end_of_cable(mtu, segment_bytes);
    near_end.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(far_end))),
    ]));
    bytes(
        RouteNetlinkMessage::NewLink(near_end),
        NLM_F_CREATE | NLM_F_EXCL,
    )
}

/// Gives a TAP its MTU and a queue.
pub(crate) fn prepare_tap(mtu: u32) -> Vec<u8> {
    let mut message = LinkMessage::default();
    message.header.index = CABLE_INDEX;
    message.attributes = vec![
        LinkAttribute::Mtu(mtu),
        LinkAttribute::TxQueueLen(TAP_QUEUE_PACKETS),
    ];
    bytes(RouteNetlinkMessage::SetLink(message), 0)
}

/// Switches the loopback interface on.
pub(crate) fn loopback_up() -> Vec<u8> {
    link_up(LOOPBACK_INDEX)
}

/// Switches the cable's end on.
pub(crate) fn cable_up() -> Vec<u8> {
    link_up(CABLE_INDEX)
}

/// Gives the cable's end its address; the route to the network follows by itself.
pub(crate) fn add_address(cidr: Cidr) -> Vec<u8> {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = cidr.prefix_len;
    message.header.scope = AddressScope::Universe;
    message.header.index = CABLE_INDEX;
    let address = IpAddr::V4(cidr.address);
    message.attributes = vec![
        AddressAttribute::Local(address),
        AddressAttribute::Address(address),
        AddressAttribute::Broadcast(cidr.broadcast()),
    ];
    bytes(
        RouteNetlinkMessage::NewAddress(message),
        NLM_F_CREATE | NLM_F_EXCL,
    )
}

/// Gives the cable's end an IPv6 address, to be used at once: there is nobody else on the cable who
/// could have it.
pub(crate) fn add_address_v6(address: Ipv6Addr, prefix_len: u8) -> Vec<u8> {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.prefix_len = prefix_len;
    message.header.scope = AddressScope::Universe;
    message.header.flags = AddressHeaderFlags::Nodad;
    message.header.index = CABLE_INDEX;
    message.attributes = vec![AddressAttribute::Address(IpAddr::V6(address))];
    bytes(
        RouteNetlinkMessage::NewAddress(message),
        NLM_F_CREATE | NLM_F_EXCL,
    )
}

fn end_of_cable(mtu: u32, segment_bytes: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = CABLE_INDEX;
    message.attributes = vec![
        LinkAttribute::IfName(INTERFACE.to_owned()),
        LinkAttribute::Mtu(mtu),
    ];
    // Kernels before 6.3 know no other size than the ordinary one, and need not be told of it.
    if segment_bytes != ORDINARY_SEGMENT_BYTES {
        message.attributes.extend([
            LinkAttribute::GsoMaxSize(segment_bytes),
            LinkAttribute::GroMaxSize(segment_bytes),
            LinkAttribute::GsoIpv4MaxSize(segment_bytes),
            LinkAttribute::GroIpv4MaxSize(segment_bytes),
        ]);
    }
    message
}

fn link_up(index: u32) -> Vec<u8> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    bytes(RouteNetlinkMessage::SetLink(message), 0)
}

fn bytes(message: RouteNetlinkMessage, flags: u16) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    bytes
}
