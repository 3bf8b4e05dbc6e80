//! Which core a frame belongs to, for devices without a filter that would say so: the shared-memory cable.
//! The kernel's packet sockets run `nic::af_packet::steering`, which says the same of TCP.

use core::net::{IpAddr, SocketAddr};
use hostif::Steering;
use wire::ethernet::{EtherType, Header as Ethernet};
use wire::ipv4::Protocol;

/// The core of a frame from its start, at least the TCP ports of which must be there; everything but whole TCP
/// packets belongs to the first core.
#[must_use]
pub fn core_of_frame(steering: Steering, frame: &[u8]) -> u16 {
    tcp_ends(frame).map_or(0, |(source, destination)| {
        steering.core_of(source, destination)
    })
}

type Ends = (SocketAddr, SocketAddr);

fn tcp_ends(frame: &[u8]) -> Option<Ends> {
    let (ethernet, packet) = Ethernet::parse(frame).ok()?;
    match ethernet.ethertype {
        EtherType::IPV4 => ends_of_ipv4(packet),
        EtherType::IPV6 => ends_of_ipv6(packet),
        _ => None,
    }
}

/// The frame may end before its payload, so lengths are not believed here.
fn ends_of_ipv4(packet: &[u8]) -> Option<Ends> {
    let header = packet.first_chunk::<20>()?;
    let is_whole = u16::from_be_bytes([header[6], header[7]]) & 0x3fff == 0;
    if !is_whole || header[9] != Protocol::TCP.0 {
        return None;
    }
    let len = usize::from(header[0] & 0x0f) * 4;
    let ports = packet.get(len..)?.first_chunk::<4>()?;
    let address = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
    Some(ends(address(12).into(), address(16).into(), ports))
}

fn ends_of_ipv6(packet: &[u8]) -> Option<Ends> {
    let (header, payload) = packet.split_first_chunk::<40>()?;
    if header[6] != Protocol::TCP.0 {
        return None;
    }
    let (_, addresses) = header.split_at(8);
    let (source, destination) = addresses.split_first_chunk::<16>()?;
    let destination = destination.first_chunk::<16>()?;
    Some(ends(
        (*source).into(),
        (*destination).into(),
        payload.first_chunk::<4>()?,
    ))
}

fn ends(source: IpAddr, destination: IpAddr, ports: &[u8; 4]) -> Ends {
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    (
        SocketAddr::new(source, port(0)),
        SocketAddr::new(destination, port(2)),
    )
}
