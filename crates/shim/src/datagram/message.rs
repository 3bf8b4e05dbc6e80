//! Control messages of datagrams (cmsg(3), ip(7), udp(7)): those that a program sends are read, those
//! that it asked for are written. Bytes only; the pointers are in `sys.rs`.

use client::{Failure, Received};
use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use rustix::io::Errno;

use super::send::Wishes;
use crate::address;

/// `struct cmsghdr`: a length of eight bytes, level, type.
const HEADER_BYTES: usize = 16;
const ALIGN: usize = 8;
/// Not in the C library's bindings: linux/udp.h, asm-generic/socket.h.
const UDP_SEGMENT: i32 = 103;
pub const UDP_GRO: i32 = 104;
const SCM_TIMESTAMP: i32 = libc::SO_TIMESTAMP;
const SCM_TIMESTAMPNS: i32 = libc::SO_TIMESTAMPNS;

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
}

/// Reads what a sending call wants.
///
/// # Errors
/// EINVAL for a malformed or unknown message, as `ip_cmsg_send`.
pub fn parse(mut control: &[u8]) -> Result<Wishes, Errno> {
    let mut wishes = Wishes::default();
    while control.len() >= HEADER_BYTES {
        let number = |at: usize| control[at..].first_chunk().map(|b| i32::from_ne_bytes(*b));
        let length = control.first_chunk().map(|b| usize::from_ne_bytes(*b));
        let length = length.ok_or(Errno::INVAL)?;
        let (level, kind) = (number(8).unwrap_or(0), number(12).unwrap_or(0));
        let data = control.get(HEADER_BYTES..length).ok_or(Errno::INVAL)?;
        let first = data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
        match (level, kind) {
            (libc::IPPROTO_UDP, UDP_SEGMENT) => {
                let bytes = data.first_chunk().ok_or(Errno::INVAL)?;
                wishes.segment_bytes = Some(u16::from_ne_bytes(*bytes));
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let bytes = data.get(4..8).and_then(|bytes| bytes.first_chunk::<4>());
                let source = Ipv4Addr::from(*bytes.ok_or(Errno::INVAL)?);
                wishes.source = (!source.is_unspecified()).then_some(IpAddr::V4(source));
            }
            (libc::IPPROTO_IP, libc::IP_TTL) => {
                let ttl = first.and_then(|ttl| u8::try_from(ttl).ok());
                wishes.ttl = Some(ttl.filter(|ttl| *ttl > 0).ok_or(Errno::INVAL)?);
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                let tos = match data.len() {
                    1 => Some(data[0]),
                    _ => first.and_then(|tos| u8::try_from(tos).ok()),
                };
                wishes.tos = Some(tos.ok_or(Errno::INVAL)?);
            }
            (libc::SOL_SOCKET, _) => {}
            _ => return Err(Errno::INVAL),
        }
        control = control
            .get(length.next_multiple_of(ALIGN)..)
            .unwrap_or_default();
    }
    Ok(wishes)
}

/// Control messages for a receiving call, as far as there is room.
pub struct Control {
    bytes: Vec<u8>,
    room: usize,
    /// MSG_CTRUNC.
    pub is_cut: bool,
}

impl Control {
    /// With room for so many bytes.
    pub fn new(room: usize) -> Control {
        Control {
            bytes: Vec::new(),
            room,
            is_cut: false,
        }
    }

    /// What was written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// As `put_cmsg`: what does not fit is cut, a header without room is left out.
    fn put(&mut self, level: i32, kind: i32, data: &[u8]) {
        let left = self.room - self.bytes.len();
        if left < HEADER_BYTES {
            self.is_cut = true;
            return;
        }
        let data = if HEADER_BYTES + data.len() > left {
            self.is_cut = true;
            &data[..left - HEADER_BYTES]
        } else {
            data
        };
        let length = HEADER_BYTES + data.len();
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&level.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(data);
        let padded = self.bytes.len().next_multiple_of(ALIGN).min(self.room);
        self.bytes.resize(padded, 0);
    }

