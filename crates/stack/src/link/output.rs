//! Building frames: Ethernet, IP and TCP headers in front of a payload that stays where it is.
//!
//! TCP checksums are left partial: the field holds the sum of the pseudo header, and the driver or the
//! device adds the rest.

use super::Link;
use super::interface::InterfaceId;
use crate::egress::{Busy, Egress, Frame, PartialChecksum, Payload};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::checksum::Sum;
use wire::ethernet::{self, EtherType};
use wire::ipv4::{self, Protocol};
use wire::ipv6::{self, extension::Fragment};
use wire::template::Template;
use wire::{icmpv4, icmpv6};

const IP_START: usize = ethernet::Header::LEN;
/// Largest IP packet that its header can announce (IPv6 could say 40 bytes more).
pub(crate) const PACKET_MAX: u32 = 65_535;
/// Largest TCP segment over IPv4 that is handed to a device that takes such (`GSO_MAX_SIZE` in Linux).
const MERGED_PACKET_MAX: u32 = 8 * 65_535;

/// Largest IP packet to `destination` that is ever built, before a device cuts it.
pub(crate) const fn packet_max(destination: IpAddr) -> u32 {
    match destination {
        IpAddr::V4(_) => MERGED_PACKET_MAX,
        // A longer one needs a hop-by-hop option (RFC 2675), which devices cannot cut.
        IpAddr::V6(_) => PACKET_MAX,
    }
}

/// Bytes of an IP header of the family of `address`, without options or extension headers.
pub(crate) const fn ip_header_len(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(_) => 20,
        IpAddr::V6(_) => 40,
    }
}
const _: () = assert!(ipv4::Header::LEN == 20 && ipv6::Header::LEN == 40);

/// Where headers are built. Holds a whole packet, for ICMP.
#[derive(Debug)]
pub(crate) struct Scratch(Vec<u8>);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(crate::containers::intrusive::zeroed(
            IP_START + ipv6::Header::LEN + 65_535,
        ))
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Where a packet goes and what its IP header says. Both ends are of one family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    pub(crate) interface: InterfaceId,
    pub(crate) hardware: ethernet::Address,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// Time to live, or hop limit.
    pub(crate) ttl: u8,
    /// Type of service, or traffic class.
    pub(crate) tos: u8,
    /// IPv4 only.
    pub(crate) identification: u16,
    /// IPv6 only.
    pub(crate) flow_label: u32,
}

impl Envelope {
    /// Bytes before the payload of the IP packet: where it starts in a frame.
    pub(crate) const fn payload_start(&self) -> u16 {
        14 + ip_header_len(self.destination)
    }

