//! Building frames: Ethernet, IPv4 and TCP headers in front of a payload that stays where it is.
//!
//! TCP checksums are left partial: the field holds the sum of the pseudo header, and the driver or the
//! device adds the rest.

use crate::egress::{Busy, Egress, Frame, PartialChecksum, Payload};
use crate::interface::InterfaceId;
use crate::stack::Stack;
use core::net::Ipv4Addr;
use wire::checksum::Sum;
use wire::ethernet::{self, EtherType};
use wire::icmpv4::Message;
use wire::ipv4::{self, Protocol};

const IP_START: usize = ethernet::Header::LEN;
const PAYLOAD_START: usize = IP_START + ipv4::Header::LEN;
/// Where the TCP header begins, for the device that completes the checksum.
const TCP_START: u16 = 34;
const _: () = assert!(PAYLOAD_START == 34);
/// Largest TCP payload of one packet: IPv4 can say 65535, headers take up to 80.
pub(crate) const PAYLOAD_MAX: u32 = 65_535 - 80;

/// Where headers are built. Holds a whole packet, for ICMP.
#[derive(Debug)]
pub(crate) struct Scratch(Vec<u8>);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(crate::intrusive::zeroed(IP_START + 65_535))
    }
}

/// Where a packet goes and what its IPv4 header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    pub(crate) interface: InterfaceId,
    pub(crate) hardware: ethernet::Address,
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) identification: u16,
}

impl Envelope {
    fn ip(&self, protocol: Protocol) -> ipv4::Header {
        ipv4::Header {
            source: self.source,
            destination: self.destination,
            protocol,
            ttl: self.ttl,
            dscp_ecn: self.tos,
            identification: self.identification,
            // RFC 1191 §3: path MTU discovery; it also makes the datagram atomic (RFC 6864 §4).
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            total_len: 0,
            header_len: ipv4::Header::LEN,
        }
    }
}

impl Stack<'_> {
    /// Sends a TCP segment whose payload is `len` bytes.
    pub(crate) fn send_tcp(
        &mut self,
        envelope: &Envelope,
        header: &wire::tcp::Header,
        payload: Payload<'_>,
        len: u32,
        segment_size: Option<u16>,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let headers = &mut self.scratch.0;
        let tcp = &mut headers[PAYLOAD_START..];
        let header_len = header.emit(tcp);
        let tcp_len = header_len + crate::intrusive::at(len);
        let partial = Sum::new()
            .pseudo_header_v4(
                envelope.source,
                envelope.destination,
                Protocol::TCP,
                tcp_len,
            )
            .fold();
        let field = usize::from(wire::tcp::CHECKSUM_OFFSET);
        tcp[field..field + 2].copy_from_slice(&partial.to_be_bytes());
        envelope
            .ip(Protocol::TCP)
            .emit(tcp_len, &mut headers[IP_START..]);
        self.emit_ethernet(envelope);
        let frame = Frame {
            interface: envelope.interface,
            headers: &self.scratch.0[..PAYLOAD_START + header_len],
            payload,
            checksum: Some(PartialChecksum {
                start: TCP_START,
                offset: wire::tcp::CHECKSUM_OFFSET,
            }),
            segment_size,
        };
        egress.transmit(&frame)?;
        self.counters.ip_out_requests += 1;
        self.counters.tcp_out_segs += u64::from(segments(len, segment_size));
        Ok(())
    }

    /// Sends an ICMP message.
    pub(crate) fn send_icmp(
        &mut self,
        envelope: &Envelope,
        message: &Message<'_>,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let packet = &mut self.scratch.0;
        let len = message.emit(&mut packet[PAYLOAD_START..]);
        envelope
            .ip(Protocol::ICMP)
            .emit(len, &mut packet[IP_START..]);
        self.emit_ethernet(envelope);
        let headers = &self.scratch.0[..PAYLOAD_START + len];
        let (interface, payload) = (envelope.interface, Payload::None);
        egress.transmit(&Frame {
            interface,
            headers,
            payload,
            checksum: None,
            segment_size: None,
        })?;
        self.counters.ip_out_requests += 1;
        Ok(())
    }

    fn emit_ethernet(&mut self, envelope: &Envelope) {
        let interface = self.interfaces.find(envelope.interface);
        let source = interface.map_or(ethernet::Address([0; 6]), |interface| {
            interface.config.hardware
        });
        let header = ethernet::Header {
            destination: envelope.hardware,
            source,
            ethertype: EtherType::IPV4,
        };
        header.emit(&mut self.scratch.0);
    }
}

/// Packets that `len` bytes of payload become on the wire.
pub(crate) fn segments(len: u32, segment_size: Option<u16>) -> u32 {
    segment_size.map_or(1, |size| len.div_ceil(u32::from(size.max(1))).max(1))
}
