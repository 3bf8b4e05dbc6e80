//! The stack as a value: what it holds, how it starts, its interfaces and routes, its clock.
//!
//! Everything besides [`Tables`] is derived from them or from what the host configures; `rebuild.rs`
//! does that after a restart.

use crate::config::Config;
use crate::containers::intrusive::slot;
use crate::containers::timers::{Timer, Timers};
use crate::counters::Counters;
use crate::egress::Egress;
use crate::error::Error;
use crate::histogram::Histogram;
use crate::host::Host;
use crate::ip::Ip;
use crate::tables::Tables;
use crate::tcp::{Tcp, TcpTables};
use crate::udp::Udp;
use core::net::SocketAddr;
use tcp::Instant;

/// Timers handled in one [`Stack::handle_timeouts`], so that a crowd of them does not hold up packets.
const TIMEOUTS_MAX: usize = 512;
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
    pub(crate) tcp: Tcp<'m>,
    pub(crate) udp: Udp<'m>,
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
        let Tables {
            header,
            connections,
            listeners,
            time_waits,
            udp,
            range_blocks,
            flight_blocks,
            undo,
        } = tables;
        let rows = (slot(connections.len()), slot(time_waits.len()));
        let timers = Timers::new(rows.0, rows.1, slot(config.neighbours_max));
        let ip = Ip::new(&config, timers, connections.len());
        let tables = TcpTables {
            connections: (connections, &mut header.connections_used),
            listeners: (listeners, &mut header.listeners_used),
            time_waits: (time_waits, &mut header.time_waits_used),
            ranges: (range_blocks, &mut header.range_blocks_used),
            flights: (flight_blocks, &mut header.flight_blocks_used),
            undo,
        };
        Ok(Self {
            ip,
            tcp: Tcp::new(tables, &config),
            udp: Udp::new(udp, &mut header.udp_used, &config),
        })
    }

    /// Sends what connections have to send: at most `budget` segments. Returns how many there were, lost
    /// ones included; [`Stack::wants_transmit`] says whether there is more.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
        budget: usize,
    ) -> usize {
        if self.ip.wants_transmit() {
            self.ip.poll_transmit(now, egress);
        }
        self.tcp
            .poll_transmit(&mut self.ip, now, host, egress, budget)
    }

    /// Hands out both ends of connections that have ended since the last call, TIME-WAIT included; those
    /// that another connection has opened again meanwhile are left out.
    pub fn take_ended_flows(&mut self, sink: &mut dyn FnMut(SocketAddr, SocketAddr)) {
        for tuple in self.tcp.ended.drain(..) {
            if self.tcp.demux.find(&tuple).is_none() {
                let (local, remote) = tuple.ends();
                sink(local, remote);
            }
        }
    }

    /// Acts on every timer that has expired at `now`, a bounded number at a time.
    pub fn handle_timeouts(&mut self, now: Instant, host: &mut dyn Host) {
        self.tcp.tell_failed(&mut self.ip, now, host);
        for _ in 0..TIMEOUTS_MAX {
            let Some(timer) = self.ip.link.timers.pop_expired(now) else {
                break;
            };
            match timer {
                Timer::Connection(index) => {
                    self.tcp
                        .handle_connection_timer(&mut self.ip, now, index, host)
                }
                Timer::TimeWait(w) => self.tcp.handle_time_wait_timer(&mut self.ip, now, w),
                Timer::Neighbour(n) => self.ip.handle_neighbour_timer(now, n),
                Timer::Interfaces => self.ip.handle_interface_timer(now),
                Timer::Multicast => self.ip.multicast.handle_timer(),
                Timer::Fragments => self.ip.handle_fragment_timer(now),
            }
        }
        self.tcp.tell_failed(&mut self.ip, now, host);
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
        self.tcp.refused.is_some() || self.ip.flows.senders.len() > 0 || self.ip.wants_transmit()
    }

    /// What was counted since the start.
    pub const fn counters(&self) -> &Counters {
        &self.ip.link.counters
    }

    /// Every round trip that a connection has measured since the start, microseconds.
    pub const fn round_trips(&self) -> &Histogram {
        &self.ip.link.round_trips
    }

    /// Steps of the loops that must not grow with the number of connections.
    pub const fn work(&self) -> Work {
        Work {
            demux_steps: self.tcp.demux.steps(),
            timer_steps: self.ip.link.timers.steps(),
            transmit_turns: self.tcp.transmit_turns,
        }
    }

    /// From now on handshakes use, offer and answer as `config` says, and ports are chosen from its range.
    pub fn set_modes(&mut self, config: &Config) {
        let own = &mut self.ip.link.config;
        own.offers = config.offers;
        own.fast_open = config.fast_open;
        own.syn_cookies = config.syn_cookies;
        own.protects_time_wait = config.protects_time_wait;
        own.receive_offer = config.receive_offer;
        own.receive_buffer_max = config.receive_buffer_max;
        own.ephemeral_ports = config.ephemeral_ports;
        self.tcp.ports.set_range(config.ephemeral_ports);
        self.udp.ports.set_range(config.ephemeral_ports);
    }
}
