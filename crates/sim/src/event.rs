//! The list of what will happen, ordered by time and, at one time, by the order of insertion: ties
//! are broken the same way in every run.

use std::{cmp::Ordering, collections::BinaryHeap};

use crate::time::Ns;

#[derive(Debug)]
struct Entry<E> {
    at: Ns,
    order: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    // Reversed: the heap gives its largest first, and the earliest event shall be that.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// Events in the order in which they will happen.
#[derive(Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
    inserted: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            inserted: 0,
        }
    }
}

impl<E> EventQueue<E> {
    /// Adds an event.
    pub fn push(&mut self, at: Ns, event: E) {
        self.inserted += 1;
        self.heap.push(Entry {
            at,
            order: self.inserted,
            event,
        });
    }

    /// Takes the earliest event, with its time.
    pub fn pop(&mut self) -> Option<(Ns, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// When the earliest event happens.
    pub fn next_at(&self) -> Option<Ns> {
        self.heap.peek().map(|entry| entry.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_first_and_at_one_time_in_order_of_insertion() {
        let mut queue = EventQueue::default();
        for (at, name) in [(5, 'a'), (3, 'b'), (5, 'c'), (3, 'd')] {
            queue.push(at, name);
        }
        assert_eq!(queue.next_at(), Some(3));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [(3, 'b'), (3, 'd'), (5, 'a'), (5, 'c')]);
    }
}
