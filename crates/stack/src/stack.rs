//! The stack as a value: what it holds, how it starts, its interfaces and routes, its clock.
//!
//! Everything beside [`Tables`] is derived from them or from what the host configures; `rebuild.rs`
//! does that after a restart.

use crate::arp::Question;
use crate::config::Config;
use crate::counters::Counters;
use crate::demux::{Demux, FourTuple};
use crate::egress::{Egress, Host};
use crate::error::Error;
use crate::fast_open::{Peers, Pending};
use crate::interface::{InterfaceAddress, InterfaceConfig, InterfaceId, Interfaces};
use crate::intrusive::{Links, ListHead, TurnQueue, at, slot, zeroed};
use crate::listener::ends;
use crate::listening::Listening;
use crate::multicast::Multicast;
use crate::neighbour::{ExternalNeighbour, Neighbour, NeighbourState, Neighbours};
use crate::output::Scratch;
use crate::path::Path;
use crate::ports::Ports;
use crate::protocols::Protocols;
use crate::rate::TokenBucket;
use crate::reassembly::Reassembly;
use crate::route::{Route, Routes};
use crate::tables::{ConnectionRecord, Row as _, Tables};
use crate::transmit::Refused;
use crate::udp::Udp;
use crate::wheel::Wheel;
use core::net::{IpAddr, SocketAddr};
use siphasher::sip::SipHasher13;
use std::collections::VecDeque;
use tcp::Instant;
use wire::ethernet;

/// Timers handled in one [`Stack::handle_timeouts`], so that a crowd of them does not hold up packets.
const TIMEOUTS_MAX: usize = 512;
/// Questions that wait to be sent at most; the timers repeat what is dropped.
pub(crate) const QUESTIONS_MAX: usize = 256;

/// What listeners need beside their rows: the queues through their connections.
#[derive(Clone, Copy, Debug, Default, zerocopy::FromZeros)]
pub(crate) struct ListenerQueues {
    pub(crate) half_open: ListHead,
    pub(crate) ready: ListHead,
    pub(crate) fast_open: Pending,
}

/// Steps of the loops that could grow with the number of connections; tests bound them per packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Rows of the connection table looked at.
    pub demux_steps: u64,
    /// Timers looked at or moved.
    pub timer_steps: u64,
    /// Turns given to connections that want to send.
    pub transmit_turns: u64,
}

/// A TCP/IP stack over the caller's tables.
#[derive(Debug)]
pub struct Stack<'m> {
    pub(crate) tables: Tables<'m>,
    pub(crate) config: Config,
    /// No connection's offered window grows above it.
    pub(crate) window_ceiling: u32,
    pub(crate) counters: Counters,
    pub(crate) interfaces: Interfaces,
    pub(crate) routes: Routes,
    pub(crate) neighbours: Neighbours,
    pub(crate) ports: Ports,
    pub(crate) icmp_bucket: TokenBucket,
    pub(crate) questions: VecDeque<Question>,
    /// Both ends of what has ended since somebody asked.
    pub(crate) ended: Vec<FourTuple>,
    pub(crate) udp: Udp,
    pub(crate) multicast: Multicast,
    pub(crate) scratch: Scratch,
    pub(crate) reassembly: Reassembly,
    /// Where a packet whose fragments are all there is put together.
    pub(crate) assembled: Vec<u8>,
    /// Senders of fragments wait to be told that the rest never came.
    pub(crate) has_late_fragments: bool,
    pub(crate) flow_hasher: SipHasher13,
    pub(crate) identifier_hasher: SipHasher13,
    pub(crate) fast_open_peers: Peers,

    pub(crate) demux: Demux,
    pub(crate) wheel: Wheel,
    pub(crate) senders: TurnQueue,
    pub(crate) refused: Option<Refused>,
    pub(crate) transmit_turns: u64,
    /// Per connection: where its packets go.
    pub(crate) paths: Vec<Path>,
    pub(crate) free_connections: Vec<u32>,
    pub(crate) free_range_blocks: Vec<u32>,
    pub(crate) free_flight_blocks: Vec<u32>,
    pub(crate) orphans: u32,
    /// Connections to be told of their failure by the next [`Stack::handle_timeouts`].
    pub(crate) failed: TurnQueue,

    /// First listener on each port: row + 1, 0 for none.
    pub(crate) listening: Listening,
    pub(crate) listener_queues: Vec<ListenerQueues>,
    pub(crate) listener_links: Links,
    pub(crate) free_listeners: Vec<u32>,
    /// Connections that wait for a neighbour.
    pub(crate) waiter_links: Links,

    pub(crate) free_time_waits: Vec<u32>,
    /// TIME-WAIT records, the oldest first.
    pub(crate) time_wait_order: ListHead,
    pub(crate) time_wait_links: Links,
}

