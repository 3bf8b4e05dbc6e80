//! Options of UDP sockets. The backing socket keeps and checks them all; what the engine or the switch
//! acts on is read out of what the program has set. A socket of AF_INET6 has those of IPv4 too, for its
//! IPv4 peers.

use client::DatagramOptions;

use crate::socket::{EngineIndex, NoFragments, Socket};
use client::address::Family;
use client::datagram_messages::{
    IPV6_DONTFRAG, IPV6_ORIGDSTADDR, SO_RCVMARK, SO_RCVPRIORITY, UDP_GRO, UDP_SEGMENT, want,
};
use client::datagram_options::{note, number};
use client::engines;
use switch::attached;
use switch::device::Device;

/// linux/udp.h.
pub const UDP_CORK: i32 = 1;

/// What every engine has to know.
pub fn engine_options(socket: &Socket) -> DatagramOptions {
    let mut options = DatagramOptions {
        v6_only: socket.is_v6_only(),
        ..DatagramOptions::default()
    };
    socket
        .log
        .each(&mut |level, name, value| note(&mut options, level, name, value));
    options
}

/// What one of them has to know, where the socket is on those before it too.
pub fn options_at(socket: &Socket, place: EngineIndex, before: &[EngineIndex]) -> DatagramOptions {
    let mut options = engine_options(socket);
    let scope_of = |family| match socket.multicast_device(family) {
        Device::Engine(named) if named == place => attached::networks_of(place).scope_id,
        _ => 0,
    };
    options.v4.multicast_interface = scope_of(Family::V4);
    options.v6.multicast_interface = scope_of(Family::V6);
    if !before.is_empty() {
        let all = attached::datagram_networks();
        let hears = |one: &EngineIndex| engines::are_on_one_link(*one, place, &all);
        options.addressed_only = before.iter().any(hears);
    }
    options
}

/// Tells all engines that the socket is on.
pub fn tell(socket: &Socket) {
    if let Some(stream) = socket.stream() {
        stream.set_datagram_options(|place, before| options_at(socket, place, before));
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
        (libc::IPPROTO_IP, libc::IP_RECVORIGDSTADDR) => want::DESTINATION,
        (libc::IPPROTO_IPV6, IPV6_ORIGDSTADDR) => want::DESTINATION_V6,
        (libc::IPPROTO_UDP, UDP_GRO) => want::GRO,
        (libc::SOL_SOCKET, SO_RCVMARK) => want::MARK,
        (libc::SOL_SOCKET, SO_RCVPRIORITY) => want::PRIORITY,
        (libc::IPPROTO_UDP, UDP_CORK) => {
            socket.set_corked(number != 0);
            return;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use client::datagram_messages::IPV6_RECVERR;
    use hostif::FamilyOptions;

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
