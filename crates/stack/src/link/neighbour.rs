//! The neighbour cache: hardware addresses of hosts on the link (RFC 1122 §2.3.2.1; states named as
//! in RFC 4861 §7.3.2, timing as Linux's).
//!
//! What a stranger can do to it is bounded: entries learned from requests of others live in a share
//! of their own and replace each other; unanswered ones likewise; an entry that somebody here uses
//! and that was confirmed is replaced only after it was idle for [`IDLE`]. Packets do not wait here:
//! connections do, and send when they are woken. This file sends nothing; `arp.rs` and `ndp.rs` do.

use crate::containers::demux::{Demux, FourTuple};
use crate::containers::intrusive::{Links, ListHead, at, slot};
use crate::link::interface::InterfaceId;
use core::net::{IpAddr, Ipv6Addr};
use tcp::{Duration, Instant};
use wire::ethernet;

/// How long a confirmation holds (RFC 4861 §10, REACHABLE_TIME; Linux's `base_reachable_time`).
const REACHABLE: Duration = Duration::from_secs(30);
/// How long an old entry is used before it is asked again (`delay_first_probe_time`).
const DELAY: Duration = Duration::from_secs(5);
/// Time between probes (`retrans_time`).
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Probes without an answer before a neighbour counts as unreachable (`mcast_solicit`, `ucast_solicit`).
const PROBES_MAX: u8 = 3;
/// A changed hardware address is believed at most this often (`locktime`).
const LOCK: Duration = Duration::from_secs(1);
/// Unused this long, a confirmed entry may be replaced (`gc_stale_time`).
const IDLE: Duration = Duration::from_secs(60);
/// Entries that one search for a free row looks at.
const CLOCK_STEPS: usize = 32;

/// What is known about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NeighbourState {
    /// Asked, no answer yet.
    Incomplete,
    /// Confirmed within the last 30 seconds.
    Reachable,
    /// Known, not confirmed lately; asked again when it is used.
    Stale,
    /// Old and in use: about to be asked.
    Delay,
    /// Old and asked.
    Probe,
    /// Did not answer.
    Failed,
    /// Set by the host.
    Permanent,
}

/// What the host has heard of a neighbour that it asks itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalNeighbour {
    /// It has this hardware address.
    At(ethernet::Address),
    /// It does not answer.
    Silent,
    /// Nothing is known of it any more: it is asked anew when it is needed.
    Forgotten,
}

/// One row of the cache, for listings.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour {
    /// The link.
    pub interface: InterfaceId,
    /// The neighbour's IP address.
    pub address: IpAddr,
    /// Its hardware address, where known.
    pub hardware: Option<ethernet::Address>,
    /// What is known.
    pub state: NeighbourState,
    /// When somebody here last sent to it.
    pub used_at: Instant,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) interface: InterfaceId,
    pub(crate) address: IpAddr,
    pub(crate) hardware: ethernet::Address,
    pub(crate) state: NeighbourState,
    /// Connections that wait for the answer.
    pub(crate) waiters: ListHead,
    /// Changes when the row is given to somebody else; 0: the row is free.
    pub(crate) generation: u32,
    /// Nobody here has sent to it.
    learned: bool,
    probes: u8,
    confirmed_at: Instant,
    changed_at: Instant,
    used_at: Instant,
    deadline: Instant,
}

/// A question to put on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) interface: InterfaceId,
    pub(crate) address: IpAddr,
    /// Whom to ask; `None`: everybody.
    pub(crate) hardware: Option<ethernet::Address>,
}

/// Whether something can be sent to a neighbour now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready(ethernet::Address),
    /// Wait; ask if there is a probe.
    Waiting(Option<Probe>),
}

/// What a timer of an entry leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    Nothing,
    Ask(Probe),
    /// Nobody answered: tell those who wait.
    Unreachable,
}

