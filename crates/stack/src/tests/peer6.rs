//! One stack against IPv6 frames made by hand.

use super::node::Shared;
use super::pair::*;
use super::peer::{ME, PEER};
use crate::*;
use ::tcp::Instant;
use std::net::{IpAddr, Ipv6Addr};
use wire::checksum::Sum;
use wire::ethernet::{EtherType, Header as EthernetHeader};
use wire::icmpv6::Message;
use wire::ipv6::{Header, Protocol};
use wire::tcp as segment;

pub const ME6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub const PEER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);

pub fn ip6(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n)
}

/// Gives a host an IPv6 address.
pub fn own(node: &mut Node<'_>, now: Instant, address: Ipv6Addr) {
    let address = InterfaceAddress {
        address: address.into(),
        prefix_len: 64,
    };
    node.stack.add_address(now, NIC, address).unwrap();
}

/// A host with `ME6` that knows the peer and has said what it says at its start.
pub fn with_node6<R>(test: impl FnOnce(&mut Node<'_>) -> R) -> R {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let start = Instant::from_us(900_000_000);
    let mut node = Node::new(memory.tables(), ME, start);
    own(&mut node, start, ME6);
    node.stack
        .set_neighbour(start, NIC, PEER6.into(), Some(hardware(PEER)))
        .unwrap();
    for seconds in 0..10 {
        node.timers(start + ms(seconds * 1_000));
        node.transmit(start + ms(seconds * 1_000));
    }
    test(&mut node)
}

/// A host that listens to routers, with nothing configured.
pub fn with_host_of_routers(test: impl FnOnce(&mut Node<'_>)) {
    let mut memory = HeapTables::new(16, 4, 4).unwrap();
    let mut stack = Stack::new(memory.tables(), config(ME)).unwrap();
    let nic = InterfaceConfig {
        hardware: hardware(ME),
        mtu: 1_500,
        resolution: Resolution::Arp,
        scope_id: 5,
        router_discovery: true,
    };
    stack.add_interface(nic).unwrap();
    test(&mut Node::with(stack, Shared::default()));
}

pub fn header6(source: Ipv6Addr, destination: Ipv6Addr, next_header: Protocol) -> Header {
    Header {
        source,
        destination,
        next_header,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
    }
}

/// A frame from the peer's hardware address to ours, or to the group's.
pub fn frame6(ip: &Header, payload: &[u8]) -> Flying {
    let destination = if ip.destination.is_multicast() {
        crate::address::group_hardware(ip.destination)
    } else {
        hardware(ME)
    };
    let mut bytes = vec![0; 54];
    EthernetHeader {
        destination,
        source: hardware(PEER),
        ethertype: EtherType::IPV6,
    }
    .emit(&mut bytes);
    ip.emit(payload.len(), &mut bytes[14..]);
    bytes.extend_from_slice(payload);
    Flying {
        bytes,
        partial: false,
        segment_bytes: None,
        interface: NIC.0,
    }
}

/// Puts the checksum of an upper layer at offset `field`.
pub fn checksummed(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: Protocol,
    field: usize,
    packet: &mut [u8],
) {
    packet[field..field + 2].fill(0);
    let sum = Sum::new()
        .pseudo_header_v6(source, destination, protocol, packet.len())
        .add(packet);
    packet[field..field + 2].copy_from_slice(&sum.finish().to_be_bytes());
}

/// A TCP segment between any two addresses.
pub fn segment6(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    header: &segment::Header,
    payload: &[u8],
) -> Flying {
    let mut bytes = vec![0; header.header_len()];
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    checksummed(source, destination, Protocol::TCP, 16, &mut bytes);
    frame6(&header6(source, destination, Protocol::TCP), &bytes)
}

pub fn icmp_frame(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    hop_limit: u8,
    message: &Message<'_>,
) -> Flying {
    let mut bytes = vec![0; message.emit_len()];
    message.emit(source, destination, &mut bytes);
    let header = Header {
        hop_limit,
        ..header6(source, destination, Protocol::ICMPV6)
    };
    frame6(&header, &bytes)
}

/// The IPv6 packets among frames that were sent.
pub fn packets6(frames: &[Flying]) -> Vec<(Header, Vec<u8>)> {
    frames
        .iter()
        .filter_map(|frame| {
            let (ethernet, packet) = EthernetHeader::parse(&frame.bytes).unwrap();
            (ethernet.ethertype == EtherType::IPV6).then(|| {
                let (header, payload) = Header::parse(packet).unwrap();
                (header, payload.to_vec())
            })
        })
        .collect()
}

/// The TCP segments among them, with good checksums.
pub fn segments6(frames: &[Flying]) -> Vec<(Header, segment::Header, Vec<u8>)> {
    packets6(frames)
        .into_iter()
        .filter(|(ip, _)| ip.next_header == Protocol::TCP)
        .map(|(ip, bytes)| {
            let (source, destination) = (IpAddr::V6(ip.source), IpAddr::V6(ip.destination));
            assert!(wire::checksum::verify(
                source,
                destination,
                Protocol::TCP,
                &bytes
            ));
            let (header, payload) = segment::Header::parse(&bytes).unwrap();
            (ip, header, payload.to_vec())
        })
        .collect()
}

/// The ICMPv6 messages among them, as bytes.
pub fn icmp6(frames: &[Flying]) -> Vec<(Header, Vec<u8>)> {
    let mut packets = packets6(frames);
    packets.retain(|(ip, _)| ip.next_header == Protocol::ICMPV6);
    packets
}

/// One of them as a value.
pub fn message((ip, bytes): &(Header, Vec<u8>)) -> Message<'_> {
    Message::parse(ip.source, ip.destination, bytes).unwrap()
}
