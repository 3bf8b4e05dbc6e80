//! What an interface listens to, and when routers hear of it (RFC 3376 §5, RFC 3810 §6): changes are said at
//! once and once more, queries are answered after a random while, and routers of older versions hear their
//! own words (RFC 3376 §7, RFC 3810 §8). One machine for both families; the words are in `igmp` and `mld`.
//!
//! Queries come from the link only, the two readers see to that; a forged one costs one report per group
//! within its response time, and switches to an older version for as long as RFC 3376 §8.12 says.

use super::{Filter, GroupKey, Multicast, igmp, mld};
use crate::containers::timers::{Timer, Timers};
use crate::egress::Egress;
use crate::link::Link;
use crate::link::interface::InterfaceId;
use core::net::IpAddr;
use tcp::{Duration, Instant};
use wire::igmp::{RecordKind, Version};

/// RFC 3376 §8.1, RFC 3810 §9.1: a change is said so often.
const ROBUSTNESS: u8 = 2;
/// RFC 3376 §8.11, RFC 3810 §9.11: time between, at most.
const UNSOLICITED: Duration = Duration::from_secs(1);
/// RFC 3376 §8.12, RFC 3810 §9.12 with the default query interval: how long an older querier is remembered.
const OLDER_QUERIER: Duration = Duration::from_secs(260);
/// Sources of a query that are remembered until it is answered; more: the group as a whole.
pub(super) const ASKED_MAX: usize = 64;

/// What a router asks, of either family. MLDv1 corresponds to IGMPv2, MLDv2 to IGMPv3.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) version: Version,
    /// About which group; unspecified: all of them.
    pub(super) group: IpAddr,
    pub(super) max_response_ms: u32,
    /// At most one more than [`ASKED_MAX`].
    pub(super) sources: Vec<IpAddr>,
}

/// What has come by the link.
#[derive(Clone, Debug)]
pub(super) enum Heard {
    /// A router asks.
    Query(Question),
    /// Another host has said in an older version's words that it is in a group.
    Report(IpAddr),
}

