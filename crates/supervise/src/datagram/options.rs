//! Options of a UDP socket, read from the backing socket, which keeps and checks them all: whenever the program sets
//! one, they are read again.

use client::DatagramOptions;
use client::address::Family;
use client::datagram_messages::{
    IPV6_ORIGDSTADDR, IPV6_RECVERR, SO_RCVMARK, SO_RCVPRIORITY, UDP_GRO, UDP_SEGMENT, want,
};
use client::datagram_options::note;
use rustix::fd::BorrowedFd;
use switch::backing;

/// linux/in.h, linux/in6.h.
const IP_MULTICAST_ALL: i32 = 49;
const IPV6_MULTICAST_ALL: i32 = 29;

/// What the engine acts on.
const OF_ENGINE: [(i32, i32); 16] = [
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::IPPROTO_UDP, UDP_GRO),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP),
    (libc::IPPROTO_IP, IP_MULTICAST_ALL),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, IPV6_RECVERR),
    (libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
];

/// Options that ask for control messages with each datagram.
const WANTED: [((i32, i32), u32); 14] = [
    ((libc::IPPROTO_IP, libc::IP_PKTINFO), want::PACKET_INFO),
    ((libc::IPPROTO_IP, libc::IP_RECVTTL), want::TTL),
    ((libc::IPPROTO_IP, libc::IP_RECVTOS), want::TOS),
    (
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        want::PACKET_INFO_V6,
    ),
    (
        (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
        want::HOP_LIMIT,
    ),
    (
        (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
        want::TRAFFIC_CLASS,
    ),
    (
        (libc::IPPROTO_IP, libc::IP_RECVORIGDSTADDR),
        want::DESTINATION,
    ),
    ((libc::IPPROTO_IPV6, IPV6_ORIGDSTADDR), want::DESTINATION_V6),
    ((libc::IPPROTO_UDP, UDP_GRO), want::GRO),
    ((libc::SOL_SOCKET, libc::SO_TIMESTAMP), want::TIMESTAMP),
    ((libc::SOL_SOCKET, libc::SO_TIMESTAMPNS), want::TIMESTAMP_NS),
    (
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
        want::TIMESTAMPING,
    ),
    ((libc::SOL_SOCKET, SO_RCVMARK), want::MARK),
    ((libc::SOL_SOCKET, SO_RCVPRIORITY), want::PRIORITY),
];

/// See the file's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// For the engine.
    pub engine: DatagramOptions,
    /// What the program asks for with each datagram.
    pub wanted: u32,
    /// UDP_CORK: what is sent is put together until it is off.
    pub is_corked: bool,
    /// UDP_SEGMENT; 0: datagrams are as they are written.
    pub segment_bytes: u16,
}

impl Options {
    /// Reads those of a socket.
    pub fn of(socket: BorrowedFd<'_>, family: Family) -> Options {
        let read = |(level, name)| {
            let mut value = [0; 4];
            backing::option(socket, level, name, &mut value).ok()?;
            Some(value)
        };
        let is_on = |option| read(option).is_some_and(|value| value != [0; 4]);
        let mut engine = DatagramOptions {
            v6_only: family == Family::V6 && is_on((libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)),
            ..DatagramOptions::default()
        };
        for option in OF_ENGINE {
            if let Some(value) = read(option) {
                note(&mut engine, option.0, option.1, &value);
            }
        }
        // The kernel answers with what it has made of a size; one that was never set is the engine's to choose.
        let bytes = |name, default| {
            let value = read((libc::SOL_SOCKET, name)).map_or(0, u32::from_ne_bytes);
            if value == default { 0 } else { value }
        };
        let (receives, sends) = default_sizes();
        engine.receive_bytes = bytes(libc::SO_RCVBUF, receives);
        engine.send_bytes = bytes(libc::SO_SNDBUF, sends);
        let wanted = WANTED.into_iter().filter(|(option, _)| is_on(*option));
        let segment = read((libc::IPPROTO_UDP, UDP_SEGMENT)).map_or(0, i32::from_ne_bytes);
        Options {
            engine,
            is_corked: is_on((libc::IPPROTO_UDP, libc::UDP_CORK)),
            wanted: wanted.fold(0, |all, (_, one)| all | one),
            segment_bytes: u16::try_from(segment).unwrap_or(0),
        }
    }
}

/// SO_RCVBUF and SO_SNDBUF of a socket that was never asked.
fn default_sizes() -> (u32, u32) {
    let read = |name| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}_default"));
        text.ok().and_then(|text| text.trim().parse().ok())
    };
    (
        read("rmem").unwrap_or(212_992),
        read("wmem").unwrap_or(212_992),
    )
}
