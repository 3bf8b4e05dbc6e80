//! Control messages with received datagrams (cmsg(3), ip(7), ipv6(7), udp(7)), and entries of the error
//! queue. Bytes only; the pointers are the switches' own.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use hostif::datagram::{Failure, Received};

use super::message::{ALIGN, HEADER_BYTES, IPV6_ORIGDSTADDR, IPV6_RECVERR, UDP_GRO, want};
use crate::address::{self, Family};

/// asm-generic/socket.h.
const SCM_TIMESTAMP: i32 = libc::SO_TIMESTAMP;
const SCM_TIMESTAMPNS: i32 = libc::SO_TIMESTAMPNS;

/// A time of sending, as the error queue tells it.
#[derive(Clone, Copy, Debug)]
pub struct SentStamp {
    /// What happened (`hostif::stamp`).
    pub what: u8,
    /// When, nanoseconds since 1970.
    pub at_ns: u64,
    /// What the program calls it.
    pub key: u32,
    /// From where to where it went, if what was sent is shown with it.
    pub ends: Option<(IpAddr, IpAddr)>,
    /// The interface that it left by.
    pub interface: u32,
    /// SO_TIMESTAMPING of the socket.
    pub flags: u32,
    /// What it wants to hear with datagrams: bits of [`want`].
    pub wanted: u32,
    /// The family of the socket.
    pub family: Family,
}

/// Control messages for a receiving call, as far as its buffer goes.
pub struct Control {
    bytes: Vec<u8>,
    room: usize,
    /// MSG_CTRUNC.
    pub is_cut: bool,
}

impl Control {
    /// For a buffer of `room` bytes.
    #[must_use]
    pub fn new(room: usize) -> Control {
        Control {
            bytes: Vec::new(),
            room,
            is_cut: false,
        }
    }

    /// What was written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// As `put_cmsg`: what does not fit is cut, a header that does not fit is left out.
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

    /// TCP_INQ: how much is there to be received.
    pub fn bytes_left(&mut self, bytes: i32) {
        self.put(libc::IPPROTO_TCP, libc::TCP_INQ, &bytes.to_ne_bytes());
    }

