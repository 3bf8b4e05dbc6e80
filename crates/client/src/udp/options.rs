//! What the options of a UDP socket mean to the engine (ip(7), ipv6(7), udp(7)). The kernel has accepted the values on
//! the backing socket before.

use hostif::{DatagramOptions, FamilyOptions};

use super::message::{IPV6_RECVERR, UDP_GRO};

/// linux/in.h, linux/in6.h; not in the C library's bindings for every target.
const IP_MULTICAST_ALL: i32 = 49;
const IPV6_MULTICAST_ALL: i32 = 29;

/// Notes an option of a UDP socket that the engine acts on.
pub fn note(options: &mut DatagramOptions, level: i32, name: i32, value: &[u8]) {
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

/// An option's value; Linux takes a single byte as well for options of IP.
#[must_use]
pub fn number(value: &[u8]) -> Option<i32> {
    match value {
        [byte] => Some(i32::from(*byte)),
        _ => value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)),
    }
}
