//! A frame arrives: Ethernet and IP checks before any protocol sees it (RFC 1122 §3.2.1, RFC 1812
//! §5.3.7 for martians, RFC 8200 for IPv6).
//!
//! Fragments go their own way (`fragments.rs`) until they are whole. Nothing is forwarded.
//!
//! Answers that belong to no connection (echo replies, resets, ICMP errors) go back to the station
//! that delivered the packet, on the interface it came by: a stranger's packet then costs neither a
//! route lookup nor an entry of the neighbour cache.

mod deferred;
mod detour;
mod icmp;
mod icmpv6;
mod predicted;

use crate::egress::{Egress, RxMeta};
use crate::host::Host;
use crate::ip::arrival::Arrival;
use crate::ip::reassembly::Partial;
use crate::ip::refuse::Refusal;
use crate::link::interface::{InterfaceConfig, InterfaceId, Resolution};
use crate::protocols::Protocols;
use crate::stack::Stack;
use core::net::{IpAddr, Ipv4Addr};
use detour::pass_on;
use tcp::Instant;
use wire::ethernet::{self, EtherType};
use wire::ipv4::{self, Protocol};
use wire::ipv6::{self, extension};

/// How a frame came.
#[derive(Clone, Copy, Debug)]
struct FrameContext<'a> {
    interface: InterfaceId,
    config: InterfaceConfig,
    station: ethernet::Address,
    /// The frame was for this station alone.
    unicast: bool,
    meta: RxMeta,
    frame: &'a [u8],
}

