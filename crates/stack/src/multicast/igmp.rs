//! The words of IPv4 (RFC 3376, and RFC 2236 and RFC 1112 for the older versions). When they are said is
//! decided in `reports`.

use super::reports::{ASKED_MAX, Question, Statement};
use super::{ALL_SYSTEMS, Multicast};
use crate::address::group_hardware;
use crate::egress::{Egress, Frame, Payload};
use crate::ip::arrival::Arrival;
use crate::link::Link;
use crate::link::interface::{InterfaceId, Resolution};
use core::net::{IpAddr, Ipv4Addr};
use tcp::Instant;
use wire::ethernet::{self, EtherType};
use wire::igmp::{self, Message, OldReport, Version};
use wire::ipv4::{self, Protocol};

/// Where reports of version 3 go (RFC 3376 §4.2.14).
const REPORTS_TO: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// Where a host of version 2 says that it leaves (RFC 2236 §9).
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);

impl Multicast {
    /// Takes in an IGMP message that came by the link.
    pub(crate) fn handle_igmp(&mut self, now: Instant, link: &mut Link, arrival: &Arrival<'_>) {
        link.counters.igmp_in_msgs += 1;
        match Message::parse(arrival.payload) {
            Err(_) => link.counters.igmp_in_errors += 1,
            Ok(Message::Query(query)) => {
                let sources = query.sources().take(ASKED_MAX + 1);
                let question = Question {
                    version: query.version,
                    group: query.group.into(),
                    max_response_ms: query.max_response_ms,
                    sources: sources.map(IpAddr::V4).collect(),
                };
                self.handle_query(now, &mut link.timers, arrival.interface, &question);
            }
            Ok(Message::Report(group)) => {
                self.handle_foreign_report(
                    now,
                    &mut link.timers,
                    (arrival.interface, group.into()),
                );
            }
            Ok(Message::Other(_)) => {}
        }
    }
}

pub(super) fn say(
    link: &mut Link,
    interface: InterfaceId,
    group: Ipv4Addr,
    statement: Statement,
    egress: &mut dyn Egress,
) {
    if group == ALL_SYSTEMS {
        return;
    }
    let leaves = statement.leaves;
    match statement.version {
        Version::V3 => {
            for (kind, sources) in statement.records {
                let sources: Vec<Ipv4Addr> = sources.into_iter().filter_map(v4).collect();
                let build = |out: &mut [u8]| igmp::emit_report(kind, group, &sources, out);
                send(link, interface, REPORTS_TO, egress, build);
            }
        }
        // RFC 3376 §7.2.1, RFC 2236 §3: a host of version 1 leaves silently.
        Version::V1 if leaves => {}
        Version::V2 if leaves => {
            let build = |out: &mut [u8]| igmp::emit_old_report(OldReport::Leave, group, out);
            send(link, interface, ALL_ROUTERS, egress, build);
        }
        version => {
            let kind = match version {
                Version::V1 => OldReport::V1,
                _ => OldReport::V2,
            };
            let build = |out: &mut [u8]| igmp::emit_old_report(kind, group, out);
            send(link, interface, group, egress, build);
        }
    }
}

fn send(
    link: &mut Link,
    id: InterfaceId,
    destination: Ipv4Addr,
    egress: &mut dyn Egress,
    build: impl FnOnce(&mut [u8]) -> usize,
) {
    const IP_START: usize = ethernet::Header::LEN;
    const START: usize = IP_START + ipv4::Header::ROUTER_ALERT_LEN;
    let Some(interface) = link.interfaces.find(id) else {
        return;
    };
    if interface.config.resolution != Resolution::Arp {
        return;
    }
    // RFC 3376 §4.2.13: without an address the source is unspecified.
    let source = interface
        .source_for(destination.into(), destination.into())
        .and_then(v4);
    let header = ethernet::Header {
        destination: group_hardware(destination),
        source: interface.config.hardware,
        ethertype: EtherType::IPV4,
    };
    let packet = link.scratch.bytes();
    let len = build(&mut packet[START..]);
    // RFC 3376 §4: TTL 1, internetwork control, router alert.
    let ip = ipv4::Header {
        ttl: 1,
        dscp_ecn: 0xc0,
        header_len: ipv4::Header::ROUTER_ALERT_LEN,
        ..ipv4::Header::new(
            source.unwrap_or(Ipv4Addr::UNSPECIFIED),
            destination,
            Protocol::IGMP,
        )
    };
    ip.emit_with_router_alert(len, &mut packet[IP_START..]);
    header.emit(packet);
    let frame = Frame {
        interface: id,
        headers: &packet[..START + len],
        payload: Payload::None,
        checksum: None,
        segment_size: None,
    };
    if egress.transmit(&frame).is_ok() {
        link.counters.ip_out_requests += 1;
        link.counters.igmp_out_msgs += 1;
    }
}

fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}
