//! Options of UDP sockets. The backing socket keeps and checks them all; what the engine or the switch
//! acts on is read out of what the program has set. A socket of AF_INET6 has those of IPv4 too, for its
//! IPv4 peers.

use client::DatagramOptions;
use hostif::FamilyOptions;

use super::message::{UDP_GRO, want};
use crate::accelerated;
use crate::socket::{NoFragments, Socket};
use client::address::Family;
use client::route::Stack;

/// linux/udp.h.
const UDP_SEGMENT: i32 = 103;
/// linux/in.h, linux/in6.h; not in the C library's bindings for every target.
const IP_MULTICAST_ALL: i32 = 49;
const IPV6_MULTICAST_ALL: i32 = 29;
const IPV6_DONTFRAG: i32 = 62;
pub const IPV6_RECVERR: i32 = 25;

/// What the engine has to know.
pub fn engine_options(socket: &Socket) -> DatagramOptions {
    let mut options = DatagramOptions {
        v6_only: socket.is_v6_only(),
        ..DatagramOptions::default()
    };
    socket
        .log
        .each(&mut |level, name, value| note(&mut options, level, name, value));
    let scope_of = |family| match socket.multicast_stack(family) {
        Some(Stack::Engine) => accelerated::networks().scope_id,
        _ => 0,
    };
    options.v4.multicast_interface = scope_of(Family::V4);
    options.v6.multicast_interface = scope_of(Family::V6);
    options
}

fn note(options: &mut DatagramOptions, level: i32, name: i32, value: &[u8]) {
    let Some(number) = number(value) else {
        return;
    };
    let switch = number != 0;
    let bytes = u32::try_from(number).unwrap_or(0);
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_BROADCAST) => options.broadcast = switch,
        (libc::SOL_SOCKET, libc::SO_REUSEPORT) => options.reuse_port = switch,
        // Linux doubles what it is asked for.
        (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE) => {
            options.receive_bytes = bytes.saturating_mul(2);
        }
        (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE) => {
            options.send_bytes = bytes.saturating_mul(2);
        }
        (libc::IPPROTO_UDP, UDP_GRO) => options.merged = switch,
        (libc::IPPROTO_IP, _) => note_v4(&mut options.v4, name, number),
        (libc::IPPROTO_IPV6, _) => note_v6(&mut options.v6, name, number),
        _ => {}
    }
}

/// -1 asks for the default.
fn note_v4(options: &mut FamilyOptions, name: i32, number: i32) {
    let (switch, small) = (number != 0, u8::try_from(number).ok());
    let default = FamilyOptions::default();
    match name {
        libc::IP_RECVERR => options.error_queue = switch,
        libc::IP_MULTICAST_LOOP => options.multicast_loop = switch,
        IP_MULTICAST_ALL => options.multicast_all = switch,
        libc::IP_TTL => options.ttl = small.unwrap_or(default.ttl),
        libc::IP_MULTICAST_TTL => {
            options.multicast_ttl = small.unwrap_or(default.multicast_ttl);
        }
        libc::IP_TOS => options.tos = small.unwrap_or(0),
        libc::IP_MTU_DISCOVER => {
            options.mtu_discovery = small.unwrap_or(default.mtu_discovery);
        }
        _ => {}
    }
}

fn note_v6(options: &mut FamilyOptions, name: i32, number: i32) {
    let (switch, small) = (number != 0, u8::try_from(number).ok());
    let default = FamilyOptions::default();
    match name {
        IPV6_RECVERR => options.error_queue = switch,
        libc::IPV6_MULTICAST_LOOP => options.multicast_loop = switch,
        IPV6_MULTICAST_ALL => options.multicast_all = switch,
        libc::IPV6_UNICAST_HOPS => options.ttl = small.unwrap_or(default.ttl),
        libc::IPV6_MULTICAST_HOPS => {
            options.multicast_ttl = small.unwrap_or(default.multicast_ttl);
        }
        libc::IPV6_TCLASS => options.tos = small.unwrap_or(0),
        libc::IPV6_MTU_DISCOVER => {
            options.mtu_discovery = small.unwrap_or(default.mtu_discovery);
        }
        _ => {}
    }
}

/// The program has set an option: what the switch itself acts on.
pub fn follow(socket: &Socket, level: i32, name: i32, value: &[u8]) {
    let Some(number) = number(value) else {
        return;
    };
    let forbids = |number| [libc::IP_PMTUDISC_DO, libc::IP_PMTUDISC_PROBE].contains(&number);
    let wanted = match (level, name) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => want::PACKET_INFO,
        (libc::IPPROTO_IP, libc::IP_RECVTTL) => want::TTL,
        (libc::IPPROTO_IP, libc::IP_RECVTOS) => want::TOS,
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) => want::PACKET_INFO_V6,
        (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT) => want::HOP_LIMIT,
        (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS) => want::TRAFFIC_CLASS,
        (libc::IPPROTO_UDP, UDP_GRO) => want::GRO,
        (libc::IPPROTO_UDP, UDP_SEGMENT) => {
            socket.set_segment_bytes(u16::try_from(number).unwrap_or(0));
            return;
        }
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) => {
            socket.set_forbids_fragments(NoFragments::DiscoveryV4, forbids(number));
            return;
        }
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER) => {
            socket.set_forbids_fragments(NoFragments::DiscoveryV6, forbids(number));
            return;
        }
        (libc::IPPROTO_IPV6, IPV6_DONTFRAG) => {
            socket.set_forbids_fragments(NoFragments::OptionV6, number != 0);
            return;
        }
        _ => return,
    };
    socket.set_wanted(wanted, number != 0);
}

/// An option's value; Linux takes a single byte as well for options of IP.
fn number(value: &[u8]) -> Option<i32> {
    match value {
        [byte] => Some(i32::from(*byte)),
        _ => value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_hears_of_what_it_acts_on() {
        let socket = Socket::datagram(Family::V6);
        let set = |level, name, number: i32| {
            socket.log.record(level, name, &number.to_ne_bytes());
        };
        set(libc::SOL_SOCKET, libc::SO_BROADCAST, 1);
        set(libc::SOL_SOCKET, libc::SO_RCVBUF, 100_000);
        set(libc::IPPROTO_IP, libc::IP_TTL, 9);
        set(libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, 7);
        set(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, -1);
        set(libc::IPPROTO_IPV6, IPV6_RECVERR, 1);
        socket.log.record(libc::IPPROTO_IP, libc::IP_TOS, &[0x20]);
        let expected = DatagramOptions {
            broadcast: true,
            receive_bytes: 200_000,
            v4: FamilyOptions {
                ttl: 9,
                tos: 0x20,
                ..FamilyOptions::default()
            },
            v6: FamilyOptions {
                ttl: 7,
                error_queue: true,
                ..FamilyOptions::default()
            },
            ..DatagramOptions::default()
        };
        assert_eq!(engine_options(&socket), expected);
    }

    #[test]
    fn the_switch_remembers_what_a_program_wants_to_hear() {
        let socket = Socket::datagram(Family::V4);
        follow(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, &[1]);
        follow(&socket, libc::IPPROTO_IP, libc::IP_RECVTTL, &[1]);
        follow(&socket, libc::IPPROTO_IP, libc::IP_RECVTTL, &[0]);
        assert_eq!(socket.wanted(), want::PACKET_INFO);
    }
}