    /// Writes Ethernet and IP headers in front of `payload_len` bytes.
    pub(crate) fn emit(
        &self,
        hardware: ethernet::Address,
        protocol: Protocol,
        payload_len: usize,
        frame: &mut [u8],
    ) {
        let ethertype = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.ipv4(source, destination, protocol)
                    .emit(payload_len, &mut frame[IP_START..]);
                EtherType::IPV4
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.ipv6(source, destination, protocol)
                    .emit(payload_len, &mut frame[IP_START..]);
                EtherType::IPV6
            }
            _ => unreachable!("invariant: both ends of an envelope are of one family"),
        };
        ethernet::Header {
            destination: self.hardware,
            source: hardware,
            ethertype,
        }
        .emit(frame);
    }

    /// As [`Envelope::emit`], but a router may cut the packet (RFC 791 §3.1: DF is not set).
    pub(crate) fn emit_unmarked(
        &self,
        hardware: ethernet::Address,
        protocol: Protocol,
        identification: u32,
        payload_len: usize,
        frame: &mut [u8],
    ) {
        if self.destination.is_ipv6() {
            return self.emit(hardware, protocol, payload_len, frame);
        }
        let whole = Fragment {
            next_header: protocol,
            offset: 0,
            more: false,
            identification,
        };
        self.emit_fragment(hardware, &whole, payload_len, frame);
    }

    /// Bytes before the data of a fragment.
    pub(crate) const fn fragment_headers_len(&self) -> usize {
        match self.destination {
            IpAddr::V4(_) => IP_START + ipv4::Header::LEN,
            IpAddr::V6(_) => IP_START + ipv6::Header::LEN + Fragment::LEN,
        }
    }

    /// Writes the headers of a fragment with `len` bytes of data (RFC 791 §3.2, RFC 8200 §4.5).
    pub(crate) fn emit_fragment(
        &self,
        hardware: ethernet::Address,
        part: &Fragment,
        len: usize,
        frame: &mut [u8],
    ) {
        if self.destination.is_ipv6() {
            self.emit(hardware, Protocol::FRAGMENT, Fragment::LEN + len, frame);
            part.emit(&mut frame[IP_START + ipv6::Header::LEN..]);
            return;
        }
        self.emit(hardware, part.next_header, len, frame);
        if let (IpAddr::V4(source), IpAddr::V4(destination)) = (self.source, self.destination) {
            let header = ipv4::Header {
                dont_fragment: false,
                more_fragments: part.more,
                fragment_offset: part.offset,
                identification: u16::try_from(part.identification & 0xffff)
                    .expect("invariant: 16 bits remain"),
                ..self.ipv4(source, destination, part.next_header)
            };
            header.emit(len, &mut frame[IP_START..]);
        }
    }

    fn ipv6(&self, source: Ipv6Addr, destination: Ipv6Addr, protocol: Protocol) -> ipv6::Header {
        ipv6::Header {
            source,
            destination,
            next_header: protocol,
            hop_limit: self.ttl,
            traffic_class: self.tos,
            flow_label: self.flow_label,
        }
    }

    fn ipv4(&self, source: Ipv4Addr, destination: Ipv4Addr, protocol: Protocol) -> ipv4::Header {
        ipv4::Header {
            ttl: self.ttl,
            dscp_ecn: self.tos,
            identification: self.identification,
            // RFC 1191 §3: path MTU discovery; it also makes the datagram atomic (RFC 6864 §4).
            dont_fragment: true,
            ..ipv4::Header::new(source, destination, protocol)
        }
    }
}

impl Link {
    /// Sends a TCP segment whose payload is `len` bytes; `emit` writes its header and returns how long that is.
    #[inline]
    pub(crate) fn send_tcp(
        &mut self,
        envelope: &Envelope,
        emit: impl FnOnce(&mut [u8]) -> usize,
        payload: Payload<'_>,
        len: u32,
        segment_size: Option<u16>,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let start = usize::from(envelope.payload_start());
        let hardware = self.hardware_of(envelope.interface);
        let headers = &mut self.scratch.0;
        let tcp = &mut headers[start..];
        let header_len = emit(tcp);
        let tcp_len = header_len + crate::containers::intrusive::at(len);
        let (source, destination) = (envelope.source, envelope.destination);
        let partial = Sum::new()
            .pseudo_header(source, destination, Protocol::TCP, tcp_len)
            .fold();
        let field = usize::from(wire::tcp::CHECKSUM_OFFSET);
        tcp[field..field + 2].copy_from_slice(&partial.to_be_bytes());
        envelope.emit(hardware, Protocol::TCP, tcp_len, headers);
        let frame = Frame {
            interface: envelope.interface,
            headers: &headers[..start + header_len],
            payload,
            checksum: Some(PartialChecksum {
                start: envelope.payload_start(),
                offset: wire::tcp::CHECKSUM_OFFSET,
            }),
            segment_size,
        };
        egress.transmit(&frame)?;
        self.count_segments(segments(len, segment_size));
        Ok(())
    }

    /// One packet of TCP has left, which is so many on the wire.
    #[inline]
    pub(crate) fn count_segments(&mut self, packets: u32) {
        self.counters.ip_out_requests += 1;
        self.counters.tcp_out_segs += u64::from(packets);
    }

    /// Headers of a connection's segments (`envelope` says nothing of which one).
    pub(crate) fn template(&self, envelope: &Envelope, ports: [u16; 2]) -> Template {
        let mut headers = [0; IP_START + ipv6::Header::LEN];
        let hardware = self.hardware_of(envelope.interface);
        envelope.emit(hardware, Protocol::TCP, 0, &mut headers);
        Template::new(&headers, envelope.source, envelope.destination, ports)
    }