impl<'m> Stack<'m> {
    /// A stack over `tables`; rows that were used before are taken over by [`Stack::rebuild`] only.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: the tables are too large, or not fresh.
    pub fn new(tables: Tables<'m>, config: Config) -> Result<Self, Error> {
        if tables.header.version != 0 {
            return Err(Error::InvalidArgument);
        }
        tables.header.version = crate::tables::TABLES_VERSION;
        Self::assemble(tables, config)
    }

    /// A stack with empty derived indexes.
    pub(crate) fn assemble(tables: Tables<'m>, config: Config) -> Result<Self, Error> {
        tables.check()?;
        let (connections, listeners) = (tables.connections.len(), tables.listeners.len());
        let time_waits = tables.time_waits.len();
        let timers = connections + time_waits + config.neighbours_max + 3;
        let (first, last) = config.ephemeral_ports;
        Ok(Self {
            config,
            window_ceiling: u32::MAX,
            counters: Counters::default(),
            interfaces: Interfaces::default(),
            routes: Routes::new(),
            neighbours: Neighbours::new(config.neighbours_max, &subkey(&config, b"neighbours")),
            ports: Ports::new(&subkey(&config, b"ports"), first, last),
            icmp_bucket: TokenBucket::new(
                config.icmp_errors_per_second,
                config.icmp_errors_burst,
                &subkey(&config, b"icmp"),
            ),
            questions: VecDeque::with_capacity(QUESTIONS_MAX),
            ended: Vec::new(),
            udp: Udp::new(tables.udp.len(), &config),
            multicast: Multicast::new(&subkey(&config, b"multicast")),
            scratch: Scratch::new(),
            reassembly: Reassembly::new(&config),
            assembled: crate::fragments::buffer(),
            has_late_fragments: false,
            flow_hasher: SipHasher13::new_with_key(&subkey(&config, b"flow labels")),
            identifier_hasher: SipHasher13::new_with_key(&subkey(&config, b"identifiers")),
            fast_open_peers: Peers::new(
                config.fast_open_peers,
                &subkey(&config, b"fast open peers"),
            ),
            demux: Demux::new(connections + time_waits, &subkey(&config, b"demux")),
            wheel: Wheel::new(timers),
            senders: TurnQueue::new(connections),
            refused: None,
            transmit_turns: 0,
            paths: zeroed(connections),
            free_connections: Vec::with_capacity(connections),
            free_range_blocks: Vec::with_capacity(tables.range_blocks.len()),
            free_flight_blocks: Vec::with_capacity(tables.flight_blocks.len()),
            orphans: 0,
            failed: TurnQueue::new(connections),
            listening: Listening::new(&config.secret),
            listener_queues: zeroed(listeners),
            listener_links: Links::new(connections),
            free_listeners: Vec::with_capacity(listeners),
            waiter_links: Links::new(connections),
            free_time_waits: Vec::with_capacity(time_waits),
            time_wait_order: ListHead::default(),
            time_wait_links: Links::new(time_waits),
            tables,
        })
    }

    /// Adds an interface; it has no address yet.
    ///
    /// # Errors
    /// [`Error::NoMemory`] beyond [`crate::interface::INTERFACES_MAX`]; [`Error::InvalidArgument`] for
    /// an MTU below 576 (RFC 791 §3.1).
    pub fn add_interface(&mut self, config: InterfaceConfig) -> Result<InterfaceId, Error> {
        if config.mtu < 576 {
            return Err(Error::InvalidArgument);
        }
        self.routes.touch();
        let id = self.interfaces.add(config)?;
        if config.router_discovery && self.config.protocols.contains(Protocols::IPV6) {
            self.ensure_link_local(Instant::ZERO, id)?;
        }
        Ok(id)
    }

