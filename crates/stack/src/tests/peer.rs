//! One stack against frames made by hand: a peer that says exactly what a test wants.

use super::pair::*;
use ::tcp::Instant;
use std::net::Ipv4Addr;
use wire::checksum::Sum;
use wire::ethernet::{EtherType, Header as EthernetHeader};
use wire::ipv4::{Header as Ipv4Header, Protocol};
use wire::tcp::{Flags, Header};

pub const ME: u8 = 1;
pub const PEER: u8 = 9;

pub fn ipv4_header(source: Ipv4Addr, destination: Ipv4Addr, protocol: Protocol) -> Ipv4Header {
    Ipv4Header {
        source,
        destination,
        protocol,
        ttl: 64,
        dscp_ecn: 0,
        identification: 7,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        total_len: 0,
        header_len: 20,
    }
}

/// A frame from the peer's hardware address to ours.
pub fn frame(ip: &Ipv4Header, payload: &[u8]) -> Flying {
    let mut bytes = vec![0; 34];
    EthernetHeader {
        destination: hardware(ME),
        source: hardware(PEER),
        ethertype: EtherType::IPV4,
    }
    .emit(&mut bytes);
    ip.emit(payload.len(), &mut bytes[14..]);
    bytes.extend_from_slice(payload);
    Flying {
        bytes,
        partial: false,
        interface: NIC.0,
        segment_bytes: None,
    }
}

/// A TCP segment between any two addresses.
pub fn segment(source: Ipv4Addr, destination: Ipv4Addr, header: &Header, payload: &[u8]) -> Flying {
    let mut tcp = vec![0; header.header_len()];
    header.emit(&mut tcp);
    tcp.extend_from_slice(payload);
    let sum = Sum::new()
        .pseudo_header_v4(source, destination, Protocol::TCP, tcp.len())
        .add(&tcp)
        .finish();
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    frame(&ipv4_header(source, destination, Protocol::TCP), &tcp)
}

pub fn header(source_port: u16, destination_port: u16, seq: u32, ack: u32, flags: Flags) -> Header {
    Header {
        source_port,
        destination_port,
        seq,
        ack,
        flags,
        window: 60_000,
        ..Header::default()
    }
}

/// A TCP segment that the stack has sent.
pub fn parse(frame: &Flying) -> Option<(Ipv4Header, Header, Vec<u8>)> {
    let (ethernet, packet) = EthernetHeader::parse(&frame.bytes).unwrap();
    if ethernet.ethertype != EtherType::IPV4 {
        return None;
    }
    let (ip, segment) = Ipv4Header::parse(packet).unwrap();
    if ip.protocol != Protocol::TCP {
        return None;
    }
    assert!(frame.partial || wire::checksum::verify_tcp_v4(ip.source, ip.destination, segment));
    let (header, payload) = Header::parse(segment).unwrap();
    Some((ip, header, payload.to_vec()))
}

pub fn segments(frames: &[Flying]) -> Vec<(Ipv4Header, Header, Vec<u8>)> {
    frames.iter().filter_map(parse).collect()
}

impl Node<'_> {
    /// Makes 10.0.0.`n` a known neighbour.
    pub fn knows(&mut self, now: Instant, n: u8) {
        self.stack
            .set_neighbour(now, NIC, ip(n).into(), Some(hardware(PEER)))
            .unwrap();
    }

    /// Opens a connection from the peer at `address` and `port`, to the end of the handshake. Returns
    /// the stack's next sequence number.
    pub fn handshake(
        &mut self,
        now: Instant,
        address: Ipv4Addr,
        port: u16,
        local_port: u16,
    ) -> Option<u32> {
        self.deliver(
            now,
            &segment(
                address,
                ip(ME),
                &header(port, local_port, 100, 0, Flags::SYN),
                &[],
            ),
        );
        let sent = segments(&self.transmit(now));
        let (_, syn_ack, _) = sent
            .iter()
            .find(|(_, reply, _)| reply.destination_port == port)?;
        assert_eq!(syn_ack.flags, Flags::SYN | Flags::ACK);
        let next = syn_ack.seq.wrapping_add(1);
        self.deliver(
            now,
            &segment(
                address,
                ip(ME),
                &header(port, local_port, 101, next, Flags::ACK),
                &[],
            ),
        );
        Some(next)
    }
}