    /// Sends a segment without payload outside of a connection's turn; false: a busy interface has lost it, as
    /// a cable would.
    pub(crate) fn send_control(
        &mut self,
        envelope: &Envelope,
        header: &wire::tcp::Header,
        egress: &mut dyn Egress,
    ) -> bool {
        let emit = |out: &mut [u8]| header.emit(out);
        self.send_tcp(envelope, emit, Payload::None, 0, None, egress)
            .is_ok()
    }

    /// Sends an ICMP message over IPv4.
    pub(crate) fn send_icmp(
        &mut self,
        envelope: &Envelope,
        message: &icmpv4::Message<'_>,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        self.send_built(envelope, Protocol::ICMP, egress, |out| message.emit(out))
    }

    /// Sends an ICMP message over IPv6.
    pub(crate) fn send_icmpv6(
        &mut self,
        envelope: &Envelope,
        message: &icmpv6::Message<'_>,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (envelope.source, envelope.destination)
        else {
            return Ok(());
        };
        self.send_built(envelope, Protocol::ICMPV6, egress, |out| {
            message.emit(source, destination, out)
        })
    }

    /// Sends one packet whose payload `build` writes; it returns how long that is.
    fn send_built(
        &mut self,
        envelope: &Envelope,
        protocol: Protocol,
        egress: &mut dyn Egress,
        build: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<(), Busy> {
        let start = usize::from(envelope.payload_start());
        let hardware = self.hardware_of(envelope.interface);
        let packet = &mut self.scratch.0;
        let len = build(&mut packet[start..]);
        let is_v6 = envelope.destination.is_ipv6();
        let link = self.interfaces.find(envelope.interface);
        let mtu = link.map_or(PACKET_MAX, |link| link.mtu_for(is_v6).into());
        if crate::containers::intrusive::at(mtu) < start - IP_START + len {
            return self.send_cut(
                envelope,
                protocol,
                len,
                crate::containers::intrusive::at(mtu),
                egress,
            );
        }
        envelope.emit(hardware, protocol, len, packet);
        egress.transmit(&Frame {
            interface: envelope.interface,
            headers: &packet[..start + len],
            payload: Payload::None,
            checksum: None,
            segment_size: None,
        })?;
        self.counters.ip_out_requests += 1;
        Ok(())
    }

    /// Sends the `len` bytes that stand in the scratch behind the place for the headers in fragments: the
    /// answer to an echo that was itself too long for the link (RFC 1122 §3.2.2.6, RFC 4443 §4.2).
    fn send_cut(
        &mut self,
        envelope: &Envelope,
        protocol: Protocol,
        len: usize,
        mtu: usize,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let identification = self.identifications.next(envelope.destination);
        let hardware = self.hardware_of(envelope.interface);
        let from = usize::from(envelope.payload_start());
        let payload = &self.scratch.0[from..from + len];
        let headers_len = envelope.fragment_headers_len();
        // No path MTU is kept for such answers; every link carries so much (RFC 8200 §5).
        let mtu = if envelope.destination.is_ipv6() {
            mtu.min(ipv6::MINIMUM_MTU.into())
        } else {
            mtu
        };
        let step = (mtu + IP_START - headers_len) & !7;
        for at in (0..len).step_by(step) {
            let piece = &payload[at..len.min(at + step)];
            let part = Fragment {
                next_header: protocol,
                offset: u16::try_from(at).expect("invariant: a packet fits 16 bits"),
                more: at + step < len,
                identification,
            };
            let mut headers = [0; IP_START + ipv6::Header::LEN + Fragment::LEN];
            envelope.emit_fragment(hardware, &part, piece.len(), &mut headers);
            egress.transmit(&Frame {
                interface: envelope.interface,
                headers: &headers[..headers_len],
                payload: Payload::Bytes(piece),
                checksum: None,
                segment_size: None,
            })?;
            self.counters.ip_out_requests += 1;
        }
        Ok(())
    }

    pub(crate) fn hardware_of(&self, interface: InterfaceId) -> ethernet::Address {
        self.interfaces
            .find(interface)
            .map_or(ethernet::Address::UNSPECIFIED, |interface| {
                interface.config.hardware
            })
    }
}

/// Packets that `len` bytes of payload become on the wire.
#[inline]
pub(crate) fn segments(len: u32, segment_size: Option<u16>) -> u32 {
    segment_size.map_or(1, |size| len.div_ceil(u32::from(size.max(1))).max(1))
}
