//! The words of IPv6 (RFC 3810, RFC 2710 for the older version). When they are said is decided in `reports`.

use super::Multicast;
use super::reports::{ASKED_MAX, Heard, Question, Statement};
use crate::egress::Egress;
use crate::ip::arrival::Arrival;
use crate::link::Link;
use crate::link::interface::InterfaceId;
use core::net::{IpAddr, Ipv6Addr};
use tcp::Instant;
use wire::igmp::Version;
use wire::ipv4::Protocol;
use wire::ipv6;
use wire::mld::{self, Message};

/// Where reports of version 2 go (RFC 3810 §5.2.14).
const REPORTS_TO: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Where a host of version 1 says that it leaves (RFC 2710 §4).
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Everybody on a link: joined without asking, never reported (RFC 3810 §6).
pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// RFC 2711 §2.1: a router alert for MLD, and padding to eight bytes, behind the next header.
const ROUTER_ALERT: [u8; 8] = [Protocol::ICMPV6.0, 0, 5, 2, 0, 0, 1, 0];

impl Multicast {
    /// Takes in a message that came by the link (RFC 3810 §5.1.14, §6.2): from a link-local address, with a
    /// hop limit of 1 and a router alert. Others are forged or strayed.
    pub(crate) fn handle_mld(
        &mut self,
        now: Instant,
        link: &mut Link,
        arrival: &Arrival<'_>,
        kind: u8,
        body: &[u8],
    ) {
        link.counters.mld_in_msgs += 1;
        let is_near =
            matches!(arrival.source, IpAddr::V6(source) if source.is_unicast_link_local());
        if !is_near || arrival.hop_limit != 1 || !arrival.router_alert {
            link.counters.mld_in_errors += 1;
            return;
        }
        let heard = match Message::parse(kind, body) {
            Err(_) => {
                link.counters.mld_in_errors += 1;
                return;
            }
            Ok(Message::Query(query)) => {
                let sources = query.sources().take(ASKED_MAX + 1);
                Heard::Query(Question {
                    version: query.version,
                    group: query.group.into(),
                    max_response_ms: query.max_response_ms,
                    sources: sources.map(IpAddr::V6).collect(),
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
    group: Ipv6Addr,
    statement: &Statement,
    egress: &mut dyn Egress,
) {
    // RFC 3810 §6: nor of groups within the node.
    let is_within_node = group.octets()[1] & 0xf <= 1;
    if group == ALL_NODES || is_within_node {
        return;
    }
    if statement.version < Version::V3 {
        let leaves = statement.leaves;
        let destination = if leaves { ALL_ROUTERS } else { group };
        send(link, interface, destination, egress, |ends, out| {
            mld::emit_old_report(ends, leaves, group, out)
        });
        return;
    }
    for (kind, sources) in &statement.records {
        let sources: Vec<Ipv6Addr> = sources.iter().copied().filter_map(v6).collect();
        send(link, interface, REPORTS_TO, egress, |ends, out| {
            mld::emit_report(ends, *kind, group, &sources, out)
        });
    }
}

fn send(
    link: &mut Link,
    id: InterfaceId,
    destination: Ipv6Addr,
    egress: &mut dyn Egress,
    build: impl FnOnce((Ipv6Addr, Ipv6Addr), &mut [u8]) -> usize,
) {
    const START: usize = ipv6::Header::LEN + ROUTER_ALERT.len();
    let is_sent = link.send_to_group(id, destination.into(), egress, |interface, packet| {
        // RFC 3810 §5.2.13: a valid link-local address, or none.
        let source = interface.valid_link_local();
        let source = source.unwrap_or(Ipv6Addr::UNSPECIFIED);
        let len = build((source, destination), &mut packet[START..]);
        packet[ipv6::Header::LEN..START].copy_from_slice(&ROUTER_ALERT);
        // RFC 3810 §5: a hop limit of 1.
        let ip = ipv6::Header {
            source,
            destination,
            next_header: Protocol::HOP_BY_HOP,
            hop_limit: 1,
            traffic_class: 0,
            flow_label: 0,
        };
        ip.emit(ROUTER_ALERT.len() + len, packet);
        START + len
    });
    link.counters.mld_out_msgs += u64::from(is_sent);
}

fn v6(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(address),
    }
}
