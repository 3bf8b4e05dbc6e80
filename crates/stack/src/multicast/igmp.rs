//! The host's part of IGMP (RFC 3376 §5): changes are reported at once and once more, queries are
//! answered after a random while, and routers of older versions hear their own words (§7).
//!
//! Queries from anywhere but the link cannot arrive (TTL 1, RFC 3376 §4); a forged one costs one report
//! per group within its response time, and switches to an older version for as long as §8.12 says.

use super::{ALL_SYSTEMS, Filter, Multicast, Place};
use crate::egress::{Egress, Frame, Payload};
use crate::input::Arrival;
use crate::interface::{InterfaceId, Resolution};
use crate::stack::Stack;
use crate::udp::multicast_hardware;
use core::net::{IpAddr, Ipv4Addr};
use tcp::{Duration, Instant};
use wire::ethernet::{self, EtherType};
use wire::igmp::{self, Message, OldReport, Query, RecordKind, Version};
use wire::ipv4::{self, Protocol};

/// RFC 3376 §8.1: a change is said so often.
const ROBUSTNESS: u8 = 2;
/// RFC 3376 §8.11: time between, at most.
const UNSOLICITED: Duration = Duration::from_secs(1);
/// RFC 3376 §8.12 with the default query interval: how long an older querier is remembered.
const OLDER_QUERIER: Duration = Duration::from_secs(260);
/// Where reports of version 3 go (RFC 3376 §4.2.14).
const REPORTS_TO: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// Where a host of version 2 says that it leaves (RFC 2236 §9).
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// Sources of a query that are remembered until it is answered; more: the group as a whole.
const ASKED_MAX: usize = 64;

/// What the interface listens to, and what is still to be said of it.
#[derive(Debug)]
pub(super) struct Reports {
    state: Filter,
    /// News, until it was said [`ROBUSTNESS`] times.
    news: Vec<(RecordKind, Vec<IpAddr>)>,
    news_left: u8,
    news_at: Instant,
    /// When a query is answered.
    answer_at: Instant,
    /// The sources that it asked about; none: the group.
    asked: Vec<IpAddr>,
}

impl Default for Reports {
    fn default() -> Self {
        Self {
            state: Filter::NOBODY,
            news: Vec::new(),
            news_left: 0,
            news_at: Instant::NEVER,
            answer_at: Instant::NEVER,
            asked: Vec::new(),
        }
    }
}

impl Reports {
    /// The interface listens to something else from now on (RFC 3376 §5.1).
    pub(super) fn change(&mut self, state: Filter) {
        let old = core::mem::replace(&mut self.state, state);
        if old == self.state {
            return;
        }
        let switches = |(kind, _): &(RecordKind, Vec<IpAddr>)| {
            matches!(kind, RecordKind::ToInclude | RecordKind::ToExclude)
        };
        if old.excludes != self.state.excludes || self.news.iter().any(switches) {
            let kind = if self.state.excludes {
                RecordKind::ToExclude
            } else {
                RecordKind::ToInclude
            };
            self.news = vec![(kind, self.state.sources.clone())];
        } else {
            let (added, removed) = (self.state.without(&old), old.without(&self.state));
            let (allow, block) = if self.state.excludes {
                (removed, added)
            } else {
                (added, removed)
            };
            self.news = [(RecordKind::Allow, allow), (RecordKind::Block, block)]
                .into_iter()
                .filter(|(_, sources)| !sources.is_empty())
                .collect();
        }
        self.news_left = ROBUSTNESS;
        // At once.
        self.news_at = Instant::ZERO;
    }

    /// When something is to be said next.
    fn due_at(&self) -> Instant {
        self.news_at.min(self.answer_at)
    }

    /// Whether anybody is listened to; what is still to be said of it may outlast that.
    pub(super) fn listens(&self) -> bool {
        self.state != Filter::NOBODY
    }

    fn is_over(&self) -> bool {
        !self.listens() && self.news_left == 0
    }

