//! Packets whose flow the device could not see, because they came in fragments or behind extension
//! headers: it hands them to the first of several cores, and the one that serves the flow gets them from
//! there ([`crate::Host::try_pass_on`]).

use crate::egress::{Host, RxChecksum};
use crate::icmp::Quote;
use crate::icmpv6;
use crate::input::Arrival;
use crate::stack::Stack;
use core::net::{IpAddr, SocketAddr};
use wire::ethernet::{self, EtherType};
use wire::ipv4::Protocol;
use wire::{icmpv4, icmpv6 as messages};

/// A whole packet that may be another core's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detour<'a> {
    /// This host's end of the flow.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// An Ethernet header for it.
    pub header: [u8; ethernet::Header::LEN],
    /// From the IP header on, without trace of the fragments that it came in.
    pub packet: &'a [u8],
    /// Its transport checksum.
    pub checksum: RxChecksum,
}

impl Stack<'_> {
    /// Gives a packet to the core that serves its flow; false: that is this one.
    pub(crate) fn pass_on(&self, arrival: &Arrival<'_>, host: &mut dyn Host) -> bool {
        let Some((local, remote)) = flow(arrival) else {
            return false;
        };
        let mut header = [0; ethernet::Header::LEN];
        ethernet::Header {
            destination: self.hardware_of(arrival.interface),
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
}

/// The ends of the TCP connection that a packet concerns: its own, or the one that an error quotes. All
/// else is served where it arrives.
fn flow(arrival: &Arrival<'_>) -> Option<(SocketAddr, SocketAddr)> {
    let quote = match (arrival.protocol, arrival.source, arrival.destination) {
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
            | icmpv4::Message::TimeExceeded { quoted, .. } => Quote::parse(quoted),
            _ => None,
        },
        (Protocol::ICMPV6, IpAddr::V6(source), IpAddr::V6(destination)) => {
            match messages::Message::parse(source, destination, arrival.payload).ok()? {
                messages::Message::DestinationUnreachable { quoted, .. }
                | messages::Message::PacketTooBig { quoted, .. }
                | messages::Message::TimeExceeded { quoted, .. }
                | messages::Message::ParameterProblem { quoted, .. } => {
                    icmpv6::quote(quoted, arrival.interface)
                }
                _ => None,
            }
        }
        _ => None,
    };
    let tuple = quote?.tuple;
    Some((
        SocketAddr::new(tuple.local(), tuple.local_port()),
        SocketAddr::new(tuple.remote(), tuple.remote_port()),
    ))
}
