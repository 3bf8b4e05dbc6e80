//! Control messages that a program sends with datagrams (cmsg(3), ip(7), ipv6(7), udp(7)). Bytes only; the
//! pointers are in `sys.rs`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use rustix::io::Errno;

use crate::address::Family;

/// `struct cmsghdr`: a length of eight bytes, level, type.
pub const HEADER_BYTES: usize = 16;
/// Of what follows a message.
pub const ALIGN: usize = 8;
/// Not in the C library's bindings: linux/udp.h, linux/in6.h.
pub const UDP_SEGMENT: i32 = 103;
/// The same.
pub const UDP_GRO: i32 = 104;
/// The same.
pub const IPV6_DONTFRAG: i32 = 62;
/// The same.
pub const IPV6_RECVERR: i32 = 25;
/// The same.
pub const IPV6_ORIGDSTADDR: i32 = 74;
/// Datagrams that one payload may be cut into (Linux `UDP_MAX_SEGMENTS`).
const SEGMENTS_MAX: usize = 128;

/// Not in the C library's bindings: asm-generic/socket.h.
pub const SO_RCVMARK: i32 = 75;
/// The same.
pub const SO_RCVPRIORITY: i32 = 82;

/// What a program wants to hear with each datagram.
pub mod want {
    /// IP_PKTINFO.
    pub const PACKET_INFO: u32 = 1;
    /// IP_RECVTTL.
    pub const TTL: u32 = 1 << 1;
    /// IP_RECVTOS.
    pub const TOS: u32 = 1 << 2;
    /// SO_TIMESTAMP.
    pub const TIMESTAMP: u32 = 1 << 3;
    /// SO_TIMESTAMPNS.
    pub const TIMESTAMP_NS: u32 = 1 << 4;
    /// UDP_GRO.
    pub const GRO: u32 = 1 << 5;
    /// IPV6_RECVPKTINFO.
    pub const PACKET_INFO_V6: u32 = 1 << 6;
    /// IPV6_RECVHOPLIMIT.
    pub const HOP_LIMIT: u32 = 1 << 7;
    /// IPV6_RECVTCLASS.
    pub const TRAFFIC_CLASS: u32 = 1 << 8;
    /// SO_TIMESTAMPING, software times of arrival.
    pub const TIMESTAMPING: u32 = 1 << 9;
    /// TCP_INQ.
    pub const BYTES_LEFT: u32 = 1 << 10;
    /// IP_RECVORIGDSTADDR.
    pub const DESTINATION: u32 = 1 << 11;
    /// IPV6_RECVORIGDSTADDR.
    pub const DESTINATION_V6: u32 = 1 << 12;
    /// SO_RCVMARK.
    pub const MARK: u32 = 1 << 13;
    /// SO_RCVPRIORITY.
    pub const PRIORITY: u32 = 1 << 14;
}

/// What a call wants besides the payload: from control messages (ip(7), udp(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendAncillary {
    /// The address of IP_PKTINFO or IPV6_PKTINFO.
    pub source: Option<IpAddr>,
    /// The interface of IP_PKTINFO or IPV6_PKTINFO; 0: none.
    pub interface: u32,
    /// IP_TOS, IPV6_TCLASS.
    pub tos: Option<u8>,
    /// IP_TTL, IPV6_HOPLIMIT.
    pub ttl: Option<u8>,
    /// IPV6_DONTFRAG.
    pub whole: bool,
    /// UDP_SEGMENT.
    pub segment_bytes: Option<u16>,
    /// Which times of sending are asked for, and under which key they are reported.
    pub stamps: StampWishes,
}

/// What a call wants besides the payload that is told of any socket (`__sock_cmsg_send`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampWishes {
    /// SO_TIMESTAMPING, of this call alone.
    pub flags: Option<u32>,
    /// SCM_TS_OPT_ID.
    pub key: Option<u32>,
}