#[derive(Debug)]
pub(crate) struct Neighbours {
    entries: Vec<Entry>,
    capacity: usize,
    index: Demux,
    free: Vec<u32>,
    /// An entry is in at most one of the two lists, the oldest first.
    links: Links,
    learned: ListHead,
    incomplete: ListHead,
    hand: usize,
}

impl Neighbours {
    /// A cache of at most `capacity` entries, found by a hash keyed with `key`.
    pub(crate) fn new(capacity: usize, key: &[u8; 16]) -> Self {
        Self {
            entries: Vec::with_capacity(capacity),
            capacity,
            index: Demux::new(capacity, key),
            free: Vec::with_capacity(capacity),
            links: Links::new(capacity),
            learned: ListHead::default(),
            incomplete: ListHead::default(),
            hand: 0,
        }
    }

    pub(crate) fn entry(&self, n: u32) -> &Entry {
        &self.entries[at(n)]
    }

    pub(crate) fn entry_mut(&mut self, n: u32) -> &mut Entry {
        &mut self.entries[at(n)]
    }

    /// Which neighbour entry `n` is of.
    pub(crate) fn place(&self, n: u32) -> (InterfaceId, IpAddr) {
        let entry = self.entry(n);
        (entry.interface, entry.address)
    }

    pub(crate) fn find(&mut self, interface: InterfaceId, address: IpAddr) -> Option<u32> {
        self.index.find(&key(interface, address))
    }

    /// When entry `n` must be looked at.
    pub(crate) fn deadline(&self, n: u32) -> Option<Instant> {
        self.entry(n).deadline.if_set()
    }

    /// The entry of a neighbour that somebody here wants to send to; `None` when the cache is full of
    /// entries in use.
    pub(crate) fn want(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        address: IpAddr,
    ) -> Option<u32> {
        if let Some(n) = self.find(interface, address) {
            if core::mem::take(&mut self.entry_mut(n).learned) {
                self.links.remove(&mut self.learned, n);
            }
            return Some(n);
        }
        let n = self.make_space(now)?;
        self.occupy(n, now, interface, address, NeighbourState::Failed);
        Some(n)
    }

    /// Whether a packet may go to entry `n` now; starts resolution or confirmation where needed.
    pub(crate) fn ready(&mut self, now: Instant, n: u32) -> Readiness {
        use NeighbourState as S;
        let entry = &mut self.entries[at(n)];
        entry.used_at = now;
        match entry.state {
            S::Reachable if now.since(entry.confirmed_at) > REACHABLE => entry.delay(now),
            S::Stale => entry.delay(now),
            S::Incomplete => return Readiness::Waiting(None),
            S::Failed => {
                let probe = entry.ask_everybody(now);
                self.links.push_back(&mut self.incomplete, n);
                return Readiness::Waiting(Some(probe));
            }
            S::Reachable | S::Delay | S::Probe | S::Permanent => {}
        }
        Readiness::Ready(entry.hardware)
    }

    /// The neighbour answered on a higher layer (RFC 4861 §7.3.1): its entry is good. Whether a deadline has gone.
    #[inline]
    pub(crate) fn confirm(&mut self, now: Instant, n: u32) -> bool {
        use NeighbourState as S;
        let entry = &mut self.entries[at(n)];
        if !matches!(entry.state, S::Reachable | S::Stale | S::Delay | S::Probe) {
            return false;
        }
        entry.state = S::Reachable;
        entry.confirmed_at = now;
        core::mem::replace(&mut entry.deadline, Instant::NEVER).is_set()
    }