    /// The answer to a query (RFC 3376 §5.2, for a source list rule 4).
    fn answer(&self) -> (RecordKind, Vec<IpAddr>) {
        if self.asked.is_empty() {
            let kind = if self.state.excludes {
                RecordKind::IsExclude
            } else {
                RecordKind::IsInclude
            };
            return (kind, self.state.sources.clone());
        }
        let takes = |source: &&IpAddr| self.state.takes(**source);
        let sources = self.asked.iter().filter(takes).copied().collect();
        (RecordKind::IsInclude, sources)
    }
}

/// Until when older routers are about on a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Querier {
    v1_until: Instant,
    v2_until: Instant,
}

impl Multicast {
    /// RFC 3376 §7.2.1.
    fn version(&self, now: Instant, interface: InterfaceId) -> Version {
        match self.queriers.get(&interface) {
            Some(querier) if querier.v1_until > now => Version::V1,
            Some(querier) if querier.v2_until > now => Version::V2,
            _ => Version::V3,
        }
    }

    fn heard(&mut self, now: Instant, interface: InterfaceId, version: Version) {
        let querier = self.queriers.entry(interface).or_insert(Querier {
            v1_until: Instant::ZERO,
            v2_until: Instant::ZERO,
        });
        match version {
            Version::V1 => querier.v1_until = now + OLDER_QUERIER,
            Version::V2 => querier.v2_until = now + OLDER_QUERIER,
            Version::V3 => {}
        }
    }
}

