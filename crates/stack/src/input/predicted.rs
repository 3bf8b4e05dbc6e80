//! The short way of a frame whose link and addresses were judged with an earlier one (`containers/prediction.rs`).

use super::parse_ipv4;
use crate::containers::demux::FourTuple;
use crate::egress::{RxChecksum, RxMeta};
use crate::host::Host;
use crate::link::interface::InterfaceId;
use crate::stack::Stack;
use crate::tcp::segment::{Segment, parse_tcp};
use crate::udp::UdpPacket;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tcp::Instant;
use wire::ecn::Ecn;
use wire::ethernet;
use wire::ipv4::{self, Protocol};
use wire::ipv6;
use wire::tcp::Plain;

impl Stack<'_> {
    /// The connection of a frame, if one like it came before.
    #[inline(always)]
    pub(super) fn predicted(&self, interface: InterfaceId, frame: &[u8]) -> Option<u32> {
        let generation = self.ip.link.interfaces.generation();
        self.tcp
            .demux
            .predictions
            .find(interface, frame, generation)
    }

    /// Takes in a frame of connection `index`. False, with nothing done: its IP header is not right, and the long
    /// way counts that.
    #[inline(always)]
    pub(super) fn handle_predicted(
        &mut self,
        now: Instant,
        index: u32,
        frame: &[u8],
        meta: RxMeta,
        host: &mut dyn Host,
    ) -> bool {
        let packet = &frame[ethernet::Header::LEN..];
        let parsed = if packet.first().is_some_and(|first| first >> 4 == 4) {
            self.open_ipv4(packet, meta)
        } else {
            self.open_ipv6(packet)
        };
        let Some((dscp_ecn, segment)) = parsed else {
            return false;
        };
        let mark = Ecn::from_tos(dscp_ecn);
        let must_verify = meta.checksum == RxChecksum::Unknown;
        if let Some((plain, payload)) = Plain::parse(segment)
            && (!must_verify || is_sum_right(&self.tcp.record(index).tuple, segment))
        {
            self.ip.link.counters.tcp_in_segs += 1;
            self.tcp
                .handle_plain(&mut self.ip, now, index, mark, (&plain, payload), host);
            return true;
        }
        self.handle_predicted_any(now, index, segment, (mark, must_verify), host);
        true
    }

    /// Takes in a datagram of which one like it came before. False, with nothing done: there was none, or its IP header is
    /// not right, and the long way counts that.
    #[inline]
    pub(super) fn handle_predicted_datagram(
        &mut self,
        interface: InterfaceId,
        frame: &[u8],
        meta: RxMeta,
        host: &mut dyn Host,
    ) -> bool {
        let interfaces = &self.ip.link.interfaces;
        let Some(index) = self.udp.predicted(interfaces, interface, frame) else {
            return false;
        };
        let packet = &frame[ethernet::Header::LEN..];
        let Some((ends, ttl)) = ends_and_ttl(packet) else {
            return false;
        };
        let parsed = if ends.0.is_ipv4() {
            self.open_ipv4(packet, meta)
        } else {
            self.open_ipv6(packet)
        };
        let Some((tos, payload)) = parsed else {
            return false;
        };
        let packet = UdpPacket {
            link: interface,
            ends,
            tos,
            ttl,
            bytes: payload,
            must_verify: meta.checksum == RxChecksum::Unknown,
            segment_bytes: meta.segment_bytes,
        };
        self.udp
            .handle_predicted(&mut self.ip, index, &packet, host);
        true
    }

    /// A segment of connection `index` with more than a plain header, or a wrong checksum.
    #[inline(never)]
    fn handle_predicted_any(
        &mut self,
        now: Instant,
        index: u32,
        segment: &[u8],
        (mark, must_verify): (Ecn, bool),
        host: &mut dyn Host,
    ) {
        let tuple = self.tcp.record(index).tuple;
        let is_right = |segment: &[u8]| !must_verify || is_sum_right(&tuple, segment);
        if let Some((header, payload)) = parse_tcp(&mut self.ip, segment, is_right) {
            let segment = Segment {
                header: &header,
                payload,
                mark,
            };
            self.tcp
                .handle_in_connection(&mut self.ip, now, index, &segment, host);
        }
    }

    /// Type of service and payload.
    #[inline(always)]
    fn open_ipv4<'p>(&mut self, packet: &'p [u8], meta: RxMeta) -> Option<(u8, &'p [u8])> {
        let parsed = if meta.segment_bytes.is_some() {
            let (ip, segment) = parse_ipv4(packet, meta).ok()?;
            (ip.dscp_ecn, segment)
        } else {
            ipv4::Header::parse_plain(packet)?
        };
        self.ip.link.counters.ip_in_receives += 1;
        self.ip.link.counters.ip_in_delivers += 1;
        Some(parsed)
    }

    /// Traffic class and payload.
    #[inline(always)]
    fn open_ipv6<'p>(&mut self, packet: &'p [u8]) -> Option<(u8, &'p [u8])> {
        let (ip, segment) = ipv6::Header::parse(packet).ok()?;
        self.ip.link.counters.ip6_in_receives += 1;
        self.ip.link.counters.ip6_in_delivers += 1;
        Some((ip.traffic_class, segment))
    }
}

/// Source, destination and time to live (RFC 791 §3.1, RFC 8200 §3); `None`: it is shorter than a header.
#[inline(always)]
fn ends_and_ttl(packet: &[u8]) -> Option<((IpAddr, IpAddr), u8)> {
    if packet.first()? >> 4 == 4 {
        let [.., ttl, _, _, _, a, b, c, d, e, f, g, h] = *packet.first_chunk::<20>()?;
        let ends = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
        return Some(((ends.0.into(), ends.1.into()), ttl));
    }
    let head = packet.first_chunk::<{ ipv6::Header::LEN }>()?;
    let at = |at: usize| head[at..].first_chunk::<16>();
    let (source, destination) = (Ipv6Addr::from(*at(8)?), Ipv6Addr::from(*at(24)?));
    Some(((source.into(), destination.into()), head[7]))
}

/// Whether the checksum of a segment between these ends is right.
fn is_sum_right(tuple: &FourTuple, segment: &[u8]) -> bool {
    wire::checksum::verify(tuple.remote(), tuple.local(), Protocol::TCP, segment)
}
