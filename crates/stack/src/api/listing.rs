//! Everything that `ss` prints: connections, listeners, TIME-WAIT, UDP sockets.
//!
//! Listings walk the tables up to their high-water marks; they are for people, not for packets.

use crate::containers::intrusive::at;
use crate::counters::Counters;
use crate::stack::Stack;
use crate::tables::{ConnectionId, Flags, ListenerId};
use crate::udp::UdpId;
use core::net::{IpAddr, SocketAddr};
use tcp::{Info, Instant};

/// A connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionRow {
    /// Its name.
    pub connection: ConnectionId,
    /// The host's token.
    pub owner: u64,
    /// This host's end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// Whether a program holds it.
    pub is_owned: bool,
    /// The listener in whose accept queue (or handshake) it is.
    pub listener: Option<ListenerId>,
    /// Figures.
    pub info: Info,
}

/// A listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenerRow {
    /// Its name.
    pub listener: ListenerId,
    /// The host's token.
    pub owner: u64,
    /// Where it listens.
    pub local: SocketAddr,
    /// Its backlog.
    pub backlog: u32,
    /// Connections that wait to be accepted.
    pub ready: u32,
    /// Handshakes in progress.
    pub half_open: u32,
}

/// A connection in TIME-WAIT.
#[derive(Clone, Copy, Debug)]
pub struct TimeWaitRow {
    /// This host's end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// When it is forgotten.
    pub until: Instant,
}

/// A UDP socket.
#[derive(Clone, Debug)]
pub struct UdpRow {
    /// Its name.
    pub socket: UdpId,
    /// The host's token.
    pub owner: u64,
    /// This host's end.
    pub local: SocketAddr,
    /// The peer of a connected one.
    pub remote: Option<SocketAddr>,
    /// Groups that it is in.
    pub groups: Vec<IpAddr>,
}

impl Stack<'_> {
    /// Whether a program holds the connection.
    pub fn is_owned(&self, id: ConnectionId) -> bool {
        self.find(id).is_ok_and(|record| record.has(Flags::OWNED))
    }

    /// All UDP sockets.
    pub fn udp_rows(&self) -> impl Iterator<Item = UdpRow> {
        let used = &self.udp.rows[..at(*self.udp.used)];
        (0..)
            .zip(used)
            .filter(|(_, record)| record.used == 1)
            .map(|(index, record)| UdpRow {
                socket: record.id(index),
                owner: record.owner,
                local: record.ends.local(),
                remote: record.ends.remote(),
                groups: self.ip.multicast.groups_of(index),
            })
    }

    /// The name of each connection and the host's token: for a look at all of them that needs no figures.
    pub fn connection_names(&self) -> impl Iterator<Item = (ConnectionId, u64)> {
        let used = &self.tcp.connections[..at(*self.tcp.connections_used)];
        (0..)
            .zip(used)
            .filter(|(_, record)| record.has(Flags::USED))
            .map(|(index, record)| (record.id(index), record.owner))
    }

    /// Whether anything is still to be sent or to be heard, although its program may have ended: a connection, a TIME-WAIT where
    /// `with_time_wait`, a datagram whose neighbour is asked for.
    #[must_use]
    pub fn is_in_use(&self, with_time_wait: bool) -> bool {
        self.connections().next().is_some()
            || with_time_wait && self.time_waits().next().is_some()
            || self.ip.link.waiting.holds_some()
    }

    /// All connections.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionRow> {
        let used = &self.tcp.connections[..at(*self.tcp.connections_used)];
        (0..)
            .zip(used)
            .filter(|(_, record)| record.has(Flags::USED))
            .map(|(index, record)| ConnectionRow {
                connection: record.id(index),
                owner: record.owner,
                local: self.ip.local_end(&record.tuple),
                remote: self.ip.remote_end(&record.tuple),
                is_owned: record.has(Flags::OWNED),
                listener: record
                    .flags()
                    .intersects(Flags::HALF_OPEN | Flags::READY)
                    .then(|| record.listener()),
                info: record.tcp.info(),
            })
    }

    /// What was counted since the start, with what connections that live have counted themselves.
    #[must_use]
    pub fn counters_of_all(&self) -> Counters {
        let used = &self.tcp.connections[..at(*self.tcp.connections_used)];
        let living = used.iter().filter(|record| record.has(Flags::USED));
        let again: u64 = living.map(|record| record.tcp.retransmissions()).sum();
        let mut counters = *self.counters();
        counters.tcp_retrans_segs += again;
        counters
    }

    /// All listeners.
    pub fn listeners(&self) -> impl Iterator<Item = ListenerRow> {
        let used = &self.tcp.listeners.rows[..at(*self.tcp.listeners.used)];
        (0..)
            .zip(used)
            .filter(|(_, row)| row.used == 1)
            .map(|(index, row)| (index, row, self.tcp.listeners.queues(index)))
            .map(|(index, row, queues)| ListenerRow {
                listener: ListenerId {
                    index,
                    generation: row.generation,
                },
                owner: row.owner,
                local: SocketAddr::new(row.address(), row.port),
                backlog: row.backlog,
                ready: queues.ready.len(),
                half_open: queues.half_open.len(),
            })
    }

    /// All connections in TIME-WAIT.
    pub fn time_waits(&self) -> impl Iterator<Item = TimeWaitRow> {
        let used = &self.tcp.time_waits.rows[..at(*self.tcp.time_waits.used)];
        used.iter()
            .filter(|row| row.used == 1)
            .map(|row| TimeWaitRow {
                local: self.ip.local_end(&row.tuple),
                remote: self.ip.remote_end(&row.tuple),
                until: row.tcp.deadline(),
            })
    }

    /// Connections that no program holds and no listener has queued.
    pub const fn orphans(&self) -> u32 {
        self.tcp.orphans
    }
}