    /// Changes the MTU of an interface.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::InvalidArgument`].
    pub fn set_mtu(&mut self, interface: InterfaceId, mtu: u16) -> Result<(), Error> {
        if mtu < 576 {
            return Err(Error::InvalidArgument);
        }
        self.interfaces
            .find_mut(interface)
            .ok_or(Error::NotFound)?
            .config
            .mtu = mtu;
        Ok(())
    }

    /// The device of an interface was exchanged for one with this hardware address, perhaps on another link: who was
    /// found there is asked for again, but those of whom the host has said where they are.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn exchange_device(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        hardware: ethernet::Address,
    ) -> Result<(), Error> {
        let found = self.interfaces.find_mut(interface);
        found.ok_or(Error::NotFound)?.config.hardware = hardware;
        let there = self
            .neighbours(now)
            .filter(|one| one.interface == interface);
        let there: Vec<IpAddr> = there.map(|one| one.address).collect();
        for address in there {
            if let Some(n) = self.neighbours.find(interface, address)
                && !matches!(
                    self.neighbours.entry(n).state,
                    // Those of whom nothing is known are being asked for anyway.
                    NeighbourState::Permanent | NeighbourState::Incomplete
                )
            {
                self.neighbours.set_failed(n);
                self.arm_neighbour(n);
            }
        }
        Ok(())
    }

    /// Adds a route, in place of one with the same prefix and metric.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NoMemory`], [`Error::InvalidArgument`].
    pub fn add_route(&mut self, route: Route) -> Result<(), Error> {
        self.interfaces
            .find(route.interface)
            .ok_or(Error::NotFound)?;
        self.routes.add(route)
    }

    /// Removes the route with this prefix and metric.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn remove_route(&mut self, route: &Route) -> Result<(), Error> {
        self.routes.remove(route)
    }

    /// Says what the host knows of a neighbour; `None`: that it does not exist.
    ///
    /// # Errors
    /// [`Error::NotFound`]: no such interface; [`Error::NoMemory`].
    pub fn set_neighbour(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        address: IpAddr,
        hardware: Option<ethernet::Address>,
    ) -> Result<(), Error> {
        self.interfaces.find(interface).ok_or(Error::NotFound)?;
        let n = self
            .neighbours
            .want(now, interface, address)
            .ok_or(Error::NoMemory)?;
        match hardware {
            Some(hardware) => {
                self.neighbours.set_permanent(n, hardware);
                self.wake_waiters(n);
            }
            None => self.neighbour_failed(n),
        }
        self.arm_neighbour(n);
        Ok(())
    }

    /// What the host has heard of a neighbour by itself; nothing is kept of those to whom nobody here has
    /// sent. For interfaces with [`crate::Resolution::External`].
    pub fn hear_of_neighbour(
        &mut self,
        interface: InterfaceId,
        address: IpAddr,
        heard: ExternalNeighbour,
    ) {
        let Some(n) = self.neighbours.find(interface, address) else {
            return;
        };
        match heard {
            ExternalNeighbour::At(hardware) => {
                self.neighbours.set_permanent(n, hardware);
                self.wake_waiters(n);
            }
            ExternalNeighbour::Silent => self.neighbour_failed(n),
            ExternalNeighbour::Forgotten => {
                if self.neighbours.entry(n).state == NeighbourState::Permanent {
                    self.neighbours.set_failed(n);
                }
            }
        }
        self.arm_neighbour(n);
    }

    /// Hands out both ends of connections that have ended since the last call, TIME-WAIT included; those
    /// that another connection has opened again meanwhile are left out.
    pub fn take_ended_flows(&mut self, sink: &mut dyn FnMut(SocketAddr, SocketAddr)) {
        for tuple in self.ended.drain(..) {
            if self.demux.find(&tuple).is_none() {
                let (local, remote) = ends(&tuple);
                sink(local, remote);
            }
        }
    }

    /// The connection of these two ends is over.
    pub(crate) fn note_end(&mut self, tuple: FourTuple) {
        if self.config.shares_addresses {
            self.ended.push(tuple);
        }
    }

    /// Acts on every timer that has expired at `now`, a bounded number at a time.
    pub fn handle_timeouts(&mut self, now: Instant, host: &mut dyn Host) {
        self.tell_failed(now, host);
        for _ in 0..TIMEOUTS_MAX {
            let Some(timer) = self.wheel.pop_expired(now.as_us()) else {
                break;
            };
            self.handle_timer(now, at(timer), host);
        }
        self.tell_failed(now, host);
    }

    fn handle_timer(&mut self, now: Instant, timer: usize, host: &mut dyn Host) {
        let (connections, time_waits) =
            (self.tables.connections.len(), self.tables.time_waits.len());
        if timer < connections {
            self.handle_connection_timer(now, slot(timer), host);
        } else if timer < connections + time_waits {
            self.handle_time_wait_timer(now, slot(timer - connections));
        } else if timer < connections + time_waits + self.config.neighbours_max {
            self.handle_neighbour_timer(now, slot(timer - connections - time_waits));
        } else if timer == at(self.announcement_timer()) {
            self.handle_interface_timer(now);
        } else if timer == at(self.multicast_timer()) {
            self.handle_multicast_timer();
        } else {
            self.handle_fragment_timer(now);
        }
    }

    /// When [`Stack::handle_timeouts`] must be called next.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.failed.len() > 0 {
            return Some(Instant::ZERO);
        }
        self.wheel.next_deadline_us().map(Instant::from_us)
    }

    /// Whether [`Stack::poll_transmit`] has something to do.
    pub fn wants_transmit(&self) -> bool {
        self.refused.is_some()
            || self.senders.len() > 0
            || !self.questions.is_empty()
            || self.has_late_fragments
            || self.udp.held.wants_transmit()
            || self.multicast.wants_transmit()
    }

    /// What was counted since the start.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Steps of the loops that must not grow with the number of connections.
    pub const fn work(&self) -> Work {
        Work {
            demux_steps: self.demux.steps(),
            timer_steps: self.wheel.steps(),
            transmit_turns: self.transmit_turns,
        }
    }

    /// The interface that programs name by this number (RFC 4007 §6).
    pub fn interface_with_scope(&self, scope_id: u32) -> Option<InterfaceId> {
        self.interfaces.with_scope(scope_id)
    }

    /// Interfaces with their own addresses.
    pub fn interfaces(
        &self,
    ) -> impl Iterator<
        Item = (
            InterfaceId,
            &InterfaceConfig,
            impl Iterator<Item = InterfaceAddress>,
        ),
    > {
        self.interfaces.iter().map(|(id, interface)| {
            (
                id,
                &interface.config,
                interface.addresses.iter().map(|owned| owned.address),
            )
        })
    }

    /// Routes, in the order in which they are tried.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter()
    }

    /// The neighbour cache.
    pub fn neighbours(&self, now: Instant) -> impl Iterator<Item = Neighbour> {
        self.neighbours.iter(now)
    }

    pub(crate) fn record(&self, index: u32) -> &ConnectionRecord {
        &self.tables.connections[at(index)]
    }

    /// Changes a connection's row; see [`crate::tables::Row::change`].
    pub(crate) fn change<R>(
        &mut self,
        index: u32,
        change: impl FnOnce(&mut ConnectionRecord) -> R,
    ) -> R {
        self.tables.connections[at(index)].change(change)
    }

    pub(crate) fn time_wait_timer(&self, w: u32) -> u32 {
        slot(self.tables.connections.len()) + w
    }

    pub(crate) fn neighbour_timer(&self, n: u32) -> u32 {
        slot(self.tables.connections.len() + self.tables.time_waits.len()) + n
    }

    pub(crate) fn announcement_timer(&self) -> u32 {
        self.neighbour_timer(slot(self.config.neighbours_max))
    }

    pub(crate) fn multicast_timer(&self) -> u32 {
        self.announcement_timer() + 1
    }

    pub(crate) fn fragment_timer(&self) -> u32 {
        self.announcement_timer() + 2
    }

    /// Sends what may not wait for a turn: questions to the link.
    pub(crate) fn send_questions(&mut self, egress: &mut dyn Egress) {
        while let Some(question) = self.questions.pop_front() {
            if self.send_question(&question, egress).is_err() {
                self.questions.push_front(question);
                return;
            }
        }
    }
}

/// A key for one purpose, so that what one hash leaks says nothing about another.
pub(crate) fn subkey(config: &Config, purpose: &[u8]) -> [u8; 16] {
    let hasher = SipHasher13::new_with_key(&config.secret);
    let half = |n: u8| hasher.hash(&[&[n], purpose].concat());
    (u128::from(half(1)) << 64 | u128::from(half(2))).to_le_bytes()
}