/// Reads what a sending call wants of a datagram to an address of `family`.
///
/// # Errors
/// EINVAL for a malformed or unknown message, as `ip_cmsg_send` and `ip6_datagram_send_ctl`.
pub fn parse(mut control: &[u8], family: Family) -> Result<SendAncillary, Errno> {
    let mut ancillary = SendAncillary::default();
    while let Some(message) = next(&mut control)? {
        let Message { level, kind, data } = message;
        match (level, family) {
            (libc::SOL_SOCKET, _) => ancillary.stamps.read(kind, data)?,
            (libc::IPPROTO_UDP, _) if kind == UDP_SEGMENT => {
                let bytes = data.try_into().map_err(|_| Errno::INVAL)?;
                ancillary.segment_bytes = Some(u16::from_ne_bytes(bytes));
            }
            (libc::IPPROTO_UDP, _) => return Err(Errno::INVAL),
            (libc::IPPROTO_IP, Family::V4) => parse_v4(&mut ancillary, kind, data)?,
            (libc::IPPROTO_IPV6, Family::V6) => parse_v6(&mut ancillary, kind, data)?,
            // A socket of AF_INET6 may say so of its IPv4 packets.
            (libc::IPPROTO_IPV6, Family::V4) if kind == libc::IPV6_PKTINFO => {
                parse_v6(&mut ancillary, kind, data)?;
                let mapped = |ip: &IpAddr| ip.to_canonical().is_ipv4();
                let source = ancillary.source.filter(mapped).ok_or(Errno::INVAL)?;
                ancillary.source = Some(source.to_canonical());
            }
            // Linux passes over what is for another family.
            _ => {}
        }
    }
    Ok(ancillary)
}

/// One control message.
struct Message<'a> {
    level: i32,
    kind: i32,
    data: &'a [u8],
}

/// Takes the next one off; EINVAL for one that lies about its length (`CMSG_OK`).
fn next<'a>(control: &mut &'a [u8]) -> Result<Option<Message<'a>>, Errno> {
    let Some((header, _)) = control.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let [length @ .., _, _, _, _, _, _, _, _] = header;
    let length = usize::from_ne_bytes(*length);
    let [_, _, _, _, _, _, _, _, level @ .., _, _, _, _] = header;
    let [.., a, b, c, d] = header;
    let message = Message {
        level: i32::from_ne_bytes(*level),
        kind: i32::from_ne_bytes([*a, *b, *c, *d]),
        data: control.get(HEADER_BYTES..length).ok_or(Errno::INVAL)?,
    };
    let rest = control.get(length.next_multiple_of(ALIGN)..);
    *control = rest.unwrap_or_default();
    Ok(Some(message))
}

/// Whether what is sent along on a stream is what Linux takes there: it passes over all but its own level
/// (`sock_cmsg_send`).
///
/// # Errors
/// EINVAL.
pub fn parse_for_stream(mut control: &[u8]) -> Result<Option<u32>, Errno> {
    let mut ancillary = StampWishes::default();
    while let Some(message) = next(&mut control)? {
        if message.level == libc::SOL_SOCKET {
            ancillary.read(message.kind, message.data)?;
        }
    }
    match ancillary.key {
        // Bytes have names already.
        Some(_) => Err(Errno::INVAL),
        None => Ok(ancillary.flags),
    }
}

