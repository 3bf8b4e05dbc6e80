//! The flows that need a way: what each remembers of it, which wait for a neighbour, which may go on, which cannot.
//! A flow is a row of the connection table, known here by its number.

use crate::containers::intrusive::{Links, TurnQueue, at, slot, zeroed};
use crate::link::neighbour::Neighbours;
use zerocopy::FromZeros;

/// What a flow remembers of its way. All zero: nothing.
#[derive(Clone, Copy, Debug, FromZeros)]
pub(super) struct Path {
    /// Generation of the routes when the rest was found.
    pub(super) route_generation: u32,
    pub(super) neighbour_generation: u32,
    /// Neighbour + 1; 0: none is needed.
    pub(super) neighbour: u32,
    /// Neighbour + 1 for which the flow waits; 0: it does not wait.
    waiting_on: u32,
    pub(super) interface: u16,
    padding: u16,
}

/// All flows.
#[derive(Debug)]
pub(crate) struct Flows {
    pub(super) paths: Vec<Path>,
    /// Flows that wait for a neighbour.
    waiter_links: Links,
    /// Flows that may want to send.
    pub(crate) senders: TurnQueue,
    /// Flows whose neighbour does not answer, to be told of it.
    pub(crate) failed: TurnQueue,
}

impl Flows {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            paths: zeroed(capacity),
            waiter_links: Links::new(capacity),
            senders: TurnQueue::new(capacity),
            failed: TurnQueue::new(capacity),
        }
    }

    /// Whether a flow waits for a neighbour.
    pub(crate) fn is_waiting(&self, index: usize) -> bool {
        self.paths[index].waiting_on != 0
    }

    /// Flow `index` has something to send.
    #[inline]
    pub(crate) fn queue(&mut self, index: u32) {
        if !self.is_waiting(at(index)) {
            self.senders.push(index);
        }
    }

    /// Flow `index` waits for neighbour `n`.
    pub(super) fn wait_for(&mut self, index: usize, n: u32, neighbours: &mut Neighbours) {
        self.paths[index].waiting_on = n + 1;
        let waiters = &mut neighbours.entry_mut(n).waiters;
        self.waiter_links.push_back(waiters, slot(index));
    }

    /// Takes the flow that has waited longest for neighbour `n` out of its list.
    pub(super) fn pop_waiter(&mut self, n: u32, neighbours: &mut Neighbours) -> Option<u32> {
        let waiters = &mut neighbours.entry_mut(n).waiters;
        let index = self.waiter_links.pop_front(waiters)?;
        self.paths[at(index)].waiting_on = 0;
        Some(index)
    }

    /// Flow `index` is done with its way.
    pub(crate) fn forget(&mut self, index: usize, neighbours: &mut Neighbours) {
        let path = core::mem::replace(&mut self.paths[index], Path::new_zeroed());
        if let Some(n) = path.waiting_on.checked_sub(1) {
            let waiters = &mut neighbours.entry_mut(n).waiters;
            self.waiter_links.remove(waiters, slot(index));
        }
    }
}
