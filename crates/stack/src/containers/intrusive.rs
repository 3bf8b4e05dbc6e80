//! Lists threaded through arrays of links: no node is ever allocated, and zeroed memory is a valid
//! empty list, so that a table that was never touched costs no memory.
//!
//! [`Links`] with [`ListHead`] is a doubly linked list (O(1) removal from the middle); [`TurnQueue`]
//! is a first-in-first-out queue in which each index stands at most once. Neither knows what an
//! index means, and neither is thread-safe.

use zerocopy::FromZeros;

/// Widens a slot number to an array index.
pub(crate) const fn at(index: u32) -> usize {
    index as usize
}

/// Narrows an array index to a slot number; tables are checked at start to hold fewer than 2^31 slots.
pub(crate) fn slot(index: usize) -> u32 {
    u32::try_from(index).expect("invariant: a table holds fewer than 2^31 slots")
}

/// A zeroed array that costs no memory before it is touched.
pub(crate) fn zeroed<T: FromZeros>(len: usize) -> Vec<T> {
    T::new_vec_zeroed(len).expect("invariant: the derived index fits the address space")
}

/// Neighbours of one element, each stored as index + 1, 0 for none.
#[derive(Clone, Copy, Debug, FromZeros)]
struct Link {
    next: u32,
    previous: u32,
}

/// The ends of one list.
#[derive(Clone, Copy, Debug, Default, FromZeros)]
pub(crate) struct ListHead {
    first: u32,
    last: u32,
    len: u32,
}

impl ListHead {
    /// No elements.
    pub(crate) const EMPTY: Self = Self {
        first: 0,
        last: 0,
        len: 0,
    };

    /// Number of elements.
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// The oldest element.
    pub(crate) const fn first(&self) -> Option<u32> {
        self.first.checked_sub(1)
    }
}

/// Storage of the links of any number of disjoint lists over the same indexes.
#[derive(Debug)]
pub(crate) struct Links {
    links: Vec<Link>,
}

impl Links {
    /// Links for indexes below `capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            links: zeroed(capacity),
        }
    }

    /// Appends `index`, which must be in no list.
    pub(crate) fn push_back(&mut self, head: &mut ListHead, index: u32) {
        self.links[at(index)] = Link {
            next: 0,
            previous: head.last,
        };
        match head.last.checked_sub(1) {
            Some(last) => self.links[at(last)].next = index + 1,
            None => head.first = index + 1,
        }
        head.last = index + 1;
        head.len += 1;
    }

    /// Takes `index` out of the list of `head`, in which it must be.
    pub(crate) fn remove(&mut self, head: &mut ListHead, index: u32) {
        let link = self.links[at(index)];
        match link.previous.checked_sub(1) {
            Some(previous) => self.links[at(previous)].next = link.next,
            None => head.first = link.next,
        }
        match link.next.checked_sub(1) {
            Some(next) => self.links[at(next)].previous = link.previous,
            None => head.last = link.previous,
        }
        head.len -= 1;
    }

    /// Takes the oldest element.
    pub(crate) fn pop_front(&mut self, head: &mut ListHead) -> Option<u32> {
        let index = head.first()?;
        self.remove(head, index);
        Some(index)
    }
}

/// Marks the last element of a [`TurnQueue`], which has no next one.
const END: u32 = u32::MAX;

/// A queue of indexes in which each index stands at most once.
#[derive(Debug)]
pub(crate) struct TurnQueue {
    /// 0: not queued; [`END`]: the last one; otherwise the next index + 1.
    next: Vec<u32>,
    first: u32,
    last: u32,
    len: usize,
}

impl TurnQueue {
    /// A queue for indexes below `capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            next: zeroed(capacity),
            first: 0,
            last: 0,
            len: 0,
        }
    }

    /// Number of waiting indexes.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Appends `index` unless it waits already.
    pub(crate) fn push(&mut self, index: u32) {
        if self.next[at(index)] != 0 {
            return;
        }
        self.next[at(index)] = END;
        if self.len == 0 {
            self.first = index;
        } else {
            self.next[at(self.last)] = index + 1;
        }
        self.last = index;
        self.len += 1;
    }

    /// Takes the index that has waited longest.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let index = self.first;
        let next = core::mem::take(&mut self.next[at(index)]);
        self.len -= 1;
        if self.len > 0 {
            self.first = next - 1;
        }
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn an_index_waits_once_until_it_is_taken() {
        let mut queue = TurnQueue::new(4);
        for index in [2, 0, 2, 3, 0] {
            queue.push(index);
        }
        assert_eq!([queue.pop(), queue.pop()], [Some(2), Some(0)]);
        queue.push(2);
        assert_eq!(
            [queue.pop(), queue.pop(), queue.pop()],
            [Some(3), Some(2), None]
        );
    }

    proptest! {
        #[test]
        fn lists_behave_as_a_deque(operations in proptest::collection::vec((0_u8..3, 0_u32..16), 0..200)) {
            let (mut links, mut head, mut oracle) = (Links::new(16), ListHead::default(), VecDeque::new());
            for (operation, index) in operations {
                match operation {
                    0 if !oracle.contains(&index) => {
                        links.push_back(&mut head, index);
                        oracle.push_back(index);
                    }
                    1 if oracle.contains(&index) => {
                        links.remove(&mut head, index);
                        oracle.retain(|other| *other != index);
                    }
                    2 => prop_assert_eq!(links.pop_front(&mut head), oracle.pop_front()),
                    _ => {}
                }
                prop_assert_eq!(at(head.len()), oracle.len());
                prop_assert_eq!(head.first(), oracle.front().copied());
            }
        }
    }
}
