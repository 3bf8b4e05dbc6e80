//! Packets whose flow the device could not see, because they came in fragments or behind extension
//! headers: it hands them to the first of several cores, and the one that serves the flow gets them from
//! there ([`crate::Host::try_pass_on`]).

use crate::host::{Detour, Host};
use crate::ip::arrival::Arrival;
use crate::tcp::quote::Quote;
use core::net::{IpAddr, SocketAddr};
use wire::ethernet::{self, EtherType};
use wire::ipv4::Protocol;
use wire::{icmpv4, icmpv6};

/// Gives a packet to the core that serves its flow; false: that is this one. `hardware` is the interface's own.
pub(crate) fn pass_on(
    arrival: &Arrival<'_>,
    hardware: ethernet::Address,
    host: &mut dyn Host,
) -> bool {
    let Some((local, remote)) = flow(arrival) else {
        return false;
    };
    let mut header = [0; ethernet::Header::LEN];
    ethernet::Header {
        destination: hardware,
        source: arrival.station,
        ethertype: if local.is_ipv4() {
            EtherType::IPV4
        } else {
            EtherType::IPV6
        },
    }
    .emit(&mut header);
    host.try_pass_on(&Detour {
        local,
        remote,
        header,
        packet: arrival.packet,
        checksum: arrival.checksum,
    })
}

/// The ends of the TCP connection that a packet concerns: its own, or the one that an error quotes. All
/// else is served where it arrives.
fn flow(arrival: &Arrival<'_>) -> Option<(SocketAddr, SocketAddr)> {
    let quoted = match (arrival.protocol, arrival.source, arrival.destination) {
        (Protocol::TCP, source, destination) => {
            let &[a, b, c, d] = arrival.payload.first_chunk()?;
            let (theirs, ours) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            let (local, remote) = (
                SocketAddr::new(destination, ours),
                SocketAddr::new(source, theirs),
            );
            return Some((local, remote));
        }
        (Protocol::ICMP, IpAddr::V4(_), _) => match icmpv4::Message::parse(arrival.payload).ok()? {
            icmpv4::Message::DestinationUnreachable { quoted, .. }
            | icmpv4::Message::TimeExceeded { quoted, .. } => quoted,
            _ => return None,
        },
        (Protocol::ICMPV6, IpAddr::V6(source), IpAddr::V6(destination)) => {
            match icmpv6::Message::parse(source, destination, arrival.payload).ok()? {
                icmpv6::Message::DestinationUnreachable { quoted, .. }
                | icmpv6::Message::PacketTooBig { quoted, .. }
                | icmpv6::Message::TimeExceeded { quoted, .. }
                | icmpv6::Message::ParameterProblem { quoted, .. } => quoted,
                _ => return None,
            }
        }
        _ => return None,
    };
    let tuple = Quote::parse(quoted, arrival.source, arrival.interface)?.tuple;
    Some((
        SocketAddr::new(tuple.local(), tuple.local_port()),
        SocketAddr::new(tuple.remote(), tuple.remote_port()),
    ))
}