/// What is to be said of a group now.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) version: Version,
    pub(super) records: Vec<(RecordKind, Vec<IpAddr>)>,
    /// Nobody here listens any more.
    pub(super) leaves: bool,
}

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
            self.news = vec![self.whole(RecordKind::ToInclude, RecordKind::ToExclude)];
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

    /// Says once more what the interface listens to: it has an address to say it from now.
    fn repeat(&mut self) {
        if self.news_left == 0 && self.listens() {
            self.news = vec![self.whole(RecordKind::ToInclude, RecordKind::ToExclude)];
            self.news_left = 1;
            self.news_at = Instant::ZERO;
        }
    }

    /// Everything that is listened to as a record of one of these kinds.
    fn whole(&self, include: RecordKind, exclude: RecordKind) -> (RecordKind, Vec<IpAddr>) {
        let kind = if self.state.excludes {
            exclude
        } else {
            include
        };
        (kind, self.state.sources.clone())
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

    /// What is due now; `pause`: until it is said again.
    fn take_due(&mut self, now: Instant, pause: Duration, version: Version) -> Statement {
        let mut statement = Statement {
            version,
            records: Vec::new(),
            leaves: false,
        };
        if self.news_at <= now {
            statement.records.extend(self.news.iter().cloned());
            statement.leaves = !self.listens();
            self.news_left = self.news_left.saturating_sub(1);
            self.news_at = if self.news_left == 0 {
                self.news.clear();
                Instant::NEVER
            } else {
                now + pause
            };
        }
        if self.answer_at <= now {
            self.answer_at = Instant::NEVER;
            statement.records.push(self.answer());
            self.asked.clear();
        }
        // RFC 3376 §5.2, RFC 3810 §6.3: nothing to say of the sources that were asked about.
        let is_empty = |(kind, sources): &(RecordKind, Vec<IpAddr>)| {
            *kind == RecordKind::IsInclude && sources.is_empty()
        };
        statement.records.retain(|record| !is_empty(record));
        statement
    }

    /// The answer to a query (RFC 3376 §5.2, for a source list rule 4).
    fn answer(&self) -> (RecordKind, Vec<IpAddr>) {
        if self.asked.is_empty() {
            return self.whole(RecordKind::IsInclude, RecordKind::IsExclude);
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
    /// RFC 3376 §7.2.1, RFC 3810 §8.2.1.
    pub(super) fn version(&self, now: Instant, interface: InterfaceId, is_v6: bool) -> Version {
        match self.queriers.get(&(interface, is_v6)) {
            Some(querier) if querier.v1_until > now => Version::V1,
            Some(querier) if querier.v2_until > now => Version::V2,
            _ => Version::V3,
        }
    }

    fn heard(&mut self, now: Instant, place: (InterfaceId, bool), version: Version) {
        let querier = self.queriers.entry(place).or_insert(Querier {
            v1_until: Instant::ZERO,
            v2_until: Instant::ZERO,
        });
        match version {
            Version::V1 => querier.v1_until = now + OLDER_QUERIER,
            Version::V2 => querier.v2_until = now + OLDER_QUERIER,
            Version::V3 => {}
        }
    }

    /// Takes in what has come by an interface.
    pub(super) fn handle_heard(
        &mut self,
        now: Instant,
        timers: &mut Timers,
        interface: InterfaceId,
        heard: &Heard,
    ) {
        match heard {
            Heard::Query(query) => self.handle_query(now, timers, interface, query),
            Heard::Report(group) => self.handle_foreign_report(now, timers, (interface, *group)),
        }
    }

    /// Where another host is in a group this one need not say so (RFC 2236 §3, RFC 3376 §7.2.2, RFC 3810 §8.2.2).
    fn handle_foreign_report(&mut self, now: Instant, timers: &mut Timers, place: GroupKey) {
        let version = self.version(now, place.0, place.1.is_ipv6());
        if let Some(reports) = self.groups.get_mut(&place)
            && version < Version::V3
        {
            reports.answer_at = Instant::NEVER;
        }
        self.arm(timers);
    }

    fn handle_query(
        &mut self,
        now: Instant,
        timers: &mut Timers,
        interface: InterfaceId,
        query: &Question,
    ) {
        let is_v6 = query.group.is_ipv6();
        self.heard(now, (interface, is_v6), query.version);
        let window_us = u64::from(query.max_response_ms.max(1)) * 1_000;
        let delay = Duration::from_us(self.random(window_us));
        let asked = &query.sources;
        for ((on, group), reports) in &mut self.groups {
            let is_asked =
                group.is_ipv6() == is_v6 && (query.group.is_unspecified() || *group == query.group);
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
                reports.asked.extend(asked);
                reports.asked.truncate(ASKED_MAX);
            }
            reports.answer_at = reports.answer_at.min(now + delay);
        }
        self.arm(timers);
    }

    /// An interface has a valid link-local address now: what was said without one is said again
    /// (RFC 3810 §5.2.13).
    pub(crate) fn repeat_reports(&mut self, interface: InterfaceId) {
        for ((on, group), reports) in &mut self.groups {
            if *on == interface && group.is_ipv6() {
                reports.repeat();
            }
        }
        self.is_due = true;
    }

    /// The timer of groups has expired.
    pub(crate) fn handle_timer(&mut self) {
        self.is_due = true;
    }

    fn arm(&self, timers: &mut Timers) {
        let dues = self.groups.values().map(Reports::due_at);
        let due = dues.min().and_then(Instant::if_set);
        timers.set(Timer::Multicast, due);
    }

    /// Says what is due.
    pub(crate) fn send_reports(&mut self, now: Instant, link: &mut Link, egress: &mut dyn Egress) {
        if !core::mem::take(&mut self.is_due) {
            return;
        }
        let groups = self.groups.iter();
        let due: Vec<GroupKey> = groups
            .filter(|(_, reports)| reports.due_at() <= now)
            .map(|(place, _)| *place)
            .collect();
        for place in due {
            self.send_report(now, place, link, egress);
        }
        self.groups.retain(|_, reports| !reports.is_over());
        self.arm(&mut link.timers);
    }

    /// Says what is due of one group; what the interface does not take is lost, and said again or asked
    /// for again.
    fn send_report(
        &mut self,
        now: Instant,
        place: GroupKey,
        link: &mut Link,
        egress: &mut dyn Egress,
    ) {
        let (interface, group) = place;
        let version = self.version(now, interface, group.is_ipv6());
        let pause = Duration::from_us(self.random(UNSOLICITED.as_us()));
        let Some(reports) = self.groups.get_mut(&place) else {
            return;
        };
        let statement = reports.take_due(now, pause, version);
        if statement.records.is_empty() {
            return;
        }
        match group {
            IpAddr::V4(group) => igmp::say(link, interface, group, statement, egress),
            IpAddr::V6(group) => mld::say(link, interface, group, &statement, egress),
        }
    }
}