impl Stack<'_> {
    /// Takes in one received frame. Answers that belong to no connection leave through `egress` at
    /// once; connections answer in [`Stack::poll_transmit`].
    #[inline(always)]
    pub fn handle_frame(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        frame: &[u8],
        meta: RxMeta,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        if let Some(index) = self.predicted(interface, frame)
            && self.handle_predicted(now, index, frame, meta, host)
        {
            return;
        }
        self.handle_any_frame(now, interface, frame, meta, host, egress);
    }

    /// [`Self::handle_frame`] of one that was not predicted.
    #[inline(never)]
    fn handle_any_frame(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        frame: &[u8],
        meta: RxMeta,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        if self.handle_predicted_datagram(interface, frame, meta, host) {
            return;
        }
        let Some(found) = self.ip.link.interfaces.find(interface) else {
            return;
        };
        let config = found.config;
        let Ok((header, payload)) = ethernet::Header::parse(frame) else {
            self.ip.link.counters.frame_errors += 1;
            return;
        };
        if header.source.is_multicast() {
            self.ip.link.counters.frame_errors += 1;
            return;
        }
        let loopback = config.resolution == Resolution::Loopback;
        let unicast = loopback || header.destination == config.hardware;
        if !unicast && !header.destination.is_multicast() {
            self.ip.link.counters.frames_ignored += 1;
            return;
        }
        let came = FrameContext {
            interface,
            config,
            station: header.source,
            unicast,
            meta,
            frame,
        };
        match header.ethertype {
            EtherType::ARP => {
                let link = &mut self.ip.link;
                if let Some(n) = link.handle_arp(now, interface, header.source, payload, egress) {
                    self.ip.wake_waiters(n);
                }
            }
            EtherType::IPV4 => self.handle_ipv4(now, &came, payload, host, egress),
            EtherType::IPV6 if self.ip.link.config.protocols.contains(Protocols::IPV6) => {
                self.handle_ipv6(now, &came, payload, host, egress);
            }
            _ => self.ip.link.counters.frames_ignored += 1,
        }
    }

    fn handle_ipv4(
        &mut self,
        now: Instant,
        came: &FrameContext<'_>,
        packet: &[u8],
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        self.ip.link.counters.ip_in_receives += 1;
        let Ok((ip, payload)) = parse_ipv4(packet, came.meta) else {
            self.ip.link.counters.ip_in_hdr_errors += 1;
            return;
        };
        // RFC 7126 §4.3, §4.4 and Linux (`accept_source_route`): whoever chose the way may have been in it, so that the
        // source address says nothing.
        if ipv4::options::judge(&packet[ipv4::Header::LEN..ip.header_len]).is_err() {
            self.ip.link.counters.ip_in_hdr_errors += 1;
            return;
        }
        let arrival = Arrival {
            interface: came.interface,
            resolution: came.config.resolution,
            station: came.station,
            source: ip.source.into(),
            destination: ip.destination.into(),
            protocol: ip.protocol,
            next_header_at: 9,
            hop_limit: ip.ttl,
            dscp_ecn: ip.dscp_ecn,
            ttl: ip.ttl,
            packet: &packet[..ip.header_len + payload.len()],
            payload,
            router_alert: false,
            is_marked_fragment: false,
            is_detour: false,
            checksum: came.meta.checksum,
            segment_bytes: came.meta.segment_bytes,
            frame: came.frame,
        };
        let is_for_all = self.is_for_many(&arrival, ip.destination);
        // RFC 3376 §4.2.13: who has no address yet speaks of groups without one; RFC 1122 §3.2.1.3: and
        // asks everybody for one.
        let is_nobody = ip.source.is_unspecified()
            && (ip.protocol == Protocol::IGMP || ip.destination.is_broadcast());
        let ends = self.ip.link.interfaces.ends(ip.source, ip.destination);
        // RFC 1122 §3.2.1.3: own and loopback addresses come by the loopback only.
        let is_here = ends.is_source_own || ip.source.is_loopback() || ip.destination.is_loopback();
        let is_possible =
            ends.is_source_unicast && (came.config.resolution == Resolution::Loopback || !is_here);
        if !(is_nobody || is_possible) || !(is_for_all || ends.is_destination_own) {
            self.ip.link.counters.ip_in_addr_errors += 1;
            return;
        }
        // RFC 1122 §3.3.6: a unicast packet in a link-layer broadcast is a mistake of the sender.
        if !came.unicast && !is_for_all {
            return;
        }
        if ip.is_fragment() {
            if let Some(whole) = self.ip.handle_fragment_v4(now, &arrival, &ip) {
                self.deliver_assembled(now, &arrival, whole, host, egress);
            }
        } else {
            self.deliver(now, &arrival, host, egress);
        }
    }

    /// Whether a packet is for everybody on the link, or for a group that somebody here has joined. That
    /// concerns UDP alone (RFC 1122 §4.2.3.10 for TCP, §3.2.2.6 for echo), and what is said of groups.
    fn is_for_many(&self, arrival: &Arrival<'_>, destination: Ipv4Addr) -> bool {
        let is_local = arrival.resolution == Resolution::Loopback;
        match arrival.protocol {
            Protocol::UDP => {
                let link = arrival.link_of_many(&self.ip.link.interfaces);
                self.ip.link.interfaces.is_broadcast(destination)
                    || (destination.is_multicast()
                        && self.ip.multicast.listens(link, destination.into()))
            }
            Protocol::IGMP => destination.is_multicast() && !is_local,
            _ => false,
        }
    }

    fn handle_ipv6(
        &mut self,
        now: Instant,
        came: &FrameContext<'_>,
        packet: &[u8],
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        self.ip.link.counters.ip6_in_receives += 1;
        let Ok((ip, payload)) = ipv6::Header::parse(packet) else {
            self.ip.link.counters.ip6_in_hdr_errors += 1;
            return;
        };
        let packet = &packet[..ipv6::Header::LEN + payload.len()];
        let mut arrival = Arrival {
            interface: came.interface,
            resolution: came.config.resolution,
            station: came.station,
            source: ip.source.into(),
            destination: ip.destination.into(),
            protocol: ip.next_header,
            next_header_at: 6,
            hop_limit: ip.hop_limit,
            dscp_ecn: ip.traffic_class,
            ttl: ip.hop_limit,
            packet,
            payload,
            router_alert: false,
            is_marked_fragment: false,
            is_detour: false,
            checksum: came.meta.checksum,
            segment_bytes: came.meta.segment_bytes,
            frame: came.frame,
        };
        if !self.is_possible_ipv6_source(&arrival) || !self.is_ipv6_destination(&arrival) {
            self.ip.link.counters.ip6_in_addr_errors += 1;
            return;
        }
        if !came.unicast && !arrival.is_to_group() {
            return;
        }
        match extension::walk(packet, extension::Start::behind(&ip)) {
            Ok(chain) => {
                arrival.protocol = chain.protocol;
                arrival.next_header_at = chain.next_header_at;
                arrival.payload = chain.payload;
                arrival.router_alert = chain.router_alert;
                arrival.is_marked_fragment = chain.is_marked_fragment;
                arrival.is_detour = chain.payload_at != ipv6::Header::LEN;
                if let Some(part) = chain.fragment {
                    let whole = self
                        .ip
                        .handle_fragment_v6(now, &arrival, &chain, &part, egress);
                    if let Some(whole) = whole {
                        self.deliver_assembled(now, &arrival, whole, host, egress);
                    }
                } else {
                    self.deliver(now, &arrival, host, egress);
                }
            }
            Err(problem) => {
                self.ip.link.counters.ip6_in_hdr_errors += 1;
                self.ip.report_problem(now, &arrival, problem, egress);
            }
        }
    }

    /// Whether the source of a packet can be another host (RFC 4291 §2.5.2, §2.5.3): own and loopback addresses come by the
    /// loopback only.
    #[inline]
    fn is_possible_ipv6_source(&self, arrival: &Arrival<'_>) -> bool {
        let Arrival {
            source,
            destination,
            ..
        } = *arrival;
        if arrival.resolution == Resolution::Loopback {
            return self.ip.link.interfaces.is_unicast(source);
        }
        let is_foreign = !source.is_loopback()
            && !destination.is_loopback()
            && !self.ip.link.interfaces.owns_on(arrival.interface, source);
        // RFC 4861 §7.1.1, RFC 4862 §5.4: who has no address yet speaks to groups without one.
        let is_nobody = source.is_unspecified() && destination.is_multicast();
        is_foreign && (is_nobody || self.ip.link.interfaces.is_unicast(source))
    }

    /// Whether a packet is for this host.
    fn is_ipv6_destination(&self, arrival: &Arrival<'_>) -> bool {
        match arrival.destination {
            group if group.is_multicast() => {
                let link = arrival.link_of_many(&self.ip.link.interfaces);
                !is_beyond_its_scope(arrival, group) && self.ip.listens_to_group(link, group)
            }
            address if arrival.resolution == Resolution::Loopback => {
                self.ip.link.interfaces.owns(address)
            }
            address => self.ip.link.interfaces.owns_on(arrival.interface, address),
        }
    }

    fn deliver_assembled(
        &mut self,
        now: Instant,
        last: &Arrival<'_>,
        whole: Partial,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        // Taken out for the time, so that the stack can be used with what it holds.
        let mut buffer = core::mem::take(&mut self.ip.assembled);
        let assembled = self.ip.assemble(now, last, whole, &mut buffer, egress);
        if let Some(arrival) = assembled {
            self.deliver(now, &arrival, host, egress);
        }
        self.ip.assembled = buffer;
    }

    /// Hands a whole packet to its protocol.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        if arrival.is_detour && pass_on(arrival, self.ip.link.hardware_of(arrival.interface), host)
        {
            return;
        }
        let is_v4 = arrival.source.is_ipv4();
        if is_v4 {
            self.ip.link.counters.ip_in_delivers += 1;
        } else {
            self.ip.link.counters.ip6_in_delivers += 1;
        }
        let speaks = |protocol| self.ip.link.config.protocols.contains(protocol);
        match arrival.protocol {
            Protocol::TCP if speaks(Protocols::TCP) => {
                self.tcp
                    .handle_tcp(&mut self.ip, now, arrival, host, egress)
            }
            Protocol::ICMP if is_v4 && speaks(Protocols::ICMP) => {
                self.handle_icmp(now, arrival, host, egress);
            }
            Protocol::ICMPV6 if !is_v4 => self.handle_icmpv6(now, arrival, host, egress),
            Protocol::UDP if speaks(Protocols::UDP) => {
                self.udp
                    .handle_datagram(&mut self.ip, now, arrival, host, egress)
            }
            Protocol::IGMP if is_v4 && arrival.is_to_group() => {
                self.ip
                    .multicast
                    .handle_igmp(now, &mut self.ip.link, arrival)
            }
            Protocol::NO_NEXT_HEADER if !is_v4 => {}
            _ => {
                self.ip.link.counters.ip_in_unknown_protos += 1;
                self.ip.refuse(now, arrival, Refusal::Protocol, egress);
            }
        }
    }
}

/// RFC 4291 §2.7, and erratum 3480 of §2.7.1: a group of scope 0 is dropped, and one of this interface alone is if the
/// packet came from another node.
fn is_beyond_its_scope(arrival: &Arrival<'_>, group: IpAddr) -> bool {
    let IpAddr::V6(group) = group else {
        return false;
    };
    match group.octets()[1] & 0x0f {
        0 => true,
        1 => arrival.resolution != Resolution::Loopback,
        _ => false,
    }
}

/// An IPv4 packet's header and payload; one that was merged may be longer than its header can say.
#[inline(always)]
fn parse_ipv4(packet: &[u8], meta: RxMeta) -> Result<(ipv4::Header, &[u8]), wire::Error> {
    if meta.segment_bytes.is_some() {
        ipv4::Header::parse_merged(packet)
    } else {
        ipv4::Header::parse(packet)
    }
}
