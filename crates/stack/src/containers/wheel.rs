//! The timer wheel: one deadline per index, O(1) to set and to cancel, however many there are.
//!
//! Hierarchical timing wheels (Varghese and Lauck 1987, scheme 6): six levels of 64 slots over
//! 16 µs ticks span 12 days; a later deadline waits in the last slot and is placed again. Each slot
//! knows a lower bound of its deadlines, so that the wheel says precisely when it must be asked next
//! and nothing ever fires early. Cascading touches an index at most five times.

use crate::containers::intrusive::{at, zeroed};
use zerocopy::FromZeros;

const LEVELS: usize = 6;
const SLOTS: usize = 64;
const SLOT_BITS: u32 = 6;
/// A tick is 2^4 µs: fine enough that a slot holds few timers of a crowd, and scanning it is cheap.
const TICK_BITS: u32 = 4;
/// Furthest distance that a slot of the top level can tell apart from the current one, in ticks.
const HORIZON_TICKS: u64 = (1 << (SLOT_BITS * 6)) - (1 << (SLOT_BITS * 5)) - 1;

/// Place of an index that is not in the wheel.
const UNSET: u32 = 0;
/// Place of an index whose deadline has passed and that waits to be taken.
const EXPIRED: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, FromZeros)]
struct Node {
    /// Index + 1, 0 for none; as `previous`.
    next: u32,
    previous: u32,
    /// [`UNSET`], [`EXPIRED`], or 1 + level × 64 + slot.
    place: u32,
    padding: u32,
    deadline_us: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct WheelSlot {
    first: u32,
    /// Not later than any deadline in the slot.
    earliest_us: u64,
}

/// Deadlines of indexes below a capacity.
#[derive(Debug)]
pub(crate) struct Wheel {
    nodes: Vec<Node>,
    levels: Box<[[WheelSlot; SLOTS]; LEVELS]>,
    occupied: [u64; LEVELS],
    current_tick: u64,
    expired: u32,
    steps: u64,
}

impl Wheel {
    /// A wheel for indexes below `capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            nodes: zeroed(capacity),
            levels: Box::new([[WheelSlot::default(); SLOTS]; LEVELS]),
            occupied: [0; LEVELS],
            current_tick: 0,
            expired: 0,
            steps: 0,
        }
    }

    /// Nodes looked at or moved since the start: what the tests bound instead of time.
    pub(crate) const fn steps(&self) -> u64 {
        self.steps
    }

    /// The deadline of `index`.
    #[inline]
    pub(crate) fn deadline_us(&self, index: u32) -> Option<u64> {
        let node = &self.nodes[at(index)];
        (node.place != UNSET).then_some(node.deadline_us)
    }

    /// Sets or moves the deadline of `index`.
    pub(crate) fn set(&mut self, index: u32, deadline_us: u64) {
        self.cancel(index);
        self.place(index, deadline_us);
    }

    /// Forgets the deadline of `index`.
    pub(crate) fn cancel(&mut self, index: u32) {
        let node = self.nodes[at(index)];
        if node.place == UNSET {
            return;
        }
        self.steps += 1;
        match node.previous.checked_sub(1) {
            Some(previous) => self.nodes[at(previous)].next = node.next,
            None => self.set_first(node.place, node.next),
        }
        if let Some(next) = node.next.checked_sub(1) {
            self.nodes[at(next)].previous = node.previous;
        }
        self.nodes[at(index)].place = UNSET;
    }

    /// When the wheel must next be asked: not later than the first deadline, and rarely earlier.
    pub(crate) fn next_deadline_us(&self) -> Option<u64> {
        if let Some(index) = self.expired.checked_sub(1) {
            return Some(self.nodes[at(index)].deadline_us);
        }
        self.first_slot()
            .map(|(level, slot, _)| self.levels[level][slot].earliest_us)
    }

    /// Takes one index whose deadline is not after `now_us`; call until `None`.
    pub(crate) fn pop_expired(&mut self, now_us: u64) -> Option<u32> {
        if self.expired == 0 {
            self.advance(now_us);
        }
        let index = self.expired.checked_sub(1)?;
        self.cancel(index);
        Some(index)
    }

    /// Moves everything that is due by `now_us` to the expired list.
    fn advance(&mut self, now_us: u64) {
        let now_tick = now_us >> TICK_BITS;
        while let Some((level, slot, start_tick)) = self.first_slot() {
            if start_tick > now_tick {
                break;
            }
            self.current_tick = self.current_tick.max(start_tick);
            if level > 0 {
                self.take_slot(level, slot, |_| false);
                continue;
            }
            if self.levels[0][slot].earliest_us > now_us {
                return;
            }
            self.take_slot(0, slot, |deadline_us| deadline_us <= now_us);
            if self.occupied[0] & (1 << slot) != 0 {
                return; // The rest of this tick is still to come.
            }
        }
        self.current_tick = self.current_tick.max(now_tick);
    }

    /// Empties a slot: what `is_due` goes to the expired list, the rest is placed again.
    fn take_slot(&mut self, level: usize, slot: usize, is_due: impl Fn(u64) -> bool) {
        let mut rest = core::mem::take(&mut self.levels[level][slot]).first;
        self.occupied[level] &= !(1 << slot);
        while let Some(index) = rest.checked_sub(1) {
            let Node {
                next, deadline_us, ..
            } = self.nodes[at(index)];
            rest = next;
            if is_due(deadline_us) {
                self.link(index, deadline_us, EXPIRED);
            } else {
                self.place(index, deadline_us);
            }
        }
    }

    /// Puts an index that is in no list into the slot of its deadline.
    fn place(&mut self, index: u32, deadline_us: u64) {
        let tick = (deadline_us >> TICK_BITS).clamp(
            self.current_tick,
            self.current_tick.saturating_add(HORIZON_TICKS),
        );
        let differing_bits = u64::BITS - (tick ^ self.current_tick).leading_zeros();
        let level = (differing_bits.saturating_sub(1) / SLOT_BITS).min(5);
        let slot = (tick >> (level * SLOT_BITS)) % 64;
        let place = 1 + level * 64 + u32::try_from(slot).expect("invariant: below 64");
        let (level, slot) = unpack(place);
        let entry = &mut self.levels[level][slot];
        // What lies beyond the horizon must be placed again when its stand-in tick comes.
        let bound_us = deadline_us.min(tick.saturating_add(1) << TICK_BITS);
        entry.earliest_us = if entry.first == 0 {
            bound_us
        } else {
            entry.earliest_us.min(bound_us)
        };
        self.occupied[level] |= 1 << slot;
        self.link(index, deadline_us, place);
    }

    fn link(&mut self, index: u32, deadline_us: u64, place: u32) {
        self.steps += 1;
        let first = if place == EXPIRED {
            self.expired
        } else {
            let (level, slot) = unpack(place);
            self.levels[level][slot].first
        };
        if let Some(first) = first.checked_sub(1) {
            self.nodes[at(first)].previous = index + 1;
        }
        self.nodes[at(index)] = Node {
            next: first,
            previous: 0,
            place,
            padding: 0,
            deadline_us,
        };
        self.set_first(place, index + 1);
    }

    fn set_first(&mut self, place: u32, first: u32) {
        if place == EXPIRED {
            self.expired = first;
            return;
        }
        let (level, slot) = unpack(place);
        self.levels[level][slot].first = first;
        if first == 0 {
            self.occupied[level] &= !(1 << slot);
        }
    }

    /// The occupied slot whose deadlines come first, and the tick at which it begins.
    ///
    /// A lower level always comes before a higher one: its slots share the current slot above.
    fn first_slot(&self) -> Option<(usize, usize, u64)> {
        let (level, occupied) = self
            .occupied
            .iter()
            .enumerate()
            .find(|(_, occupied)| **occupied != 0)?;
        let shift = SLOT_BITS * u32::try_from(level).expect("invariant: six levels");
        let current = self.current_tick >> shift;
        let ahead = occupied
            .rotate_right(u32::try_from(current % 64).expect("invariant: below 64"))
            .trailing_zeros();
        let start = current + u64::from(ahead);
        let slot = usize::try_from(start % 64).expect("invariant: below 64");
        Some((level, slot, start << shift))
    }
}