impl StampWishes {
    /// A message of `__sock_cmsg_send`. What the mark, the priority and the moment of sending mean the engine's devices do
    /// not know.
    fn read(&mut self, kind: i32, data: &[u8]) -> Result<(), Errno> {
        /// asm-generic/socket.h, linux/net_tstamp.h.
        const SO_TIMESTAMPING_NEW: i32 = 65;
        const SCM_CREDENTIALS: i32 = libc::SCM_CREDENTIALS;
        const SCM_TS_OPT_ID: i32 = 81;
        /// SOF_TIMESTAMPING_TX_RECORD_MASK: hardware, software, scheduled, acknowledged, completed.
        const RECORDS: u32 = 1 | 1 << 1 | 1 << 8 | 1 << 9 | 1 << 18;
        let number = || {
            let bytes = data.try_into().map_err(|_| Errno::INVAL)?;
            Ok::<u32, Errno>(u32::from_ne_bytes(bytes))
        };
        match kind {
            libc::SO_MARK | libc::SO_PRIORITY => drop(number()?),
            libc::SO_TIMESTAMPING | SO_TIMESTAMPING_NEW => {
                let flags = number()?;
                if flags & !RECORDS != 0 {
                    return Err(Errno::INVAL);
                }
                self.flags = Some(flags);
            }
            SCM_TS_OPT_ID => self.key = Some(number()?),
            // They are of Unix sockets, which is no harm.
            libc::SCM_RIGHTS | SCM_CREDENTIALS => {}
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }
}

/// A message of `ip_cmsg_send`.
fn parse_v4(ancillary: &mut SendAncillary, kind: i32, data: &[u8]) -> Result<(), Errno> {
    /// linux/in.h.
    const IP_PROTOCOL: i32 = 52;
    let number = || {
        let bytes = data.try_into().map_err(|_| Errno::INVAL)?;
        u8::try_from(i32::from_ne_bytes(bytes)).map_err(|_| Errno::INVAL)
    };
    match kind {
        libc::IP_PKTINFO => {
            // `struct in_pktinfo`: the index, the address to send from, and one that says nothing here.
            let info: &[u8; 12] = data.try_into().map_err(|_| Errno::INVAL)?;
            let [a, b, c, d, source @ .., _, _, _, _] = info;
            let source = Ipv4Addr::from(*source);
            ancillary.source = (!source.is_unspecified()).then_some(IpAddr::V4(source));
            ancillary.interface = u32::from_ne_bytes([*a, *b, *c, *d]);
        }
        libc::IP_TTL => {
            ancillary.ttl = Some(number().ok().filter(|ttl| *ttl > 0).ok_or(Errno::INVAL)?)
        }
        libc::IP_TOS if data.len() == 1 => ancillary.tos = Some(data[0]),
        libc::IP_TOS => ancillary.tos = Some(number()?),
        // It is a raw socket's.
        IP_PROTOCOL if number().is_ok_and(|protocol| protocol > 0) => {}
        _ => return Err(Errno::INVAL),
    }
    Ok(())
}

/// A message of `ip6_datagram_send_ctl` (RFC 3542 §6).
fn parse_v6(ancillary: &mut SendAncillary, kind: i32, data: &[u8]) -> Result<(), Errno> {
    let first = || {
        let bytes = data.first_chunk().ok_or(Errno::INVAL)?;
        Ok::<i32, Errno>(i32::from_ne_bytes(*bytes))
    };
    // -1 asks for the socket's.
    let octet = |number: i32| match number {
        -1 => Ok(None),
        number => u8::try_from(number).map(Some).map_err(|_| Errno::INVAL),
    };
    match kind {
        libc::IPV6_PKTINFO => {
            let (address, rest) = data.split_first_chunk::<16>().ok_or(Errno::INVAL)?;
            let index = rest.first_chunk().ok_or(Errno::INVAL)?;
            let source = Ipv6Addr::from_octets(*address);
            ancillary.source = (!source.is_unspecified()).then_some(IpAddr::V6(source));
            ancillary.interface = u32::from_ne_bytes(*index);
        }
        libc::IPV6_HOPLIMIT => ancillary.ttl = octet(first()?)?,
        libc::IPV6_TCLASS => ancillary.tos = octet(first()?)?,
        IPV6_DONTFRAG => ancillary.whole = first()? != 0,
        _ => return Err(Errno::INVAL),
    }
    Ok(())
}

/// Bytes of a packet that are no payload.
const fn headers_len(family: Family) -> usize {
    match family {
        Family::V4 => 20 + 8,
        Family::V6 => 40 + 8,
    }
}

/// Most bytes of payload: the length field of IPv4 counts the IP header, that of IPv6 does not.
#[must_use]
pub const fn payload_max(family: Family) -> usize {
    match family {
        Family::V4 => 65_535 - 20 - 8,
        Family::V6 => 65_535 - 8,
    }
}

/// Whether a payload can be sent over a link with this MTU, cut into pieces or not; EMSGSIZE or EINVAL at once,
/// where the program can still be told. `whole`: not in fragments.
pub fn check_length(
    family: Family,
    len: usize,
    segment_bytes: usize,
    whole: bool,
    mtu: usize,
) -> Result<(), Errno> {
    if len > payload_max(family) {
        return Err(Errno::MSGSIZE);
    }
    let headers_len = headers_len(family);
    let piece = if segment_bytes > 0 && len > segment_bytes {
        segment_bytes
    } else {
        len
    };
    let too_many = segment_bytes > 0 && len > segment_bytes * SEGMENTS_MAX;
    if too_many || (segment_bytes > 0 && piece + headers_len > mtu) {
        return Err(Errno::INVAL);
    }
    if piece + headers_len > mtu && whole {
        return Err(Errno::MSGSIZE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::describe::cmsg;
    use super::*;

    #[test]
    fn ancillary_are_read_from_any_number_of_messages() {
        let info = [[5, 0, 0, 0], [10, 0, 0, 2], [0; 4]].concat();
        let control = [
            cmsg(libc::IPPROTO_IP, libc::IP_PKTINFO, &info),
            cmsg(libc::IPPROTO_IP, libc::IP_TTL, &7_i32.to_ne_bytes()),
            cmsg(libc::IPPROTO_IP, libc::IP_TOS, &[0x10]),
            cmsg(libc::IPPROTO_UDP, UDP_SEGMENT, &500_u16.to_ne_bytes()),
        ]
        .concat();
        let expected = SendAncillary {
            source: Some("10.0.0.2".parse().unwrap()),
            interface: u32::from_ne_bytes([5, 0, 0, 0]),
            tos: Some(0x10),
            ttl: Some(7),
            segment_bytes: Some(500),
            ..SendAncillary::default()
        };
        assert_eq!(parse(&control, Family::V4), Ok(expected));
        assert_eq!(parse(&[], Family::V4), Ok(SendAncillary::default()));
    }

    #[test]
    fn messages_of_ipv6_have_their_own_forms() {
        let source: Ipv6Addr = "2001:db8::1".parse().unwrap();
        let info = [&source.octets()[..], &3_u32.to_ne_bytes()].concat();
        let control = [
            cmsg(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info),
            cmsg(
                libc::IPPROTO_IPV6,
                libc::IPV6_HOPLIMIT,
                &(-1_i32).to_ne_bytes(),
            ),
            cmsg(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &9_i32.to_ne_bytes()),
        ]
        .concat();
        let expected = SendAncillary {
            source: Some(source.into()),
            interface: 3,
            tos: Some(9),
            ..SendAncillary::default()
        };
        assert_eq!(parse(&control, Family::V6), Ok(expected));
        // To an IPv4 peer the same message needs a mapped address.
        assert_eq!(parse(&control, Family::V4), Err(Errno::INVAL));
        let mapped = Ipv4Addr::new(10, 0, 0, 2).to_ipv6_mapped();
        let info = [&mapped.octets()[..], &[0; 4]].concat();
        let control = cmsg(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
        let ancillary = parse(&control, Family::V4).unwrap();
        assert_eq!(ancillary.source, Some("10.0.0.2".parse().unwrap()));
    }

    #[test]
    fn messages_that_lie_about_their_length_are_refused() {
        let mut control = cmsg(libc::IPPROTO_IP, libc::IP_TTL, &7_i32.to_ne_bytes());
        for length in [0_usize, 8, 15, 17, 1_000, usize::MAX] {
            control[..8].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(parse(&control, Family::V4), Err(Errno::INVAL), "{length}");
        }
    }
}
