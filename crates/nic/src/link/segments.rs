//! How large a segment the kernel and this interface pass on in one piece: 64 KiB, or more where an
//! administrator allows it ("BIG TCP": `ip link set … gso_ipv4_max_size`). Read first: rtnetlink(7),
//! ip-link(8).

use std::io;

use netlink_packet_core::{
    NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload as Payload, Nla,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoData, InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// What every interface passes: a full IPv4 packet (RFC 791 §3.1, Total Length).
pub(crate) const ORDINARY_BYTES: u32 = 65_536;
/// No kernel goes beyond (`GSO_MAX_SIZE`); larger answers are not believed.
const MAX_BYTES: u32 = 8 * 65_535;
/// `linux/if_link.h`: whether the frames of a TAP come with a virtio header.
const IFLA_TUN_VNET_HDR: u16 = 5;
/// A link's description with all its statistics takes a few KiB.
const ANSWER_BYTES: usize = 32 * 1024;

/// Largest packets in one piece, IPv4 header included, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segments {
    /// Ours, to be cut by the device (`gso_ipv4_max_size`).
    pub gso_bytes: u32,
    /// The peer's, merged by the device or never cut (`gro_ipv4_max_size`).
    pub gro_bytes: u32,
    /// Hardly anything longer than the MTU arrives: a TAP whose program writes frames without a virtio
    /// header, by which alone it could say how to cut them.
    pub arrive_cut: bool,
    /// What the interface is made of.
    pub kind: Kind,
}

/// What is behind an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A device, as far as the kernel says.
    Physical,
    /// The end of a virtual cable.
    Veth,
    /// Anything else that the kernel makes up.
    Virtual,
}

impl Segments {
    pub(crate) const ORDINARY: Self = Self {
        gso_bytes: ORDINARY_BYTES,
        gro_bytes: ORDINARY_BYTES,
        arrive_cut: false,
        kind: Kind::Physical,
    };
}

/// Asks the kernel about interface number `index`. A kernel that does not know (before 6.3) has the
/// ordinary limits.
pub(crate) fn read(index: u32) -> io::Result<Segments> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // NETLINK_ROUTE is protocol 0.
        None,
    )?;
    send(&socket, &request(index), SendFlags::empty())?;
    let mut answer = vec![0; ANSWER_BYTES];
    let (_, len) = recv(&socket, answer.as_mut_slice(), RecvFlags::empty())?;
    parse(answer.get(..len).unwrap_or(&answer))
}

fn request(index: u32) -> Vec<u8> {
    let mut link = LinkMessage::default();
    link.header.index = index;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let body = Payload::from(RouteNetlinkMessage::GetLink(link));
    let mut request = NetlinkMessage::new(header, body);
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    bytes
}

fn parse(answer: &[u8]) -> io::Result<Segments> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(answer).map_err(invalid)?;
    let link = match message.payload {
        Payload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => link,
        Payload::Error(error) => return Err(error.to_io()),
        _ => return Err(io::Error::from_raw_os_error(libc::EPROTO)),
    };
    let mut segments = Segments::ORDINARY;
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::GsoIpv4MaxSize(bytes) => segments.gso_bytes = MAX_BYTES.min(*bytes),
            LinkAttribute::GroIpv4MaxSize(bytes) => segments.gro_bytes = MAX_BYTES.min(*bytes),
            LinkAttribute::LinkInfo(infos) => {
                segments.arrive_cut = is_tap_of_plain_frames(infos);
                segments.kind = kind(infos);
            }
            _ => {}
        }
    }
    Ok(segments)
}

fn kind(infos: &[LinkInfo]) -> Kind {
    let mut kinds = infos.iter().filter_map(|info| match info {
        LinkInfo::Kind(InfoKind::Veth) => Some(Kind::Veth),
        LinkInfo::Kind(_) => Some(Kind::Virtual),
        _ => None,
    });
    kinds.next().unwrap_or(Kind::Physical)
}

fn is_tap_of_plain_frames(infos: &[LinkInfo]) -> bool {
    let mut tap = infos.iter().filter_map(|info| match info {
        LinkInfo::Data(InfoData::Tun(tap)) => Some(tap),
        _ => None,
    });
    // The crate leaves a TAP's attributes as they come.
    tap.any(|tap| {
        tap.iter().any(|attribute| {
            let mut value = [1];
            let is_byte = attribute.kind() == IFLA_TUN_VNET_HDR && attribute.value_len() == 1;
            if is_byte {
                attribute.emit_value(&mut value);
            }
            value == [0]
        })
    })
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::DefaultNla;
    use netlink_packet_route::link::InfoTun;

    use super::*;

    fn answer(attributes: Vec<LinkAttribute>) -> Vec<u8> {
        let mut link = LinkMessage::default();
        link.attributes = attributes;
        let body = Payload::from(RouteNetlinkMessage::NewLink(link));
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), body);
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    #[test]
    fn the_limits_of_the_interface_are_read_and_missing_ones_are_ordinary() {
        assert_eq!(parse(&answer(Vec::new())).unwrap(), Segments::ORDINARY);
        let raised = answer(vec![
            LinkAttribute::GsoIpv4MaxSize(196_608),
            LinkAttribute::GroIpv4MaxSize(u32::MAX),
        ]);
        let expected = Segments {
            gso_bytes: 196_608,
            gro_bytes: MAX_BYTES,
            ..Segments::ORDINARY
        };
        assert_eq!(parse(&raised).unwrap(), expected);
    }

    #[test]
    fn a_tap_without_virtio_headers_brings_frames_cut() {
        let tap = |vnet| {
            let flag = |kind, value| InfoTun::Other(DefaultNla::new(kind, vec![value]));
            let data = InfoData::Tun(vec![flag(4, 0), flag(IFLA_TUN_VNET_HDR, vnet)]);
            let infos = vec![LinkInfo::Kind(InfoKind::Tun), LinkInfo::Data(data)];
            answer(vec![LinkAttribute::LinkInfo(infos)])
        };
        assert!(parse(&tap(0)).unwrap().arrive_cut);
        assert!(!parse(&tap(1)).unwrap().arrive_cut);
    }

    #[test]
    fn an_answer_that_is_cut_short_is_an_error() {
        let whole = answer(vec![LinkAttribute::GsoIpv4MaxSize(196_608)]);
        assert!(parse(&whole[..10]).is_err());
    }

    #[test]
    fn loopback_has_limits() {
        assert!(read(1).unwrap().gso_bytes >= ORDINARY_BYTES);
        let missing = read(u32::MAX).unwrap_err();
        assert!(missing.raw_os_error().is_some());
    }
}
