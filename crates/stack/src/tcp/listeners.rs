//! The rows of listeners and their two queues, of handshakes in progress and of connections that wait to be accepted
//! (listen(2)). What a SYN does is in `handshake.rs`, which listener it finds in `listening.rs`.
//!
//! Bounds: backlog + 1 entries in each queue.

use super::deferred::DeferredSegments;
use super::fast_open::pending::Pending;
use super::listening::Listening;
use crate::containers::intrusive::{Links, ListHead, at, zeroed};
use crate::error::Error;
use crate::tables::{ConnectionRecord, Flags, ListenerId, ListenerRecord, Row as _};

/// What a listener needs besides its row: the queues through its connections.
#[derive(Clone, Copy, Debug, Default, zerocopy::FromZeros)]
pub(crate) struct Queues {
    pub(crate) half_open: ListHead,
    pub(crate) ready: ListHead,
    pub(crate) fast_open: Pending,
}

impl Queues {
    fn of(&mut self, queue: Flags) -> &mut ListHead {
        if queue == Flags::HALF_OPEN {
            &mut self.half_open
        } else {
            &mut self.ready
        }
    }
}

/// All listeners.
#[derive(Debug)]
pub(crate) struct Listeners<'m> {
    pub(crate) rows: &'m mut [ListenerRecord],
    /// Rows that were ever used.
    pub(crate) used: &'m mut u32,
    pub(super) free: Vec<u32>,
    pub(crate) listening: Listening,
    queues: Vec<Queues>,
    pub(crate) deferred: DeferredSegments,
    links: Links,
}

impl<'m> Listeners<'m> {
    /// No listener; queues through as many connections.
    pub(super) fn new(
        rows: &'m mut [ListenerRecord],
        used: &'m mut u32,
        connections: usize,
        secret: &[u8; 16],
    ) -> Self {
        Self {
            free: Vec::with_capacity(rows.len()),
            listening: Listening::new(secret),
            queues: zeroed(rows.len()),
            deferred: DeferredSegments::default(),
            links: Links::new(connections),
            rows,
            used,
        }
    }

    /// Fills in a free row, and takes connections for it from now on.
    pub(crate) fn add(
        &mut self,
        fill: impl FnOnce(&mut ListenerRecord),
    ) -> Result<ListenerId, Error> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if at(*self.used) < self.rows.len() => {
                *self.used += 1;
                *self.used - 1
            }
            None => return Err(Error::NoMemory),
        };
        self.row(index).change(|row| {
            fill(row);
            row.used = 1;
        });
        self.queues[at(index)].fast_open = Pending::default();
        self.listening.insert(index, &self.rows[at(index)]);
        Ok(self.id(index))
    }

    /// Takes no more connections for a listener; its queues are still as they were.
    pub(crate) fn stop(&mut self, index: u32) {
        self.listening.remove(index, &self.rows[at(index)]);
        self.deferred.forget(index);
        self.row(index).change(|row| {
            row.used = 0;
            row.generation = row.generation.wrapping_add(1);
        });
    }

    /// The row may be used again.
    pub(crate) fn release(&mut self, index: u32) {
        self.free.push(index);
    }

    /// The row of a listener.
    pub(crate) fn row(&mut self, index: u32) -> &mut ListenerRecord {
        &mut self.rows[at(index)]
    }

    /// Its queues.
    pub(crate) fn queues(&self, index: u32) -> &Queues {
        &self.queues[at(index)]
    }

    /// The Fast Open requests of a listener.
    pub(super) fn fast_open(&mut self, index: u32) -> &mut Pending {
        &mut self.queues[at(index)].fast_open
    }

    /// The identifier of a listener.
    pub(crate) fn id(&self, index: u32) -> ListenerId {
        ListenerId {
            index,
            generation: self.rows[at(index)].generation,
        }
    }

    /// That a listener is there.
    pub(crate) fn check(&self, id: ListenerId) -> Result<(), Error> {
        let row = self.rows.get(at(id.index)).ok_or(Error::NotFound)?;
        if row.used == 1 && row.generation == id.generation {
            Ok(())
        } else {
            Err(Error::NotFound)
        }
    }

    /// Whether no handshake may be added.
    pub(super) fn is_half_open_full(&self, listener: u32) -> bool {
        self.queues(listener).half_open.len() > self.rows[at(listener)].backlog
    }

    /// Whether no connection may be added to those that wait to be accepted.
    pub(super) fn is_accept_queue_full(&self, id: ListenerId) -> bool {
        self.check(id).is_ok()
            && self.queues(id.index).ready.len() > self.rows[at(id.index)].backlog
    }

    /// The connection that has waited longest in a queue.
    pub(crate) fn first(&self, listener: u32, queue: Flags) -> Option<u32> {
        let queues = &self.queues[at(listener)];
        if queue == Flags::HALF_OPEN {
            queues.half_open.first()
        } else {
            queues.ready.first()
        }
    }

    /// Connection `index` waits behind all others of a queue.
    pub(crate) fn push(&mut self, listener: u32, queue: Flags, index: u32) {
        let head = self.queues[at(listener)].of(queue);
        self.links.push_back(head, index);
    }

    /// Connection `index` leaves a queue.
    pub(crate) fn remove(&mut self, record: &mut ConnectionRecord, index: u32, queue: Flags) {
        // One store: it has happened or not.
        record.set(queue, false);
        let head = self.queues[at(record.listener_index)].of(queue);
        self.links.remove(head, index);
    }
}