fn unpack(place: u32) -> (usize, usize) {
    (at((place - 1) / 64), at((place - 1) % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::{BTreeSet, BinaryHeap};

    fn drain(wheel: &mut Wheel, now_us: u64) -> BTreeSet<u32> {
        std::iter::from_fn(|| wheel.pop_expired(now_us)).collect()
    }

    #[test]
    fn nothing_fires_a_microsecond_early() {
        let mut wheel = Wheel::new(1);
        for deadline in [1, 15, 16, 1_024, 200_001, 60_000_007, 1 << 41] {
            let mut wheel_again = Wheel::new(1);
            for wheel in [&mut wheel, &mut wheel_again] {
                wheel.set(0, deadline);
                assert_eq!(wheel.pop_expired(deadline - 1), None);
                assert_eq!(wheel.pop_expired(deadline), Some(0));
                assert_eq!(wheel.next_deadline_us(), None);
            }
        }
    }

    #[test]
    fn a_deadline_in_the_past_is_due_at_once() {
        let mut wheel = Wheel::new(2);
        assert_eq!(wheel.pop_expired(1_000_000), None);
        wheel.set(1, 3);
        assert_eq!(wheel.next_deadline_us(), Some(3));
        assert_eq!(wheel.pop_expired(1_000_000), Some(1));
    }

    #[test]
    fn setting_moving_and_cancelling_cost_the_same_with_100_000_timers() {
        let mut wheel = Wheel::new(100_000);
        for index in 0..100_000 {
            wheel.set(index, 200_000 + u64::from(index));
        }
        let before = wheel.steps();
        for index in 0..1_000 {
            wheel.set(index, 400_000);
        }
        assert_eq!(
            wheel.steps() - before,
            2_000,
            "one unlink and one link each"
        );
        let before = wheel.steps();
        assert_eq!(drain(&mut wheel, 500_000).len(), 100_000);
        assert!(
            wheel.steps() - before <= 100_000 * 7,
            "five cascades, one expiry, one removal at most"
        );
    }

    #[derive(Debug, Clone)]
    enum Operation {
        Set(u32, u64),
        Cancel(u32),
        Advance(u64),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        let span = prop_oneof![0_u64..40, 0_u64..5_000, 0_u64..70_000_000, 0_u64..1 << 44];
        prop_oneof![
            4 => (0_u32..24, span.clone()).prop_map(|(index, after)| Operation::Set(index, after)),
            1 => (0_u32..24).prop_map(Operation::Cancel),
            3 => span.prop_map(Operation::Advance),
        ]
    }

    proptest! {
        #[test]
        fn the_wheel_agrees_with_a_heap(operations in proptest::collection::vec(operation(), 0..120)) {
            let (mut wheel, mut heap, mut now) = (Wheel::new(24), BinaryHeap::new(), 0_u64);
            let mut deadlines = [None; 24];
            for operation in operations {
                match operation {
                    Operation::Set(index, after) => {
                        let deadline = (now + after).saturating_sub(7);
                        wheel.set(index, deadline);
                        deadlines[at(index)] = Some(deadline);
                        heap.push(Reverse((deadline, index)));
                    }
                    Operation::Cancel(index) => {
                        wheel.cancel(index);
                        deadlines[at(index)] = None;
                    }
                    Operation::Advance(span) => now += span,
                }
                let mut expected = BTreeSet::new();
                if matches!(operation, Operation::Advance(_)) {
                    while let Some(Reverse((deadline, index))) = heap.peek().copied().filter(|top| top.0.0 <= now) {
                        heap.pop();
                        if deadlines[at(index)] == Some(deadline) {
                            deadlines[at(index)] = None;
                            expected.insert(index);
                        }
                    }
                    prop_assert_eq!(drain(&mut wheel, now), expected);
                }
                let first = deadlines.iter().flatten().min();
                prop_assert!(wheel.next_deadline_us() <= first.copied(), "asked too late");
                prop_assert_eq!(wheel.next_deadline_us().is_some(), first.is_some());
                for (index, deadline) in (0..).zip(deadlines) {
                    prop_assert_eq!(wheel.deadline_us(index), deadline);
                }
            }
        }

        #[test]
        fn following_the_announced_deadlines_fires_each_timer_exactly_on_time(
            spans in proptest::collection::vec(0_u64..1 << 38, 1..24)
        ) {
            let mut wheel = Wheel::new(24);
            for (index, span) in (0..).zip(&spans) {
                wheel.set(index, *span);
            }
            let mut asked = 0;
            while let Some(now) = wheel.next_deadline_us() {
                asked += 1;
                prop_assert!(asked <= spans.len() * 8, "asked without progress");
                while let Some(index) = wheel.pop_expired(now) {
                    prop_assert_eq!(spans[at(index)], now);
                }
            }
        }
    }
}
