//! Options of UDP sockets. The backing socket keeps and checks them all; what the engine or the switch
//! acts on is read out of what the program has set.

use client::DatagramOptions;

use super::message::{UDP_GRO, want};
use crate::options::Log;
use crate::socket::Socket;

/// linux/udp.h.
const UDP_SEGMENT: i32 = 103;

/// What the engine has to know.
pub fn engine_options(log: &Log) -> DatagramOptions {
    let mut options = DatagramOptions::default();
    log.each(&mut |level, name, value| note(&mut options, level, name, value));
    options
}

fn note(options: &mut DatagramOptions, level: i32, name: i32, value: &[u8]) {
    let Some(number) = number(value) else {
        return;
    };
    let switch = number != 0;
    let small = u8::try_from(number).ok();
    let bytes = u32::try_from(number).unwrap_or(0);
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_BROADCAST) => options.broadcast = switch,
        (libc::SOL_SOCKET, libc::SO_REUSEPORT) => options.reuse_port = switch,
        // Linux doubles what it is asked for.
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => options.receive_bytes = bytes.saturating_mul(2),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => options.send_bytes = bytes.saturating_mul(2),
        (libc::IPPROTO_IP, libc::IP_RECVERR) => options.error_queue = switch,
        (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP) => options.multicast_loop = switch,
        // -1 asks for the default.
        (libc::IPPROTO_IP, libc::IP_TTL) => options.ttl = small.unwrap_or(64),
        (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL) => options.multicast_ttl = small.unwrap_or(1),
        (libc::IPPROTO_IP, libc::IP_TOS) => options.tos = small.unwrap_or(0),
        (libc::IPPROTO_UDP, UDP_GRO) => options.merged = switch,
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) => options.mtu_discovery = small.unwrap_or(1),
        _ => {}
    }
}

/// The program has set an option: what the switch itself acts on.
pub fn follow(socket: &Socket, level: i32, name: i32, value: &[u8]) {
    let Some(number) = number(value) else {
        return;
    };
    let wanted = match (level, name) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => want::PACKET_INFO,
        (libc::IPPROTO_IP, libc::IP_RECVTTL) => want::TTL,
        (libc::IPPROTO_IP, libc::IP_RECVTOS) => want::TOS,
        (libc::SOL_SOCKET, libc::SO_TIMESTAMP) => want::TIMESTAMP,
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => want::TIMESTAMP_NS,
        (libc::IPPROTO_UDP, UDP_GRO) => want::GRO,
        (libc::IPPROTO_UDP, UDP_SEGMENT) => {
            socket.set_segment_bytes(u16::try_from(number).unwrap_or(0));
            return;
        }
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) => {
            let forbids = [libc::IP_PMTUDISC_DO, libc::IP_PMTUDISC_PROBE].contains(&number);
            socket.set_forbids_fragments(forbids);
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
        let log = Log::default();
        log.record(libc::SOL_SOCKET, libc::SO_BROADCAST, &1_i32.to_ne_bytes());
        log.record(libc::IPPROTO_IP, libc::IP_TTL, &9_i32.to_ne_bytes());
        log.record(libc::IPPROTO_IP, libc::IP_TOS, &[0x20]);
        log.record(
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            &100_000_i32.to_ne_bytes(),
        );
        let expected = DatagramOptions {
            broadcast: true,
            ttl: 9,
            tos: 0x20,
            receive_bytes: 200_000,
            ..DatagramOptions::default()
        };
        assert_eq!(engine_options(&log), expected);
    }

    #[test]
    fn the_switch_remembers_what_a_program_wants_to_hear() {
        let socket = Socket::datagram();
        follow(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, &[1]);
        follow(&socket, libc::IPPROTO_IP, libc::IP_RECVTTL, &[1]);
        follow(&socket, libc::IPPROTO_IP, libc::IP_RECVTTL, &[0]);
        assert_eq!(socket.wanted(), want::PACKET_INFO);
    }
}
