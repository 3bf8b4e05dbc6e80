//! What TCP derives from its tables after a restart.

use super::Tcp;
use crate::containers::intrusive::{at, slot};
use crate::ip::Ip;
use crate::tables::{Flags, Rebuilt, Row as _};
use tcp::State;

impl Tcp<'_> {
    /// Derives everything from the tables, which are as a process left them that is gone.
    pub(crate) fn rebuild(&mut self, ip: &mut Ip, found: &mut Rebuilt) {
        self.rebuild_listeners(found);
        self.rebuild_time_waits(ip, found);
        self.rebuild_connections(ip, found);
        self.rebuild_blocks();
    }

    fn rebuild_listeners(&mut self, found: &mut Rebuilt) {
        for index in 0..*self.listeners.used {
            let row = &mut self.listeners.rows[at(index)];
            if row.take_interrupted() {
                found.interrupted += u32::from(row.used == 1);
                row.used = 0;
                row.generation = row.generation.wrapping_add(1);
            }
            if row.used == 1 {
                found.listeners += 1;
                self.listeners.listening.insert(index, row);
            } else {
                self.listeners.free.push(index);
            }
        }
    }

    fn rebuild_time_waits(&mut self, ip: &mut Ip, found: &mut Rebuilt) {
        let mut order = Vec::new();
        for w in 0..*self.time_waits.used {
            let row = &mut self.time_waits.rows[at(w)];
            // A record that was not finished is worth less than the harm a wrong one does.
            if row.take_interrupted() {
                row.used = 0;
            }
            let tuple = row.tuple;
            if row.used == 1 && self.demux.find(&tuple).is_none() {
                order.push((row.since, w));
                self.demux.insert(&tuple, slot(self.connections.len()) + w);
            } else {
                row.used = 0;
                self.time_waits.free.push(w);
            }
        }
        found.time_waits = slot(order.len());
        order.sort_unstable();
        for (_, w) in order {
            self.demux.remove(self.time_wait_number(w));
            self.ports
                .add_user(self.time_waits.rows[at(w)].tuple.local_port());
            self.link_time_wait(ip, w);
        }
    }

    fn rebuild_connections(&mut self, ip: &mut Ip, found: &mut Rebuilt) {
        if let Some(undo) = &self.undo {
            undo.roll_back(self.connections);
        }
        let mut queued = Vec::new();
        for index in 0..*self.connections_used {
            let interrupted = self.connections[at(index)].take_interrupted();
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
                self.mark(index, Flags::INTERRUPTED, true);
                ip.flows.failed.push(index);
            } else {
                found.connections += 1;
            }
            let (listener, record) = (self.record(index).listener(), self.record(index));
            if record.has(Flags::FAST_OPEN) && self.listeners.check(listener).is_ok() {
                self.listeners.fast_open(listener.index).add();
            }
            self.rebuild_connection(ip, index);
        }
        queued.sort_unstable();
        for (_, index) in queued {
            self.rebuild_queue(ip, index);
        }
    }

    fn rebuild_connection(&mut self, ip: &mut Ip, index: u32) {
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
            self.arm(ip, index);
            let flags = self.record(index).flags();
            let orphan = !flags.intersects(Flags::OWNED | Flags::HALF_OPEN | Flags::READY);
            self.orphans += u32::from(orphan);
            // Its listener has ended, and it was to be reset.
            if orphan
                && self.record(index).tcp.state().can_send()
                && !flags.contains(Flags::INTERRUPTED)
            {
                self.change(index, |record| record.set(Flags::INTERRUPTED, true));
                ip.flows.failed.push(index);
            }
        }
        // Whoever has nothing to send leaves the queue at its first turn.
        ip.flows.senders.push(index);
    }

    /// Puts connection `index` back into the queue of its listener; without one it is an orphan, and
    /// nobody will ever accept it.
    fn rebuild_queue(&mut self, ip: &mut Ip, index: u32) {
        let flags = self.record(index).flags();
        let listener = self.record(index).listener();
        let has_ended = flags.contains(Flags::DETACHED) && !flags.contains(Flags::READY);
        if has_ended || self.listeners.check(listener).is_err() {
            self.change(index, |record| {
                record.set(Flags::HALF_OPEN | Flags::READY, false)
            });
            if !flags.contains(Flags::DETACHED) {
                self.orphans += 1;
                self.change(index, |record| record.set(Flags::INTERRUPTED, true));
                ip.flows.failed.push(index);
            }
            return;
        }
        // The handshake was over, and the flag not changed yet.
        let is_over = !matches!(self.record(index).tcp.state(), State::SynReceived);
        if is_over && flags.contains(Flags::HALF_OPEN) {
            self.connections[at(index)].replace(Flags::HALF_OPEN, Flags::READY);
        }
        let queue = if is_over || flags.contains(Flags::READY) {
            Flags::READY
        } else {
            Flags::HALF_OPEN
        };
        self.listeners.push(listener.index, queue, index);
    }

    /// After a restart: the blocks that no connection holds are free. Of two connections that claim one,
    /// and from one that claims what does not exist, it is taken.
    fn rebuild_blocks(&mut self) {
        let mut ranges = vec![false; at(*self.ranges.used)];
        let mut flights = vec![false; at(*self.flights.used)];
        for index in 0..*self.connections_used {
            let record = self.record(index);
            let is_used = record.has(Flags::USED);
            let (range, flight) = (record.tcp.block(), record.tcp.flight_block());
            if range > 0 && !(is_used && hold(&mut ranges, range)) {
                self.change(index, |record| record.tcp.leave_block());
            }
            if flight > 0 && !(is_used && hold(&mut flights, flight)) {
                self.change(index, |record| record.tcp.leave_flight_block());
            }
        }
        self.ranges.free.extend(free(&ranges));
        self.flights.free.extend(free(&flights));
    }
}

/// Whether block `block` exists and nobody held it until now.
fn hold(is_held: &mut [bool], block: u32) -> bool {
    let held = block
        .checked_sub(1)
        .and_then(|index| is_held.get_mut(at(index)));
    held.is_some_and(|held| !core::mem::replace(held, true))
}

fn free(is_held: &[bool]) -> impl Iterator<Item = u32> + '_ {
    let blocks = is_held.iter().enumerate();
    blocks
        .filter(|(_, held)| !**held)
        .map(|(block, _)| slot(block))
}