    /// What the program wants to hear of a datagram, in the order in which Linux says it. `spoken_to`: an address of ours,
    /// and the port.
    pub fn describe(
        &mut self,
        record: &Received,
        wanted: u32,
        family: Family,
        (spoken_to, port): (Ipv4Addr, u16),
    ) {
        let wants = |what: u32| wanted & what != 0;
        self.stamp(record.timestamp_ns, wanted);
        // What comes from a device has neither (`sock_recv_mark`, `sock_recv_priority`).
        if wants(want::MARK) {
            self.put(libc::SOL_SOCKET, libc::SO_MARK, &[0; 4]);
        }
        if wants(want::PRIORITY) {
            self.put(libc::SOL_SOCKET, libc::SO_PRIORITY, &[0; 4]);
        }
        if wants(want::GRO) && record.segment_bytes > 0 {
            let bytes = i32::from(record.segment_bytes);
            self.put(libc::IPPROTO_UDP, UDP_GRO, &bytes.to_ne_bytes());
        }
        if wants(want::PACKET_INFO_V6) && family == Family::V6 {
            let address = match record.destination {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            let index = record.interface.to_ne_bytes();
            let info = [&address.octets()[..], &index].concat();
            self.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
        }
        let IpAddr::V4(destination) = record.destination else {
            self.describe_v6(record, wanted, port);
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
        if wants(want::DESTINATION) {
            let name = address::emit((destination, port).into(), Family::V4, 0);
            self.put(libc::IPPROTO_IP, libc::IP_ORIGDSTADDR, name.as_bytes());
        }
    }

    /// When it arrived, in nanoseconds since 1970.
    pub fn stamp(&mut self, timestamp_ns: u64, wanted: u32) {
        let wants = |what: u32| wanted & what != 0;
        let (seconds, nanos) = seconds(timestamp_ns);
        let time = [seconds.to_ne_bytes(), nanos.to_ne_bytes()].concat();
        if wants(want::TIMESTAMP_NS) {
            self.put(libc::SOL_SOCKET, SCM_TIMESTAMPNS, &time);
        } else if wants(want::TIMESTAMP) {
            let time = [seconds.to_ne_bytes(), (nanos / 1_000).to_ne_bytes()].concat();
            self.put(libc::SOL_SOCKET, SCM_TIMESTAMP, &time);
        }
        if wants(want::TIMESTAMPING) {
            // scm_timestamping: software, an old one, hardware.
            let mut times = time;
            times.resize(3 * 16, 0);
            self.put(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &times);
        }
    }

    fn describe_v6(&mut self, record: &Received, wanted: u32, port: u16) {
        if wanted & want::HOP_LIMIT != 0 {
            let hops = i32::from(record.ttl).to_ne_bytes();
            self.put(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &hops);
        }
        if wanted & want::TRAFFIC_CLASS != 0 {
            let class = i32::from(record.tos).to_ne_bytes();
            self.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class);
        }
        if wanted & want::DESTINATION_V6 != 0 {
            let scope_id = match record.destination {
                IpAddr::V6(ip) if ip.is_unicast_link_local() || ip.is_multicast() => {
                    record.interface
                }
                _ => 0,
            };
            let name = address::emit((record.destination, port).into(), Family::V6, scope_id);
            self.put(libc::IPPROTO_IPV6, IPV6_ORIGDSTADDR, name.as_bytes());
        }
    }

    /// An entry of the error queue: `sock_extended_err` and the offender behind it.
    pub fn explain(&mut self, failure: &Failure, family: Family, scope_id: u32) {
        let mut data = Vec::with_capacity(32);
        data.extend_from_slice(&u32::from(failure.errno).to_ne_bytes());
        data.extend_from_slice(&[failure.origin, failure.kind, failure.code, 0]);
        data.extend_from_slice(&failure.info.to_ne_bytes());
        data.extend_from_slice(&failure.data.to_ne_bytes());
        match failure.offender {
            Some(offender) => {
                let offender = SocketAddr::new(offender, 0);
                data.extend_from_slice(address::emit(offender, family, scope_id).as_bytes());
            }
            None => data.resize(data.len() + address::len(family), 0),
        }
        self.put_error(family, &data);
    }

    /// That calls with MSG_ZEROCOPY are complete, and were copied.
    pub fn complete(&mut self, first: u32, last: u32, family: Family) {
        let mut data = vec![0; 4];
        data.extend_from_slice(&[SO_EE_ORIGIN_ZEROCOPY, 0, SO_EE_CODE_ZEROCOPY_COPIED, 0]);
        data.extend_from_slice(&first.to_ne_bytes());
        data.extend_from_slice(&last.to_ne_bytes());
        data.resize(data.len() + address::len(family), 0);
        self.put_error(family, &data);
    }

    /// When something was sent (`__skb_complete_tx_timestamp`, `ip_recv_error`).
    pub fn sent(&mut self, stamp: &SentStamp) {
        /// linux/net_tstamp.h.
        const SOFTWARE: u32 = 1 << 4;
        const OPT_ID: u32 = 1 << 7;
        const OPT_CMSG: u32 = 1 << 10;
        let family = stamp.family;
        let times = stamp.wanted & (want::TIMESTAMP | want::TIMESTAMP_NS);
        let software = if stamp.flags & SOFTWARE != 0 {
            want::TIMESTAMPING
        } else {
            0
        };
        self.stamp(stamp.at_ns, times | software);
        // IPv6 tells it unasked (`ip6_datagram_support_cmsg`).
        let is_described = stamp.flags & OPT_CMSG != 0 || family == Family::V6;
        let ends = stamp.ends.filter(|_| is_described);
        if let Some((source, destination)) = ends {
            let record = Received {
                len: 0,
                room: 0,
                segment_bytes: 0,
                source: SocketAddr::new(source, 0),
                destination,
                interface: stamp.interface,
                tos: 0,
                ttl: 0,
                timestamp_ns: 0,
            };
            let own = match source {
                IpAddr::V4(own) => own,
                IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
            };
            let wanted = stamp.wanted & (want::PACKET_INFO | want::PACKET_INFO_V6);
            self.describe(&record, wanted, family, (own, 0));
        }
        let key = if stamp.flags & OPT_ID != 0 {
            stamp.key
        } else {
            0
        };
        let mut data = libc::ENOMSG.to_ne_bytes().to_vec();
        data.extend_from_slice(&[hostif::stamp::ORIGIN, 0, 0, 0]);
        data.extend_from_slice(&u32::from(stamp.what).to_ne_bytes());
        data.extend_from_slice(&key.to_ne_bytes());
        match ends {
            Some((source, _)) => {
                let source = SocketAddr::new(source, 0);
                data.extend_from_slice(address::emit(source, family, stamp.interface).as_bytes());
            }
            None => data.resize(data.len() + address::len(family), 0),
        }
        self.put_error(family, &data);
    }

    fn put_error(&mut self, family: Family, data: &[u8]) {
        match family {
            Family::V4 => self.put(libc::IPPROTO_IP, libc::IP_RECVERR, data),
            Family::V6 => self.put(libc::IPPROTO_IPV6, IPV6_RECVERR, data),
        }
    }
}

/// linux/errqueue.h.
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;

fn seconds(ns: u64) -> (i64, i64) {
    let part = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    (part(ns / 1_000_000_000), part(ns % 1_000_000_000))
}

/// One message as bytes.
#[cfg(test)]
pub fn cmsg(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
    let mut control = Control::new(usize::MAX);
    control.put(level, kind, data);
    control.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_cut_and_said() {
        let mut control = Control::new(20);
        control.put(libc::IPPROTO_IP, libc::IP_TTL, &[1; 8]);
        assert!(control.is_cut && control.bytes().len() == 20);
        control.put(libc::IPPROTO_IP, libc::IP_TTL, &[1; 8]);
        assert_eq!(control.bytes().len(), 20);
    }

    #[test]
    fn a_socket_of_ipv6_hears_of_ipv4_as_mapped_and_in_words_of_ipv4() {
        let record = Received {
            len: 1,
            room: 832,
            segment_bytes: 0,
            source: "10.0.0.9:9".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            interface: 4,
            tos: 0,
            ttl: 63,
            timestamp_ns: 0,
        };
        let mut control = Control::new(usize::MAX);
        let wanted = want::PACKET_INFO_V6 | want::HOP_LIMIT | want::TTL;
        control.describe(&record, wanted, Family::V6, (Ipv4Addr::UNSPECIFIED, 9));
        let mapped = Ipv4Addr::new(10, 0, 0, 2).to_ipv6_mapped();
        let info = [&mapped.octets()[..], &4_u32.to_ne_bytes()].concat();
        let expected = [
            cmsg(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info),
            cmsg(libc::IPPROTO_IP, libc::IP_TTL, &63_i32.to_ne_bytes()),
        ]
        .concat();
        assert_eq!(control.bytes(), expected);
    }
}
