//! The words of IPv4 (RFC 3376, and RFC 2236 and RFC 1112 for the older versions). When they are said is
//! decided in `reports`.

use super::reports::{ASKED_MAX, Heard, Question, Statement};
use super::{ALL_SYSTEMS, Multicast};
use crate::egress::Egress;
use crate::ip::arrival::Arrival;
use crate::link::Link;
use crate::link::interface::InterfaceId;
use core::net::{IpAddr, Ipv4Addr};
use tcp::Instant;
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
        let heard = match Message::parse(arrival.payload) {
            Err(_) => {
                link.counters.igmp_in_errors += 1;
                return;
            }
            Ok(Message::Query(query)) => {
                let sources = query.sources().take(ASKED_MAX + 1);
                Heard::Query(Question {
                    version: query.version,
                    group: query.group.into(),
                    max_response_ms: query.max_response_ms,
                    sources: sources.map(IpAddr::V4).collect(),
                })
            }
            Ok(Message::Report(group)) => Heard::Report(group.into()),
            Ok(Message::Other(_)) => return,
        };
        self.handle_heard(now, &mut link.timers, arrival.interface, &heard);
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
    const START: usize = ipv4::Header::ROUTER_ALERT_LEN;
    let is_sent = link.send_to_group(id, destination.into(), egress, |interface, packet| {
        let len = build(&mut packet[START..]);
        // RFC 3376 §4.2.13: without an address the source is unspecified.
        let source = interface
            .source_for(destination.into(), destination.into())
            .and_then(v4);
        // RFC 3376 §4: TTL 1, internetwork control, router alert.
        let ip = ipv4::Header {
            ttl: 1,
            dscp_ecn: 0xc0,
            header_len: START,
            ..ipv4::Header::new(
                source.unwrap_or(Ipv4Addr::UNSPECIFIED),
                destination,
                Protocol::IGMP,
            )
        };
        ip.emit_with_router_alert(len, packet);
        START + len
    });
    link.counters.igmp_out_msgs += u64::from(is_sent);
}

fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}