impl Stack<'_> {
    /// Takes in an IGMP message that came by the link.
    pub(crate) fn handle_igmp(&mut self, now: Instant, arrival: &Arrival<'_>) {
        self.counters.igmp_in_msgs += 1;
        match Message::parse(arrival.payload) {
            Err(_) => self.counters.igmp_in_errors += 1,
            Ok(Message::Query(query)) => self.handle_query(now, arrival.interface, &query),
            // RFC 3376 §7.2.2: somebody else has answered an older router.
            Ok(Message::Report(group)) => {
                let is_old = self.multicast.version(now, arrival.interface) < Version::V3;
                let place = (arrival.interface, IpAddr::V4(group));
                if let Some(reports) = self.multicast.groups.get_mut(&place)
                    && is_old
                {
                    reports.answer_at = Instant::NEVER;
                }
            }
            Ok(Message::Other(_)) => {}
        }
        self.arm_multicast();
    }

    fn handle_query(&mut self, now: Instant, interface: InterfaceId, query: &Query<'_>) {
        let multicast = &mut self.multicast;
        multicast.heard(now, interface, query.version);
        let window_us = u64::from(query.max_response_ms.max(1)) * 1_000;
        let delay = Duration::from_us(multicast.random(window_us));
        let asked: Vec<IpAddr> = query
            .sources()
            .take(ASKED_MAX + 1)
            .map(IpAddr::V4)
            .collect();
        for ((on, group), reports) in &mut multicast.groups {
            let is_asked = query.group.is_unspecified() || *group == IpAddr::V4(query.group);
            if *on != interface || !is_asked {
                continue;
            }
            // RFC 3376 §5.2: what is pending for the whole group covers a question about sources.
            let was_pending = reports.answer_at != Instant::NEVER;
            if asked.is_empty()
                || asked.len() > ASKED_MAX
                || (was_pending && reports.asked.is_empty())
            {
                reports.asked.clear();
            } else {
                reports.asked.extend(&asked);
                reports.asked.truncate(ASKED_MAX);
            }
            reports.answer_at = reports.answer_at.min(now + delay);
        }
    }

    /// The timer of groups has expired.
    pub(crate) fn handle_multicast_timer(&mut self) {
        self.multicast.is_due = true;
    }

    fn arm_multicast(&mut self) {
        let timer = self.multicast_timer();
        let dues = self.multicast.groups.values().map(Reports::due_at);
        match dues.min().and_then(Instant::if_set) {
            Some(due) => self.wheel.set(timer, due.as_us()),
            None => self.wheel.cancel(timer),
        }
    }

    /// Says what is due.
    pub(crate) fn send_reports(&mut self, now: Instant, egress: &mut dyn Egress) {
        if !core::mem::take(&mut self.multicast.is_due) {
            return;
        }
        let groups = self.multicast.groups.iter();
        let due: Vec<Place> = groups
            .filter(|(_, reports)| reports.due_at() <= now)
            .map(|(place, _)| *place)
            .collect();
        for place in due {
            self.send_report(now, place, egress);
        }
        self.multicast
            .groups
            .retain(|_, reports| !reports.is_over());
        self.arm_multicast();
    }

    /// Says what is due of one group; what the interface does not take is lost, and said again or asked
    /// for again.
    fn send_report(&mut self, now: Instant, place: Place, egress: &mut dyn Egress) {
        let version = self.multicast.version(now, place.0);
        let pause = Duration::from_us(self.multicast.random(UNSOLICITED.as_us()));
        let Some(reports) = self.multicast.groups.get_mut(&place) else {
            return;
        };
        let mut records = Vec::new();
        let mut leaves = false;
        if reports.news_at <= now {
            records.extend(reports.news.iter().cloned());
            leaves = reports.state == Filter::NOBODY;
            reports.news_left = reports.news_left.saturating_sub(1);
            reports.news_at = if reports.news_left == 0 {
                reports.news.clear();
                Instant::NEVER
            } else {
                now + pause
            };
        }
        if reports.answer_at <= now {
            reports.answer_at = Instant::NEVER;
            let answer = reports.answer();
            reports.asked.clear();
            records.push(answer);
        }
        let (interface, IpAddr::V4(group)) = place else {
            return;
        };
        if group == ALL_SYSTEMS || records.is_empty() {
            return;
        }
        match version {
            Version::V3 => {
                for (kind, sources) in records {
                    // RFC 3376 §5.2: nothing to say of the sources that were asked about.
                    if kind == RecordKind::IsInclude && sources.is_empty() {
                        continue;
                    }
                    let sources: Vec<Ipv4Addr> = sources.into_iter().filter_map(v4).collect();
                    let build = |out: &mut [u8]| igmp::emit_report(kind, group, &sources, out);
                    self.send_igmp(interface, REPORTS_TO, egress, build);
                }
            }
            // RFC 3376 §7.2.1, RFC 2236 §3: a host of version 1 leaves silently.
            Version::V1 if leaves => {}
            Version::V2 if leaves => {
                let build = |out: &mut [u8]| igmp::emit_old_report(OldReport::Leave, group, out);
                self.send_igmp(interface, ALL_ROUTERS, egress, build);
            }
            Version::V1 | Version::V2 => {
                let kind = match version {
                    Version::V1 => OldReport::V1,
                    _ => OldReport::V2,
                };
                let build = |out: &mut [u8]| igmp::emit_old_report(kind, group, out);
                self.send_igmp(interface, group, egress, build);
            }
        }
    }

    fn send_igmp(
        &mut self,
        id: InterfaceId,
        destination: Ipv4Addr,
        egress: &mut dyn Egress,
        build: impl FnOnce(&mut [u8]) -> usize,
    ) {
        const IP_START: usize = ethernet::Header::LEN;
        const START: usize = IP_START + ipv4::Header::ROUTER_ALERT_LEN;
        let Some(interface) = self.interfaces.find(id) else {
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
            destination: multicast_hardware(destination.into()),
            source: interface.config.hardware,
            ethertype: EtherType::IPV4,
        };
        let packet = self.scratch.bytes();
        let len = build(&mut packet[START..]);
        // RFC 3376 §4: TTL 1, internetwork control, router alert.
        let ip = ipv4::Header {
            source: source.unwrap_or(Ipv4Addr::UNSPECIFIED),
            destination,
            protocol: Protocol::IGMP,
            ttl: 1,
            dscp_ecn: 0xc0,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            total_len: 0,
            header_len: ipv4::Header::ROUTER_ALERT_LEN,
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
            self.counters.ip_out_requests += 1;
            self.counters.igmp_out_msgs += 1;
        }
    }
}

fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}