    /// The link says that `hardware` has `address`. `solicited`: it answers our question.
    pub(crate) fn heard(
        &mut self,
        now: Instant,
        n: u32,
        hardware: ethernet::Address,
        solicited: bool,
    ) {
        use NeighbourState as S;
        let entry = &mut self.entries[at(n)];
        let asked = matches!(entry.state, S::Incomplete | S::Probe);
        if entry.state == S::Permanent {
            return;
        }
        if entry.hardware != hardware && !matches!(entry.state, S::Incomplete | S::Failed) {
            // Two hosts that claim one address must not make it flap (`locktime`).
            if now.since(entry.changed_at) < LOCK {
                return;
            }
            entry.changed_at = now;
        }
        let state = match (solicited && asked, entry.hardware == hardware, entry.state) {
            (true, _, _) => S::Reachable,
            (false, true, S::Reachable) => return,
            _ => S::Stale,
        };
        let was_incomplete = entry.state == S::Incomplete;
        entry.hardware = hardware;
        entry.changed_at = if was_incomplete {
            now
        } else {
            entry.changed_at
        };
        entry.state = state;
        entry.deadline = Instant::NEVER;
        if state == S::Reachable {
            entry.confirmed_at = now;
        }
        if was_incomplete {
            self.links.remove(&mut self.incomplete, n);
        }
    }

    /// Remembers a host that asked for us (RFC 826 "merge"): it will get packets next. Never costs an
    /// entry that anybody here uses.
    pub(crate) fn learn(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        address: IpAddr,
    ) -> Option<u32> {
        let share = self.capacity / 4;
        let unused = self.free.pop().or_else(|| {
            let grown = self.entries.len() < self.capacity && at(self.learned.len()) < share;
            grown.then(|| self.grow())
        });
        let n = match unused {
            Some(n) if at(self.learned.len()) < share => n,
            Some(n) => {
                self.free.push(n);
                self.oldest_learned()?
            }
            None => self.oldest_learned()?,
        };
        // Nothing is known of it before the caller says what was heard: an entry that counts as known
        // would hold its (empty) hardware address for the time of the lock.
        self.occupy(n, now, interface, address, NeighbourState::Failed);
        self.entry_mut(n).learned = true;
        self.links.push_back(&mut self.learned, n);
        Some(n)
    }

    /// Sets what the host says; no timer ever changes it.
    pub(crate) fn set_permanent(&mut self, n: u32, hardware: ethernet::Address) {
        if self.entry(n).state == NeighbourState::Incomplete {
            self.links.remove(&mut self.incomplete, n);
        }
        let entry = self.entry_mut(n);
        entry.state = NeighbourState::Permanent;
        entry.hardware = hardware;
        entry.deadline = Instant::NEVER;
    }

    /// The host says that there is no such neighbour.
    pub(crate) fn set_failed(&mut self, n: u32) {
        if self.entry(n).state == NeighbourState::Incomplete {
            self.links.remove(&mut self.incomplete, n);
        }
        let entry = self.entry_mut(n);
        entry.state = NeighbourState::Failed;
        entry.deadline = Instant::NEVER;
    }

