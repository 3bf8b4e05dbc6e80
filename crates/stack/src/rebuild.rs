//! Taking over the tables of an earlier stack: everything derived is computed again.
//!
//! The host configures interfaces, addresses and routes afterwards, as after a start. A row whose
//! change a crash interrupted is not trusted: its connection is given up, and its owner hears of it
//! with the next [`Stack::handle_timeouts`].

use crate::config::Config;
use crate::containers::intrusive::{at, slot};
use crate::error::Error;
use crate::stack::Stack;
use crate::tables::{Flags, Row as _, TABLES_VERSION, Tables};
use tcp::State;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Connections that go on.
    pub connections: u32,
    /// Listeners that go on.
    pub listeners: u32,
    /// TIME-WAIT records that go on.
    pub time_waits: u32,
    /// UDP sockets that go on.
    pub udp_sockets: u32,
    /// Connections and listeners given up because a change of their row was interrupted.
    pub interrupted: u32,
}

impl<'m> Stack<'m> {
    /// A stack that goes on where the one before stopped. `config` must have the same secret, and the
    /// clock the same origin.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: the tables are of another version or cannot be.
    pub fn rebuild(tables: Tables<'m>, config: Config) -> Result<(Self, Rebuilt), Error> {
        if tables.header.version != TABLES_VERSION {
            return Err(Error::InvalidArgument);
        }
        let mut stack = Self::assemble(tables, config)?;
        let mut found = Rebuilt::default();
        stack.rebuild_listeners(&mut found);
        stack.rebuild_time_waits(&mut found);
        stack.rebuild_connections(&mut found);
        stack.rebuild_blocks();
        let (udp_sockets, interrupted) = stack.rebuild_udp();
        found.udp_sockets = udp_sockets;
        found.interrupted += interrupted;
        stack.ip.link.counters.interrupted = u64::from(found.interrupted);
        Ok((stack, found))
    }

    fn rebuild_listeners(&mut self, found: &mut Rebuilt) {
        for index in 0..self.tables.header.listeners_used {
            let row = &mut self.tables.listeners[at(index)];
            if row.take_interrupted() {
                found.interrupted += u32::from(row.used == 1);
                row.used = 0;
                row.generation = row.generation.wrapping_add(1);
            }
            if row.used == 1 {
                found.listeners += 1;
                self.listening.insert(index, row);
            } else {
                self.free_listeners.push(index);
            }
        }
    }

    fn rebuild_time_waits(&mut self, found: &mut Rebuilt) {
        let mut order = Vec::new();
        for w in 0..self.tables.header.time_waits_used {
            let row = &mut self.tables.time_waits[at(w)];
            // A record that was not finished is worth less than the harm a wrong one does.
            if row.take_interrupted() {
                row.used = 0;
            }
            let tuple = row.tuple;
            if row.used == 1 && self.demux.find(&tuple).is_none() {
                order.push((row.since, w));
                self.demux
                    .insert(&tuple, slot(self.tables.connections.len()) + w);
            } else {
                row.used = 0;
                self.free_time_waits.push(w);
            }
        }
        found.time_waits = slot(order.len());
        order.sort_unstable();
        for (_, w) in order {
            self.demux.remove(self.time_wait_number(w));
            self.ports
                .add_user(self.tables.time_waits[at(w)].tuple.local_port());
            self.link_time_wait(w);
        }
    }

    fn rebuild_connections(&mut self, found: &mut Rebuilt) {
        let mut queued = Vec::new();
        for index in 0..self.tables.header.connections_used {
            let interrupted = self.tables.connections[at(index)].take_interrupted();
            if !self.record(index).has(Flags::USED) {
                self.free_connections.push(index);
                continue;
            }
            if self
                .record(index)
                .flags()
                .intersects(Flags::HALF_OPEN | Flags::READY)
            {
                queued.push((self.record(index).queued_at, index));
            }
            if interrupted {
                found.interrupted += 1;
                self.change(index, |record| record.set(Flags::INTERRUPTED, true));
                self.ip.flows.failed.push(index);
            } else {
                found.connections += 1;
            }
            let (listener, record) = (self.record(index).listener(), self.record(index));
            if record.has(Flags::FAST_OPEN) && self.check_listener(listener).is_ok() {
                self.listener_queues[at(listener.index)].fast_open.add();
            }
            self.rebuild_connection(index);
        }
        queued.sort_unstable();
        for (_, index) in queued {
            self.rebuild_queue(index);
        }
    }

    fn rebuild_connection(&mut self, index: u32) {
        let record = self.record(index);
        let tuple = record.tuple;
        // A TIME-WAIT that had not reached its own table is forgotten: the peer then gets a reset.
        let over = record.has(Flags::DETACHED)
            || matches!(record.tcp.state(), State::TimeWait | State::Closed);
        if over || self.demux.find(&tuple).is_some() {
            self.change(index, |record| {
                record.set(Flags::DETACHED | Flags::DRAINING, true)
            });
        } else {
            self.demux.insert(&tuple, index);
            self.ports.add_user(tuple.local_port());
            self.arm(index);
            let flags = self.record(index).flags();
            let orphan = !flags.intersects(Flags::OWNED | Flags::HALF_OPEN | Flags::READY);
            self.orphans += u32::from(orphan);
        }
        // Whoever has nothing to send leaves the queue at its first turn.
        self.ip.flows.senders.push(index);
    }

    /// Puts connection `index` back into the queue of its listener; without one it is an orphan, and
    /// nobody will ever accept it.
    fn rebuild_queue(&mut self, index: u32) {
        let flags = self.record(index).flags();
        let listener = self.record(index).listener();
        let has_ended = flags.contains(Flags::DETACHED) && !flags.contains(Flags::READY);
        if has_ended || self.check_listener(listener).is_err() {
            self.change(index, |record| {
                record.set(Flags::HALF_OPEN | Flags::READY, false)
            });
            if !flags.contains(Flags::DETACHED) {
                self.orphans += 1;
                self.change(index, |record| record.set(Flags::INTERRUPTED, true));
                self.ip.flows.failed.push(index);
            }
            return;
        }
        let queues = &mut self.listener_queues[at(listener.index)];
        let queue = if flags.contains(Flags::READY) {
            &mut queues.ready
        } else {
            &mut queues.half_open
        };
        self.listener_links.push_back(queue, index);
    }
}
