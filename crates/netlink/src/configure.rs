//! Requests that set up interfaces, as bytes (rtnetlink(7)), and what sends one of them by system calls alone, as a forked
//! child may. A new link gets a number of the caller's choice, so that no request needs to look one up.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, recv, send};

use crate::message::{AnswerPart, Request, flag, nested, octets, parts};
use crate::rtnetlink::{
    ADDRESS_BYTES, IFA_ADDRESS, IFA_LOCAL, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO, IFLA_MTU,
    LINK_BYTES, NEW_ADDRESS, NEW_LINK, SET_LINK, family, link_structure,
};
use crate::socket;

const IFLA_IFNAME: u16 = 3;
const IFLA_TXQLEN: u16 = 13;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_GRO_MAX_SIZE: u16 = 58;
const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
const IFLA_GRO_IPV4_MAX_SIZE: u16 = 64;
/// linux/veth.h.
const VETH_INFO_PEER: u16 = 1;
const IFA_BROADCAST: u16 = 4;
/// linux/if_addr.h: no duplicate address detection.
const IFA_F_NODAD: u8 = 2;
/// How long the kernel may take to acknowledge a request.
const PATIENCE: Duration = Duration::from_secs(2);

/// The end of a veth pair, which both ends are made with.
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    /// Its number on its host.
    pub index: u32,
    /// Its name there.
    pub name: &'a str,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Bytes of the largest segment that it passes in one piece; `None`: the ordinary 64 KiB, which kernels before 6.3
    /// need not be told.
    pub segment_bytes: Option<u32>,
}

impl VethEnd<'_> {
    fn attributes(&self) -> Vec<u8> {
        let name = [self.name.as_bytes(), &[0]].concat();
        let mut bytes = nested(&[(IFLA_IFNAME, &name), (IFLA_MTU, &self.mtu.to_ne_bytes())]);
        if let Some(largest) = self.segment_bytes.map(u32::to_ne_bytes) {
            bytes.extend(nested(&[
                (IFLA_GSO_MAX_SIZE, &largest),
                (IFLA_GRO_MAX_SIZE, &largest),
                (IFLA_GSO_IPV4_MAX_SIZE, &largest),
                (IFLA_GRO_IPV4_MAX_SIZE, &largest),
            ]));
        }
        bytes
    }
}

/// Creates a veth pair: one end here, its peer in the namespace `peer`, both as `end` says.
#[must_use]
pub fn create_veth(end: VethEnd<'_>, peer: BorrowedFd<'_>) -> Vec<u8> {
    let structure = link_structure(end.index, 0);
    let far_end = [
        structure.to_vec(),
        end.attributes(),
        nested(&[(IFLA_NET_NS_FD, &peer.as_raw_fd().to_ne_bytes())]),
    ]
    .concat();
    let near_end = [structure.to_vec(), end.attributes()].concat();
    let info = nested(&[
        (IFLA_INFO_KIND, b"veth\0"),
        (IFLA_INFO_DATA, &nested(&[(VETH_INFO_PEER, &far_end)])),
    ]);
    let flags = flag::ACK | flag::CREATE | flag::EXCL;
    let request = Request::new(NEW_LINK, flags, &near_end);
    request.attribute(IFLA_LINKINFO, &info).finish(0)
}

/// Gives a link its MTU in bytes, and the number of packets that may wait to be sent.
#[must_use]
pub fn set_mtu_and_queue(index: u32, mtu: u32, queue_packets: u32) -> Vec<u8> {
    Request::new(SET_LINK, flag::ACK, &link_structure(index, 0))
        .attribute(IFLA_MTU, &mtu.to_ne_bytes())
        .attribute(IFLA_TXQLEN, &queue_packets.to_ne_bytes())
        .finish(0)
}

/// Switches a link on.
#[must_use]
pub fn set_up(index: u32) -> Vec<u8> {
    const _: () = assert!(LINK_BYTES == 16);
    let structure = link_structure(index, libc::IFF_UP.cast_unsigned());
    Request::new(SET_LINK, flag::ACK, &structure).finish(0)
}

