//! TCP: the connections of this host, whom a segment is for, handshakes, TIME-WAIT, who may send next. The protocol
//! itself is the crate `tcp`; programs' calls are `api/connections.rs` and `api/listeners.rs`.

pub(crate) mod deferred;
pub(crate) mod errors;
pub(crate) mod fast_open;
pub(crate) mod handshake;
pub(crate) mod lifecycle;
pub(crate) mod listeners;
pub(crate) mod listening;
pub(crate) mod pools;
pub(crate) mod quote;
mod rebuild;
pub(crate) mod segment;
mod time_wait;
mod time_waits;
mod transmit;
mod window;

use crate::config::Config;
use crate::containers::demux::{Demux, FourTuple};
use crate::containers::intrusive::at;
use crate::containers::templates::Templates;
use crate::host::{AcceptReady, Host};
use crate::ip::Ip;
use crate::ports::Ports;
use crate::tables::{
    ConnectionId, ConnectionRecord, Flags, FlightBlock, ListenerRecord, RangeBlock, Row as _,
    TimeWaitRecord, Touched, UndoRow,
};
use fast_open::peers::Peers;
use listeners::Listeners;
use pools::Pool;
use tcp::{Instant, Transmit};
use time_waits::TimeWaits;

/// The tables of TCP, and how many rows of each were ever used.
pub(crate) struct TcpTables<'m> {
    pub(crate) connections: (&'m mut [ConnectionRecord], &'m mut u32),
    pub(crate) listeners: (&'m mut [ListenerRecord], &'m mut u32),
    pub(crate) time_waits: (&'m mut [TimeWaitRecord], &'m mut u32),
    pub(crate) ranges: (&'m mut [RangeBlock], &'m mut u32),
    pub(crate) flights: (&'m mut [FlightBlock], &'m mut u32),
    pub(crate) undo: Option<&'m mut UndoRow>,
}

/// Segments that the interface did not take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    connection: ConnectionId,
    transmit: Transmit,
    /// Of which so much leaves at once, bytes.
    piece: u32,
}

/// TCP of this host.
#[derive(Debug)]
pub(crate) struct Tcp<'m> {
    pub(crate) connections: &'m mut [ConnectionRecord],
    /// Rows that were ever used.
    pub(crate) connections_used: &'m mut u32,
    /// The row that is being changed, as it was.
    undo: Option<&'m mut UndoRow>,
    free_connections: Vec<u32>,
    pub(crate) listeners: Listeners<'m>,
    pub(crate) time_waits: TimeWaits<'m>,
    pub(crate) ranges: Pool<'m, RangeBlock>,
    pub(crate) flights: Pool<'m, FlightBlock>,
    pub(crate) demux: Demux,
    pub(crate) ports: Ports,
    pub(crate) fast_open_peers: Peers,
    /// No connection's offered window grows above it.
    pub(crate) window_ceiling: u32,
    /// Connections that nobody holds any more.
    pub(crate) orphans: u32,
    /// Both ends of what has ended since somebody asked.
    pub(crate) ended: Vec<FourTuple>,
    pub(crate) refused: Option<Refused>,
    templates: Templates,
    pub(crate) transmit_turns: u64,
    /// Nothing leaves by the short way.
    #[cfg(test)]
    pub(crate) sends_long: bool,
}

impl<'m> Tcp<'m> {
    /// TCP over the tables, all indexes empty.
    pub(crate) fn new(tables: TcpTables<'m>, config: &Config) -> Self {
        let (connections, connections_used) = tables.connections;
        let (listeners, listeners_used) = tables.listeners;
        let (time_waits, time_waits_used) = tables.time_waits;
        let (first, last) = config.ephemeral_ports;
        let rows = connections.len();
        Self {
            free_connections: Vec::with_capacity(rows),
            listeners: Listeners::new(listeners, listeners_used, rows, &config.secret),
            demux: Demux::new(rows + time_waits.len(), &config.subkey(b"demux")),
            time_waits: TimeWaits::new(time_waits, time_waits_used),
            ranges: Pool::new(tables.ranges.0, tables.ranges.1),
            flights: Pool::new(tables.flights.0, tables.flights.1),
            ports: Ports::new(&config.subkey(b"ports"), first, last),
            fast_open_peers: Peers::new(config.fast_open_peers, &config.subkey(b"fast open peers")),
            window_ceiling: u32::MAX,
            orphans: 0,
            ended: Vec::new(),
            refused: None,
            templates: Templates::new(),
            transmit_turns: 0,
            #[cfg(test)]
            sends_long: false,
            connections,
            connections_used,
            undo: tables.undo,
        }
    }

    /// The row of a connection.
    pub(crate) fn record(&self, index: u32) -> &ConnectionRecord {
        &self.connections[at(index)]
    }

    /// Changes a row.
    pub(crate) fn change<R>(
        &mut self,
        index: u32,
        change: impl FnOnce(&mut ConnectionRecord) -> R,
    ) -> R {
        self.change_touched(index, Touched::Row, change)
    }

    /// Changes what is named of a row.
    #[inline(always)]
    pub(crate) fn change_touched<R>(
        &mut self,
        index: u32,
        touched: Touched,
        change: impl FnOnce(&mut ConnectionRecord) -> R,
    ) -> R {
        self.keep(index, touched);
        let row = &mut self.connections[at(index)];
        #[cfg(test)]
        let before = *row;
        let result = row.change(change);
        #[cfg(test)]
        row.touched_alone(touched, &before);
        result
    }

    /// Changes flags of a row: one store, which nothing can interrupt.
    #[inline]
    pub(crate) fn mark(&mut self, index: u32, flags: Flags, on: bool) {
        self.connections[at(index)].set(flags, on);
    }

    /// Before what is named of row `index` is changed.
    #[inline]
    fn keep(&mut self, index: u32, touched: Touched) {
        if let Some(undo) = &mut self.undo {
            undo.keep(index, touched, &self.connections[at(index)]);
        }
    }

    /// Connection `index` leaves a queue of its listener.
    pub(crate) fn leave_queue(&mut self, index: u32, queue: Flags) {
        let record = &mut self.connections[at(index)];
        self.listeners.remove(record, index, queue);
    }

    /// The handshake of a connection is over: a program may accept it.
    fn enter_accept_queue(&mut self, now: Instant, index: u32, host: &mut dyn Host) {
        let record = &mut self.connections[at(index)];
        record.queued_at = now;
        record.replace(Flags::HALF_OPEN, Flags::READY);
        let listener = record.listener_index;
        self.leave_queue(index, Flags::HALF_OPEN);
        self.listeners.push(listener, Flags::READY, index);
        self.tell_ready(listener, host);
    }

    /// The connections that may be accepted.
    pub(crate) fn accept_ready(&self, listener: u32) -> AcceptReady {
        let ready = &self.listeners.queues(listener).ready;
        let since = ready.first().map(|index| self.record(index).queued_at);
        AcceptReady {
            count: ready.len(),
            since: since.unwrap_or(Instant::ZERO),
        }
    }

    /// Tells the host of them.
    pub(crate) fn tell_ready(&self, listener: u32, host: &mut dyn Host) {
        let owner = self.listeners.rows[at(listener)].owner;
        let ready = self.accept_ready(listener);
        host.on_accept_ready(self.listeners.id(listener), owner, ready);
    }

    /// Remembers that a flow has ended, for who shares the addresses.
    fn note_end(&mut self, ip: &Ip, tuple: FourTuple) {
        if ip.link.config.shares_addresses {
            self.ended.push(tuple);
        }
    }
}