    /// What the program wants to hear of a datagram, in the order in which Linux says it.
    pub fn describe(&mut self, record: &Received, wanted: u32, spoken_to: Ipv4Addr) {
        let wants = |what: u32| wanted & what != 0;
        let (seconds, nanos) = seconds(record.timestamp_ns);
        if wants(want::TIMESTAMP_NS) {
            let time = [seconds.to_ne_bytes(), nanos.to_ne_bytes()].concat();
            self.put(libc::SOL_SOCKET, SCM_TIMESTAMPNS, &time);
        } else if wants(want::TIMESTAMP) {
            let time = [seconds.to_ne_bytes(), (nanos / 1_000).to_ne_bytes()].concat();
            self.put(libc::SOL_SOCKET, SCM_TIMESTAMP, &time);
        }
        if wants(want::GRO) && record.segment_bytes > 0 {
            let bytes = i32::from(record.segment_bytes);
            self.put(libc::IPPROTO_UDP, UDP_GRO, &bytes.to_ne_bytes());
        }
        let IpAddr::V4(destination) = record.destination else {
            return;
        };
        if wants(want::PACKET_INFO) {
            let index = record.interface.to_ne_bytes();
            let info = [index, spoken_to.octets(), destination.octets()].concat();
            self.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        }
        if wants(want::TTL) {
            let ttl = i32::from(record.ttl).to_ne_bytes();
            self.put(libc::IPPROTO_IP, libc::IP_TTL, &ttl);
        }
        if wants(want::TOS) {
            self.put(libc::IPPROTO_IP, libc::IP_TOS, &[record.tos]);
        }
    }

    /// An entry of the error queue: `sock_extended_err` and the offender behind it.
    pub fn explain(&mut self, failure: &Failure) {
        let mut data = Vec::with_capacity(32);
        data.extend_from_slice(&u32::from(failure.errno).to_ne_bytes());
        data.extend_from_slice(&[failure.origin, failure.kind, failure.code, 0]);
        data.extend_from_slice(&failure.info.to_ne_bytes());
        data.extend_from_slice(&[0; 4]);
        if let Some(IpAddr::V4(offender)) = failure.offender {
            data.extend_from_slice(&address::emit_v4(SocketAddrV4::new(offender, 0)));
        } else {
            data.extend_from_slice(&[0; address::LEN_V4]);
        }
        self.put(libc::IPPROTO_IP, libc::IP_RECVERR, &data);
    }
}

/// An address of a datagram as a C program sees it.
pub fn name(address: SocketAddr) -> Option<[u8; address::LEN_V4]> {
    match address {
        SocketAddr::V4(address) => Some(address::emit_v4(address)),
        SocketAddr::V6(_) => None,
    }
}

fn seconds(ns: u64) -> (i64, i64) {
    let part = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    (part(ns / 1_000_000_000), part(ns % 1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cmsg(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut control = Control::new(usize::MAX);
        control.put(level, kind, data);
        control.bytes
    }

    #[test]
    fn wishes_are_read_from_any_number_of_messages() {
        let info = [[0; 4], [10, 0, 0, 2], [0; 4]].concat();
        let control = [
            cmsg(libc::IPPROTO_IP, libc::IP_PKTINFO, &info),
            cmsg(libc::IPPROTO_IP, libc::IP_TTL, &7_i32.to_ne_bytes()),
            cmsg(libc::IPPROTO_IP, libc::IP_TOS, &[0x10]),
            cmsg(libc::IPPROTO_UDP, UDP_SEGMENT, &500_u16.to_ne_bytes()),
        ]
        .concat();
        let expected = Wishes {
            source: Some("10.0.0.2".parse().unwrap()),
            tos: Some(0x10),
            ttl: Some(7),
            segment_bytes: Some(500),
        };
        assert_eq!(parse(&control), Ok(expected));
        assert_eq!(parse(&[]), Ok(Wishes::default()));
    }

    #[test]
    fn messages_that_lie_about_their_length_are_refused() {
        let mut control = cmsg(libc::IPPROTO_IP, libc::IP_TTL, &7_i32.to_ne_bytes());
        for length in [0_usize, 8, 15, 17, 1_000, usize::MAX] {
            control[..8].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(parse(&control), Err(Errno::INVAL), "{length}");
        }
    }

    #[test]
    fn what_does_not_fit_is_cut_and_said() {
        let mut control = Control::new(20);
        control.put(libc::IPPROTO_IP, libc::IP_TTL, &[1; 8]);
        assert!(control.is_cut && control.bytes().len() == 20);
        control.put(libc::IPPROTO_IP, libc::IP_TTL, &[1; 8]);
        assert_eq!(control.bytes().len(), 20);
    }
}