/// Gives a link an IPv4 address; the route to the network follows by itself.
#[must_use]
pub fn add_address(index: u32, address: Ipv4Addr, prefix_len: u8, broadcast: Ipv4Addr) -> Vec<u8> {
    let own = address.octets();
    of_address(index, address.into(), prefix_len, 0)
        .attribute(IFA_LOCAL, &own)
        .attribute(IFA_ADDRESS, &own)
        .attribute(IFA_BROADCAST, &broadcast.octets())
        .finish(0)
}

/// Gives a link an IPv6 address to be used at once: nobody else on the link has it.
#[must_use]
pub fn add_address_v6(index: u32, address: Ipv6Addr, prefix_len: u8) -> Vec<u8> {
    of_address(index, address.into(), prefix_len, IFA_F_NODAD)
        .attribute(IFA_ADDRESS, &octets(address.into()))
        .finish(0)
}

fn of_address(index: u32, address: IpAddr, prefix_len: u8, flags: u8) -> Request {
    let mut structure = [0; ADDRESS_BYTES];
    // The last is RT_SCOPE_UNIVERSE.
    structure[..4].copy_from_slice(&[family(address), prefix_len, flags, 0]);
    structure[4..].copy_from_slice(&index.to_ne_bytes());
    let flags = flag::ACK | flag::CREATE | flag::EXCL;
    Request::new(NEW_ADDRESS, flags, &structure)
}

/// Sends a request of this file and waits for its acknowledgement; makes system calls only.
///
/// # Errors
/// The kernel's answer, or none within two seconds.
pub fn send_acknowledged(request: &[u8]) -> io::Result<()> {
    let socket = socket::open(None, SocketFlags::empty())?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    send(&socket, request, SendFlags::empty())?;
    let mut answer = [0_u8; 4096];
    let (len, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    match parts(answer.get(..len).unwrap_or_default()).next() {
        Some((_, AnswerPart::End(None))) => Ok(()),
        Some((_, AnswerPart::End(Some(error)))) => Err(error),
        _ => Err(rustix::io::Errno::BADMSG.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::attribute;

    #[test]
    fn both_ends_of_a_veth_pair_are_made_alike() {
        let end = VethEnd {
            index: 77,
            name: "eth0",
            mtu: 9_000,
            segment_bytes: Some(196_608),
        };
        let zero = std::fs::File::open("/dev/null").unwrap();
        let bytes = create_veth(end, std::os::fd::AsFd::as_fd(&zero));
        let Some((0, AnswerPart::Message(NEW_LINK, body))) = parts(&bytes).next() else {
            panic!("{bytes:?}");
        };
        let near = &body[LINK_BYTES..];
        let info = attribute(near, IFLA_LINKINFO).unwrap();
        assert_eq!(attribute(info, IFLA_INFO_KIND), Some(&b"veth\0"[..]));
        let peer = attribute(info, IFLA_INFO_DATA).unwrap();
        let far = attribute(peer, VETH_INFO_PEER).unwrap();
        assert_eq!(far[..LINK_BYTES], link_structure(77, 0));
        for kind in [
            IFLA_IFNAME,
            IFLA_MTU,
            IFLA_GSO_MAX_SIZE,
            IFLA_GRO_IPV4_MAX_SIZE,
        ] {
            assert_eq!(attribute(near, kind), attribute(&far[LINK_BYTES..], kind));
            assert!(attribute(near, kind).is_some());
        }
        assert!(attribute(&far[LINK_BYTES..], IFLA_NET_NS_FD).is_some());
        assert_eq!(attribute(near, IFLA_NET_NS_FD), None);
    }

    #[test]
    fn an_interface_that_is_not_there_is_said_to_be_missing() {
        let error = send_acknowledged(&set_up(u32::MAX >> 1)).unwrap_err();
        let is_known = matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EPERM));
        assert!(is_known, "{error}");
    }
}