    /// The deadline of entry `n` may have passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant, n: u32) -> Expiry {
        use NeighbourState as S;
        let entry = &mut self.entries[at(n)];
        if entry.deadline > now {
            return Expiry::Nothing;
        }
        entry.deadline = Instant::NEVER;
        match entry.state {
            S::Delay => {
                entry.state = S::Probe;
                entry.probes = 0;
            }
            S::Incomplete | S::Probe => {}
            S::Reachable | S::Stale | S::Failed | S::Permanent => return Expiry::Nothing,
        }
        if entry.probes >= PROBES_MAX {
            self.set_failed(n);
            return Expiry::Unreachable;
        }
        entry.probes += 1;
        entry.deadline = now + PROBE_INTERVAL;
        let hardware = (entry.state == S::Probe).then_some(entry.hardware);
        Expiry::Ask(Probe {
            interface: entry.interface,
            address: entry.address,
            hardware,
        })
    }

    /// The oldest unanswered entry, when unanswered ones hold more than their share: it must fail.
    pub(crate) fn excess_incomplete(&self) -> Option<u32> {
        let share = (self.capacity / 4).max(1);
        self.incomplete
            .first()
            .filter(|_| at(self.incomplete.len()) > share)
    }

    /// Everything in the cache.
    pub(crate) fn iter(&self, now: Instant) -> impl Iterator<Item = Neighbour> {
        let used = self
            .entries
            .iter()
            .filter(|entry| entry.generation % 2 == 1);
        used.map(move |entry| Neighbour {
            interface: entry.interface,
            address: entry.address,
            hardware: (!matches!(
                entry.state,
                NeighbourState::Incomplete | NeighbourState::Failed
            ))
            .then_some(entry.hardware),
            state: match entry.state {
                NeighbourState::Reachable if now.since(entry.confirmed_at) > REACHABLE => {
                    NeighbourState::Stale
                }
                state => state,
            },
            used_at: entry.used_at,
        })
    }

    fn grow(&mut self) -> u32 {
        self.entries.push(Entry::FREE);
        slot(self.entries.len() - 1)
    }

    fn oldest_learned(&mut self) -> Option<u32> {
        let n = self.links.pop_front(&mut self.learned)?;
        self.vacate(n);
        Some(n)
    }

    /// A free row: unused, learned, or the first that a clock hand finds idle (second chance, bounded).
    fn make_space(&mut self, now: Instant) -> Option<u32> {
        if let Some(n) = self.free.pop() {
            return Some(n);
        }
        if self.entries.len() < self.capacity {
            return Some(self.grow());
        }
        if let Some(n) = self.oldest_learned() {
            return Some(n);
        }
        for _ in 0..CLOCK_STEPS.min(self.entries.len()) {
            self.hand = (self.hand + 1) % self.entries.len();
            let entry = &self.entries[self.hand];
            let idle = now.since(entry.used_at) > IDLE;
            let evictable = match entry.state {
                NeighbourState::Failed => true,
                NeighbourState::Reachable | NeighbourState::Stale => idle,
                _ => false,
            };
            if evictable && entry.waiters.len() == 0 {
                self.vacate(slot(self.hand));
                return Some(slot(self.hand));
            }
        }
        None
    }

    /// Frees a row that is in no list and for which nobody waits.
    fn vacate(&mut self, n: u32) {
        self.index.remove(n);
        self.entry_mut(n).generation += 1;
    }

    fn occupy(
        &mut self,
        n: u32,
        now: Instant,
        interface: InterfaceId,
        address: IpAddr,
        state: NeighbourState,
    ) {
        self.index.insert(&key(interface, address), n);
        let generation = self.entry(n).generation.wrapping_add(1);
        let (confirmed_at, used_at, changed_at) = (Instant::ZERO, now, Instant::ZERO);
        *self.entry_mut(n) = Entry {
            interface,
            address,
            state,
            generation,
            confirmed_at,
            used_at,
            changed_at,
            ..Entry::FREE
        };
    }
}

impl Entry {
    /// An even generation marks a free row.
    const FREE: Self = Self {
        interface: InterfaceId(0),
        address: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        hardware: ethernet::Address([0; 6]),
        state: NeighbourState::Failed,
        waiters: ListHead::EMPTY,
        generation: 0,
        learned: false,
        probes: 0,
        confirmed_at: Instant::ZERO,
        changed_at: Instant::ZERO,
        used_at: Instant::ZERO,
        deadline: Instant::NEVER,
    };

    fn delay(&mut self, now: Instant) {
        self.state = NeighbourState::Delay;
        self.deadline = now + DELAY;
    }

    fn ask_everybody(&mut self, now: Instant) -> Probe {
        self.state = NeighbourState::Incomplete;
        self.probes = 1;
        self.deadline = now + PROBE_INTERVAL;
        Probe {
            interface: self.interface,
            address: self.address,
            hardware: None,
        }
    }
}

fn key(interface: InterfaceId, address: IpAddr) -> FourTuple {
    FourTuple::new(address, interface.0, IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0)
}

mod advertised;
mod known;
#[cfg(test)]
mod tests;
