//! How large a segment the kernel and this interface pass on in one piece: 64 KiB, or more where an
//! administrator allows it ("BIG TCP": `ip link set … gso_ipv4_max_size`). Read first: rtnetlink(7),
//! ip-link(8).

use std::io;

use crate::message::{attribute, attributes, text, word};
use crate::rtnetlink::{self, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO};
use crate::socket::Socket;

/// What every interface passes: a full IPv4 packet (RFC 791 §3.1, Total Length).
pub const ORDINARY_BYTES: u32 = 65_536;
/// No kernel goes beyond (`GSO_MAX_SIZE`); larger answers are not believed.
const MAX_BYTES: u32 = 8 * 65_535;
/// linux/if_link.h.
const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
const IFLA_GRO_IPV4_MAX_SIZE: u16 = 64;
/// linux/if_link.h: whether the frames of a TAP come with a virtio header.
const IFLA_TUN_VNET_HDR: u16 = 5;

/// Largest packets in one piece, IPv4 header included, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
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
pub enum Kind {
    /// A device, as far as the kernel says.
    Physical,
    /// The end of a virtual cable.
    Veth,
    /// Anything else that the kernel makes up.
    Virtual,
}

impl Segments {
    /// Those of an interface that says nothing.
    pub const ORDINARY: Self = Self {
        gso_bytes: ORDINARY_BYTES,
        gro_bytes: ORDINARY_BYTES,
        arrive_cut: false,
        kind: Kind::Physical,
    };
}

/// Asks the kernel about interface number `index`. A kernel that does not know (before 6.3) has the
/// ordinary limits.
pub(crate) fn read(index: u32) -> io::Result<Segments> {
    let mut found = None;
    Socket::open(None)?.ask(rtnetlink::link(index), &mut |kind, body| {
        found = parse(kind, body);
    })?;
    found.ok_or_else(|| io::Error::from_raw_os_error(libc::EPROTO))
}

fn parse(kind: u16, body: &[u8]) -> Option<Segments> {
    let link = body
        .get(rtnetlink::LINK_BYTES..)
        .filter(|_| kind == rtnetlink::NEW_LINK)?;
    let mut segments = Segments::ORDINARY;
    for (kind, value) in attributes(link) {
        match kind {
            IFLA_GSO_IPV4_MAX_SIZE => segments.gso_bytes = MAX_BYTES.min(word(value, 0)?),
            IFLA_GRO_IPV4_MAX_SIZE => segments.gro_bytes = MAX_BYTES.min(word(value, 0)?),
            IFLA_LINKINFO => {
                let name = attribute(value, IFLA_INFO_KIND).map(text);
                segments.arrive_cut =
                    name.as_deref() == Some("tun") && is_tap_of_plain_frames(value);
                segments.kind = match name.as_deref() {
                    Some("veth") => Kind::Veth,
                    Some(_) => Kind::Virtual,
                    None => Kind::Physical,
                };
            }
            _ => {}
        }
    }
    Some(segments)
}

fn is_tap_of_plain_frames(info: &[u8]) -> bool {
    let tap = attribute(info, IFLA_INFO_DATA).unwrap_or_default();
    attribute(tap, IFLA_TUN_VNET_HDR) == Some(&[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::nested;

    fn answer(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        [vec![0; rtnetlink::LINK_BYTES], nested(attributes)].concat()
    }

    #[test]
    fn the_limits_of_the_interface_are_read_and_missing_ones_are_ordinary() {
        let parse = |answer: Vec<u8>| parse(rtnetlink::NEW_LINK, &answer).unwrap();
        assert_eq!(parse(answer(&[])), Segments::ORDINARY);
        let raised = answer(&[
            (IFLA_GSO_IPV4_MAX_SIZE, &196_608_u32.to_ne_bytes()),
            (IFLA_GRO_IPV4_MAX_SIZE, &u32::MAX.to_ne_bytes()),
        ]);
        let expected = Segments {
            gso_bytes: 196_608,
            gro_bytes: MAX_BYTES,
            ..Segments::ORDINARY
        };
        assert_eq!(parse(raised), expected);
    }

    #[test]
    fn a_tap_without_virtio_headers_brings_frames_cut() {
        let tap = |vnet: u8, name: &[u8]| {
            let data = nested(&[(4, &[0]), (IFLA_TUN_VNET_HDR, &[vnet])]);
            let info = nested(&[(IFLA_INFO_KIND, name), (IFLA_INFO_DATA, &data)]);
            parse(rtnetlink::NEW_LINK, &answer(&[(IFLA_LINKINFO, &info)])).unwrap()
        };
        assert!(tap(0, b"tun\0").arrive_cut);
        assert!(!tap(1, b"tun\0").arrive_cut);
        assert!(!tap(0, b"other\0").arrive_cut);
        let kinds = [tap(0, b"veth\0").kind, tap(0, b"tun\0").kind];
        assert_eq!(kinds, [Kind::Veth, Kind::Virtual]);
    }

    #[test]
    fn an_answer_that_is_cut_short_or_another_is_none() {
        let whole = answer(&[(IFLA_GSO_IPV4_MAX_SIZE, &196_608_u32.to_ne_bytes())]);
        assert!(parse(rtnetlink::NEW_LINK, &whole[..10]).is_none());
        assert!(parse(rtnetlink::NEW_LINK + 1, &whole).is_none());
    }

    #[test]
    fn loopback_has_limits() {
        assert!(read(1).unwrap().gso_bytes >= ORDINARY_BYTES);
        let missing = read(u32::MAX).unwrap_err();
        assert!(missing.raw_os_error().is_some());
    }
}
