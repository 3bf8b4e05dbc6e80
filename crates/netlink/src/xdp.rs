//! What an interface's driver says of XDP, asked by generic netlink. Read first: `Documentation/netlink/specs/netdev.yaml` of
//! the kernel, which has answered since Linux 6.3.

use std::io;

use rustix::net::netlink;

use crate::message::{Request, attribute, word};
use crate::socket::Socket;

/// linux/genetlink.h: the family that knows the numbers of the others.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// `struct genlmsghdr`.
const GENL_HEADER_BYTES: usize = 4;
/// linux/netdev.h.
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XDP_ZC_MAX_SEGS: u16 = 4;
const NETDEV_XDP_ACT_BASIC: u32 = 1;
const NETDEV_XDP_ACT_REDIRECT: u32 = 2;
const NETDEV_XDP_ACT_XSK_ZEROCOPY: u32 = 8;
const NETDEV_XDP_ACT_RX_SG: u32 = 32;

/// Modes of AF_XDP that a driver has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpFeatures {
    /// Programs run in the driver, and may pass frames to AF_XDP.
    pub native: bool,
    /// They are given frames in several pieces: frames that are longer than a page can arrive.
    pub pieces: bool,
    /// The device writes into the memory of an AF_XDP socket.
    pub zero_copy: bool,
    /// Pieces of a frame that it then takes.
    pub zero_copy_pieces: u32,
}

/// What the driver of the interface with this number says of XDP.
///
/// # Errors
/// There is no such interface, or the kernel does not answer this: before Linux 6.3.
pub fn features(index: u32) -> io::Result<XdpFeatures> {
    let mut socket = Socket::open(Some(netlink::GENERIC))?;
    let family = family(&mut socket)?;
    let question = [NETDEV_CMD_DEV_GET, 1, 0, 0];
    let request =
        Request::new(family, 0, &question).attribute(NETDEV_A_DEV_IFINDEX, &index.to_ne_bytes());
    let mut features = None;
    socket.ask(request, &mut |_, body| features = parse(body))?;
    features.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The number of the family `netdev`.
fn family(socket: &mut Socket) -> io::Result<u16> {
    let question = [CTRL_CMD_GETFAMILY, 1, 0, 0];
    let request =
        Request::new(GENL_ID_CTRL, 0, &question).attribute(CTRL_ATTR_FAMILY_NAME, b"netdev\0");
    let mut family = None;
    socket.ask(request, &mut |_, body| {
        let attributes = body.get(GENL_HEADER_BYTES..).unwrap_or_default();
        let number = attribute(attributes, CTRL_ATTR_FAMILY_ID).and_then(<[u8]>::first_chunk);
        family = number.map(|number| u16::from_ne_bytes(*number));
    })?;
    family.ok_or_else(|| io::ErrorKind::Unsupported.into())
}

fn parse(body: &[u8]) -> Option<XdpFeatures> {
    let attributes = body.get(GENL_HEADER_BYTES..)?;
    let features = attribute(attributes, NETDEV_A_DEV_XDP_FEATURES)?;
    // 64 bits, of which the upper half says nothing yet.
    let (lower, upper) = (word(features, 0)?, word(features, 4)?);
    let bits = if cfg!(target_endian = "little") {
        lower
    } else {
        upper
    };
    let has = |bit: u32| bits & bit == bit;
    let pieces = attribute(attributes, NETDEV_A_DEV_XDP_ZC_MAX_SEGS);
    Some(XdpFeatures {
        native: has(NETDEV_XDP_ACT_BASIC | NETDEV_XDP_ACT_REDIRECT),
        pieces: has(NETDEV_XDP_ACT_RX_SG),
        zero_copy: has(NETDEV_XDP_ACT_XSK_ZEROCOPY),
        zero_copy_pieces: pieces.and_then(|pieces| word(pieces, 0)).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::nested;

    #[test]
    fn what_a_driver_says_is_read_bit_by_bit() {
        let says = |bits: u64, pieces: Option<u32>| {
            let (bits, pieces) = (bits.to_ne_bytes(), pieces.map(u32::to_ne_bytes));
            let mut inner: Vec<(u16, &[u8])> = vec![(NETDEV_A_DEV_XDP_FEATURES, &bits)];
            inner.extend(
                pieces
                    .as_ref()
                    .map(|pieces| (NETDEV_A_DEV_XDP_ZC_MAX_SEGS, &pieces[..])),
            );
            parse(&[vec![0; GENL_HEADER_BYTES], nested(&inner)].concat()).unwrap()
        };
        let nothing = says(0, None);
        assert!(!nothing.native && !nothing.zero_copy);
        let zero_copy = says(0xb, Some(1));
        assert!(zero_copy.native && zero_copy.zero_copy && !zero_copy.pieces);
        assert!(says(0x23, None).pieces);
        assert_eq!(zero_copy.zero_copy_pieces, 1);
        assert!(!says(1, None).native, "no frame reaches AF_XDP");
        assert_eq!(parse(&[0; 3]), None);
        assert_eq!(parse(&[0; 40]), None);
    }

    #[test]
    fn an_interface_that_is_not_there_is_an_error() {
        assert!(features(0x7fff_fff0).is_err());
    }
}
