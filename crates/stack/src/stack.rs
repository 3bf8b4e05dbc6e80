//! The stack as a value: what it holds, how it starts, its interfaces and routes, its clock.
//!
//! Everything beside [`Tables`] is derived from them or from what the host configures; `rebuild.rs`
//! does that after a restart.

use crate::config::Config;
use crate::containers::demux::{Demux, FourTuple};
use crate::containers::intrusive::{Links, ListHead, at, slot, zeroed};
use crate::containers::timers::{Timer, Timers};
use crate::counters::Counters;
use crate::error::Error;
use crate::fast_open::{Peers, Pending};
use crate::host::Host;
use crate::ip::Ip;
use crate::listener::ends;
use crate::listening::Listening;
use crate::ports::Ports;
use crate::tables::{ConnectionRecord, Row as _, Tables};
use crate::transmit::Refused;
use crate::udp::Udp;
use core::net::SocketAddr;
use tcp::Instant;

/// Timers handled in one [`Stack::handle_timeouts`], so that a crowd of them does not hold up packets.
const TIMEOUTS_MAX: usize = 512;
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
    pub(crate) ip: Ip,
    pub(crate) tables: Tables<'m>,
    /// No connection's offered window grows above it.
    pub(crate) window_ceiling: u32,
    pub(crate) ports: Ports,
    /// Both ends of what has ended since somebody asked.
    pub(crate) ended: Vec<FourTuple>,
    pub(crate) udp: Udp,
    pub(crate) fast_open_peers: Peers,

    pub(crate) demux: Demux,
    pub(crate) refused: Option<Refused>,
    pub(crate) transmit_turns: u64,
    pub(crate) free_connections: Vec<u32>,
    pub(crate) free_range_blocks: Vec<u32>,
    pub(crate) free_flight_blocks: Vec<u32>,
    pub(crate) orphans: u32,

    /// First listener on each port: row + 1, 0 for none.
    pub(crate) listening: Listening,
    pub(crate) listener_queues: Vec<ListenerQueues>,
    pub(crate) listener_links: Links,
    pub(crate) free_listeners: Vec<u32>,

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
        let neighbours = slot(config.neighbours_max);
        let timers = Timers::new(slot(connections), slot(time_waits), neighbours);
        let (first, last) = config.ephemeral_ports;
        Ok(Self {
            ip: Ip::new(&config, timers, connections),
            window_ceiling: u32::MAX,
            ports: Ports::new(&config.subkey(b"ports"), first, last),
            ended: Vec::new(),
            udp: Udp::new(tables.udp.len(), &config),
            fast_open_peers: Peers::new(config.fast_open_peers, &config.subkey(b"fast open peers")),
            demux: Demux::new(connections + time_waits, &config.subkey(b"demux")),
            refused: None,
            transmit_turns: 0,
            free_connections: Vec::with_capacity(connections),
            free_range_blocks: Vec::with_capacity(tables.range_blocks.len()),
            free_flight_blocks: Vec::with_capacity(tables.flight_blocks.len()),
            orphans: 0,
            listening: Listening::new(&config.secret),
            listener_queues: zeroed(listeners),
            listener_links: Links::new(connections),
            free_listeners: Vec::with_capacity(listeners),
            free_time_waits: Vec::with_capacity(time_waits),
            time_wait_order: ListHead::default(),
            time_wait_links: Links::new(time_waits),
            tables,
        })
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
        if self.ip.link.config.shares_addresses {
            self.ended.push(tuple);
        }
    }

    /// Acts on every timer that has expired at `now`, a bounded number at a time.
    pub fn handle_timeouts(&mut self, now: Instant, host: &mut dyn Host) {
        self.tell_failed(now, host);
        for _ in 0..TIMEOUTS_MAX {
            let Some(timer) = self.ip.link.timers.pop_expired(now) else {
                break;
            };
            match timer {
                Timer::Connection(index) => self.handle_connection_timer(now, index, host),
                Timer::TimeWait(w) => self.handle_time_wait_timer(now, w),
                Timer::Neighbour(n) => self.ip.handle_neighbour_timer(now, n),
                Timer::Interfaces => self.ip.handle_interface_timer(now),
                Timer::Multicast => self.ip.multicast.handle_timer(),
                Timer::Fragments => self.ip.handle_fragment_timer(now),
            }
        }
        self.tell_failed(now, host);
    }

    /// When [`Stack::handle_timeouts`] must be called next.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.ip.flows.failed.len() > 0 {
            return Some(Instant::ZERO);
        }
        self.ip.link.timers.next_deadline()
    }

    /// Whether [`Stack::poll_transmit`] has something to do.
    pub fn wants_transmit(&self) -> bool {
        self.refused.is_some() || self.ip.flows.senders.len() > 0 || self.ip.wants_transmit()
    }

    /// What was counted since the start.
    pub const fn counters(&self) -> &Counters {
        &self.ip.link.counters
    }

    /// Steps of the loops that must not grow with the number of connections.
    pub const fn work(&self) -> Work {
        Work {
            demux_steps: self.demux.steps(),
            timer_steps: self.ip.link.timers.steps(),
            transmit_turns: self.transmit_turns,
        }
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

    /// From now on handshakes use, offer and answer as `config` says.
    pub fn set_modes(&mut self, config: &Config) {
        let own = &mut self.ip.link.config;
        own.offers = config.offers;
        own.fast_open = config.fast_open;
        own.syn_cookies = config.syn_cookies;
        own.receive_offer = config.receive_offer;
        own.receive_buffer_max = config.receive_buffer_max;
    }
}
