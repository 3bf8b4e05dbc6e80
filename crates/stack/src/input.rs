//! A frame arrives: Ethernet and IPv4 checks before any protocol sees it (RFC 1122 §3.2.1, RFC 1812
//! §5.3.7 for martians).
//!
//! Fragments are counted and dropped: putting them together is not written yet. Nothing is forwarded.
//!
//! Answers that belong to no connection (echo replies, resets, ICMP errors) go back to the station
//! that delivered the packet, on the interface it came by: a stranger's packet then costs neither a
//! route lookup nor an entry of the neighbour cache.

use crate::egress::{Egress, Host, RxChecksum, RxMeta};
use crate::interface::{InterfaceId, Resolution};
use crate::output::Envelope;
use crate::stack::Stack;
use core::net::Ipv4Addr;
use tcp::Instant;
use wire::ethernet::{self, EtherType};
use wire::icmpv4::{Message, unreachable};
use wire::ipv4::{self, Protocol};

/// A packet for this host, and how it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) interface: InterfaceId,
    pub(crate) resolution: Resolution,
    /// The station that delivered it.
    pub(crate) station: ethernet::Address,
    pub(crate) ip: ipv4::Header,
    /// From the IPv4 header on.
    pub(crate) packet: &'a [u8],
    pub(crate) payload: &'a [u8],
    pub(crate) checksum: RxChecksum,
}

impl Arrival<'_> {
    /// The way back.
    pub(crate) fn reply(&self) -> Envelope {
        Envelope {
            interface: self.interface,
            hardware: self.station,
            source: self.ip.destination,
            destination: self.ip.source,
            ttl: 64,
            tos: 0,
            identification: 0,
        }
    }

    /// Whether the transport checksum still has to be verified.
    pub(crate) fn must_verify(&self) -> bool {
        self.checksum == RxChecksum::Unknown
    }
}

impl Stack<'_> {
    /// Takes in one received frame. Answers that belong to no connection leave through `egress` at
    /// once; connections answer in [`Stack::poll_transmit`].
    pub fn handle_frame(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        frame: &[u8],
        meta: RxMeta,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        let Some(config) = self
            .interfaces
            .find(interface)
            .map(|interface| interface.config)
        else {
            return;
        };
        let Ok((header, payload)) = ethernet::Header::parse(frame) else {
            self.counters.frame_errors += 1;
            return;
        };
        let loopback = config.resolution == Resolution::Loopback;
        if header.source.is_multicast() {
            self.counters.frame_errors += 1;
            return;
        }
        let to_us = loopback || header.destination == config.hardware;
        if !to_us && !header.destination.is_multicast() {
            self.counters.frames_ignored += 1;
            return;
        }
        match header.ethertype {
            EtherType::ARP => self.handle_arp(now, interface, header.source, payload, egress),
            EtherType::IPV4 => {
                self.counters.ip_in_receives += 1;
                let Ok((ip, ip_payload)) = ipv4::Header::parse(payload) else {
                    self.counters.ip_in_hdr_errors += 1;
                    return;
                };
                let arrival = Arrival {
                    interface,
                    resolution: config.resolution,
                    station: header.source,
                    ip,
                    packet: &payload[..usize::from(ip.total_len)],
                    payload: ip_payload,
                    checksum: meta.checksum,
                };
                if self.is_for_us(&arrival, to_us) {
                    self.deliver(now, &arrival, host, egress);
                }
            }
            _ => self.counters.frames_ignored += 1,
        }
    }

    /// Whether the addresses of a packet are possible and name this host.
    fn is_for_us(&mut self, arrival: &Arrival<'_>, unicast_frame: bool) -> bool {
        let (source, destination) = (arrival.ip.source, arrival.ip.destination);
        let loopback = arrival.resolution == Resolution::Loopback;
        // RFC 1122 §3.2.1.3: never a source; own addresses and 127/8 come by the loopback only.
        let martian = !self.interfaces.is_unicast(source)
            || (!loopback
                && (source.is_loopback()
                    || destination.is_loopback()
                    || self.interfaces.owns(source)));
        if martian || !self.interfaces.owns(destination) {
            self.counters.ip_in_addr_errors += 1;
            return false;
        }
        // RFC 1122 §3.3.6: a unicast packet in a link-layer broadcast is a mistake of the sender.
        unicast_frame
    }

    fn deliver(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        if arrival.ip.is_fragment() {
            self.counters.ip_reasm_reqds += 1;
            self.counters.ip_reasm_fails += 1;
            return;
        }
        self.counters.ip_in_delivers += 1;
        match arrival.ip.protocol {
            Protocol::TCP => self.handle_tcp(now, arrival, host, egress),
            Protocol::ICMP => self.handle_icmp(now, arrival, host, egress),
            Protocol::UDP => self.handle_udp(now, arrival, egress),
            _ => {
                self.counters.ip_in_unknown_protos += 1;
                self.refuse(now, arrival, unreachable::PROTOCOL, egress);
            }
        }
    }

    /// There are no UDP sockets yet: nobody listens (RFC 1122 §4.1.3.1).
    fn handle_udp(&mut self, now: Instant, arrival: &Arrival<'_>, egress: &mut dyn Egress) {
        let (source, destination) = (arrival.ip.source, arrival.ip.destination);
        let Ok((_, payload)) = wire::udp::Header::parse(arrival.payload) else {
            self.counters.udp_in_errors += 1;
            return;
        };
        let datagram = &arrival.payload[..wire::udp::Header::LEN + payload.len()];
        if arrival.must_verify() && !wire::checksum::verify_udp_v4(source, destination, datagram) {
            self.counters.udp_in_errors += 1;
            return;
        }
        self.counters.udp_no_ports += 1;
        self.refuse(now, arrival, unreachable::PORT, egress);
    }

    /// Answers with destination unreachable (RFC 1122 §3.2.2), at a limited rate.
    fn refuse(&mut self, now: Instant, arrival: &Arrival<'_>, code: u8, egress: &mut dyn Egress) {
        if arrival.resolution == Resolution::External {
            return; // The kernel has the same packet and answers for itself.
        }
        if !self.icmp_bucket.try_take(now) {
            self.counters.icmp_out_rate_limit += 1;
            return;
        }
        // RFC 1812 §4.3.2.3: as much of the packet as fits into 576 bytes.
        const QUOTED_MAX: usize = 576 - ipv4::Header::LEN - wire::icmpv4::HEADER_LEN;
        let quoted = &arrival.packet[..arrival.packet.len().min(QUOTED_MAX)];
        let message = Message::DestinationUnreachable {
            code,
            next_hop_mtu: 0,
            quoted,
        };
        // RFC 1812 §4.3.2.5: internetwork control precedence.
        let envelope = Envelope {
            tos: 0xc0,
            ..arrival.reply()
        };
        if self.send_icmp(&envelope, &message, egress).is_ok() {
            self.counters.icmp_out_dest_unreachs += 1;
        }
    }

    /// Whether `address` is one of this host's own.
    pub fn owns_address(&self, address: Ipv4Addr) -> bool {
        self.interfaces.owns(address)
    }
}
