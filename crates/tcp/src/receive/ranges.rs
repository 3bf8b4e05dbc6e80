//! A set of disjoint ranges of absolute positions: received data beyond a hole (RFC 2018 §4).
//!
//! A few ranges fit in the connection's row. When a whole window arrives with every other segment missing, as
//! after a slow start that met the end of a queue, thousands are needed: then the set moves to a block that
//! the owner of the receive window lends, and back when few are left. Bounded: without a block, a range that
//! would need a new entry is refused, which costs a retransmission and never memory. What is in flight the
//! other way is `sent`'s.

use crate::receive::receive_window::ReceiveWindow;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Ranges that fit in the connection's row.
pub const RANGES: usize = 8;

/// `[start, end)` in absolute positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// First position.
    pub start: u64,
    /// One past the last position.
    pub end: u64,
}

/// Low halves of a start and an end: no window spans 2^32 positions.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RangeSlot {
    start: u32,
    end: u32,
}

impl RangeSlot {
    pub(crate) fn of(range: Range) -> Self {
        Self {
            start: low(range.start),
            end: low(range.end),
        }
    }

    /// The range, whose positions are at or a little above `base`.
    pub(crate) fn after(self, base: u64) -> Range {
        let position = |half: u32| base + u64::from(half.wrapping_sub(low(base)));
        Range {
            start: position(self.start),
            end: position(self.end),
        }
    }
}

/// Where in its slots a set lies, and how much it covers.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Extent {
    /// At or below the lowest start.
    base: u64,
    /// Slot of the lowest range.
    head: u32,
    len: u32,
    /// Positions covered in all.
    total: u32,
}

/// Disjoint, non-touching ranges in ascending order.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RangeSet {
    extent: Extent,
    /// The block that holds the ranges; 0: they are here.
    block: u32,
    slots: [RangeSlot; RANGES],
}

impl RangeSet {
    /// Whether there is no range.
    pub const fn is_empty(&self) -> bool {
        self.extent.len == 0
    }

    /// Positions covered in all.
    pub fn total(&self) -> u64 {
        u64::from(self.extent.total)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.extent = Extent::default();
    }

    /// The block that the set holds, which is the caller's again; 0: none. The ranges are gone with it.
    pub fn leave_block(&mut self) -> u32 {
        let block = core::mem::take(&mut self.block);
        if block > 0 {
            self.clear();
        }
        block
    }

    /// The block that the set holds; 0: none.
    pub const fn block(&self) -> u32 {
        self.block
    }

    /// The first part of `[start, end)` that is covered.
    pub fn overlap(
        &mut self,
        start: u64,
        end: u64,
        window: &mut dyn ReceiveWindow,
    ) -> Option<Range> {
        let view = self.view(window);
        let first = view.count_below(|range| range.end <= start);
        let held = (first < view.count()).then(|| view.at(first))?;
        (held.start < end).then(|| Range {
            start: held.start.max(start),
            end: held.end.min(end),
        })
    }

    /// Adds `[start, end)`, which is not empty, and returns what it became with all that it overlaps or
    /// touches. `None`: no block, nothing changed.
    pub fn insert(
        &mut self,
        start: u64,
        end: u64,
        window: &mut dyn ReceiveWindow,
    ) -> Option<Range> {
        let mut inserted = self.view(window).insert(start, end);
        if inserted == Err(Refused::Full) && self.block == 0 && self.move_out(window) {
            inserted = self.view(window).insert(start, end);
        }
        inserted.ok()
    }

    /// Everything below `position` has arrived: forgets it, and returns how far it reaches with the range
    /// that begins there.
    pub fn advance(&mut self, position: u64, window: &mut dyn ReceiveWindow) -> u64 {
        let reached = self.view(window).advance(position);
        if self.block > 0 && usize::try_from(self.extent.len).is_ok_and(|len| len <= RANGES / 2) {
            self.move_in(window);
        }
        reached
    }

    fn view<'a>(&'a mut self, window: &'a mut dyn ReceiveWindow) -> View<'a> {
        if self.block > 0 {
            if let Some(slots) = window.block(self.block) {
                return View::new(&mut self.extent, slots);
            }
            // Whoever lent it knows nothing of it: what it held is as if it had never arrived.
            self.leave_block();
        }
        View::new(&mut self.extent, &mut self.slots)
    }

    fn move_out(&mut self, window: &mut dyn ReceiveWindow) -> bool {
        let Some(block) = window.claim_block() else {
            return false;
        };
        let held = View::new(&mut self.extent, &mut self.slots).held();
        let Some(target) = window
            .block(block)
            .and_then(|slots| slots.get_mut(..held.len()))
        else {
            window.give_back_block(block);
            return false;
        };
        target.copy_from_slice(&self.slots[held]);
        self.extent.head = 0;
        self.block = block;
        true
    }

    fn move_in(&mut self, window: &mut dyn ReceiveWindow) {
        let view = self.view(window);
        let (held, mut few) = (view.held(), [RangeSlot::default(); RANGES]);
        few[..held.len()].copy_from_slice(&view.slots[held]);
        self.slots = few;
        self.extent.head = 0;
        window.give_back_block(core::mem::take(&mut self.block));
    }

    /// How many there are.
    #[cfg(test)]
    pub const fn count(&self) -> u32 {
        self.extent.len
    }

    #[cfg(test)]
    fn ranges(&mut self, window: &mut dyn ReceiveWindow) -> Vec<(u64, u64)> {
        let view = self.view(window);
        (0..view.count())
            .map(|index| (view.at(index).start, view.at(index).end))
            .collect()
    }
}

/// Why a range was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// It needs a slot, and there is none.
    Full,
    /// 32 bits cannot tell its positions from others.
    TooFar,
}

/// A set and its slots. What is held lies in a row, with free slots before it and after it.
struct View<'a> {
    extent: &'a mut Extent,
    slots: &'a mut [RangeSlot],
}

impl<'a> View<'a> {
    fn new(extent: &'a mut Extent, slots: &'a mut [RangeSlot]) -> Self {
        // A restored record may hold anything: never index past the slots.
        let most = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        extent.head = extent.head.min(most);
        extent.len = extent.len.min(most - extent.head);
        Self { extent, slots }
    }

    fn held(&self) -> core::ops::Range<usize> {
        let head = usize::try_from(self.extent.head).unwrap_or(0);
        head..head + self.count()
    }

    fn count(&self) -> usize {
        usize::try_from(self.extent.len).unwrap_or(0)
    }

    fn at(&self, index: usize) -> Range {
        self.slots[self.held()][index].after(self.extent.base)
    }

    fn put(&mut self, index: usize, range: Range) {
        let held = self.held();
        self.slots[held][index] = RangeSlot::of(range);
    }

    /// How many ranges there are before the first for which `is_below` does not hold.
    fn count_below(&self, is_below: impl Fn(Range) -> bool) -> usize {
        let base = self.extent.base;
        self.slots[self.held()].partition_point(|slot| is_below(slot.after(base)))
    }

    fn insert(&mut self, start: u64, end: u64) -> Result<Range, Refused> {
        let count = self.count();
        let highest = if count == 0 {
            self.extent.base = start;
            end
        } else {
            self.at(count - 1).end.max(end)
        };
        if highest - start.min(self.extent.base) >= 1 << 32 {
            return Err(Refused::TooFar);
        }
        let first = self.count_below(|range| range.end < start);
        let after = self.count_below(|range| range.start <= end);
        let mut merged = Range { start, end };
        if first == after {
            if !self.open(first) {
                return Err(Refused::Full);
            }
        } else {
            merged.start = start.min(self.at(first).start);
            merged.end = end.max(self.at(after - 1).end);
            let covered: u32 = (first..after).map(|index| self.len_of(index)).sum();
            self.extent.total = self.extent.total.saturating_sub(covered);
            self.close(first + 1, after);
        }
        self.extent.base = self.extent.base.min(start);
        self.put(first, merged);
        self.extent.total = self.extent.total.saturating_add(self.len_of(first));
        Ok(merged)
    }

    fn advance(&mut self, position: u64) -> u64 {
        let mut reached = position;
        while let Some(first) = (self.count() > 0).then(|| self.at(0)) {
            if first.start > reached {
                break;
            }
            reached = reached.max(first.end);
            self.extent.total = self.extent.total.saturating_sub(self.len_of(0));
            self.extent.head += 1;
            self.extent.len -= 1;
        }
        if self.count() > 0 {
            self.extent.base = self.at(0).start;
        } else {
            *self.extent = Extent::default();
        }
        reached
    }

    fn len_of(&self, index: usize) -> u32 {
        let RangeSlot { start, end } = self.slots[self.held()][index];
        end.wrapping_sub(start)
    }

    /// Makes a free slot before range `index`: whichever side is shorter moves. `false`: all are taken.
    fn open(&mut self, index: usize) -> bool {
        let held = self.held();
        let middle = held.start + index;
        let is_front_shorter = index < held.len() - index;
        if held.start > 0 && (is_front_shorter || held.end == self.slots.len()) {
            self.slots.copy_within(held.start..middle, held.start - 1);
            self.extent.head -= 1;
        } else if held.end < self.slots.len() {
            self.slots.copy_within(middle..held.end, middle + 1);
        } else {
            return false;
        }
        self.extent.len += 1;
        true
    }

    /// Takes the ranges `from..to` out.
    fn close(&mut self, from: usize, to: usize) {
        if from >= to {
            return;
        }
        let held = self.held();
        self.slots
            .copy_within(held.start + to..held.end, held.start + from);
        self.extent.len -= u32::try_from(to - from).unwrap_or(0);
    }
}

fn low(position: u64) -> u32 {
    let [a, b, c, d, ..] = position.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlightPool;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Ranges lie on both sides of 2^32.
    const BASE: u64 = (1 << 32) - 100;

    /// Lends at most one block of so many slots.
    struct BlockPool {
        slots: Vec<RangeSlot>,
        is_lent: bool,
    }

    impl BlockPool {
        fn of(slots: usize) -> Self {
            Self {
                slots: vec![RangeSlot::default(); slots],
                is_lent: false,
            }
        }
    }

    impl ReceiveWindow for BlockPool {
        fn write(&mut self, _offset: u64, _data: &[u8]) {}

        fn claim_block(&mut self) -> Option<u32> {
            let is_free = !self.is_lent && !self.slots.is_empty();
            self.is_lent |= is_free;
            is_free.then_some(7)
        }

        fn block(&mut self, block: u32) -> Option<&mut [RangeSlot]> {
            (self.is_lent && block == 7).then_some(&mut self.slots)
        }

        fn give_back_block(&mut self, block: u32) {
            assert_eq!((block, self.is_lent), (7, true));
            self.is_lent = false;
        }

        fn flights(&mut self) -> &mut dyn FlightPool {
            unreachable!("ranges do not fly")
        }
    }

    #[test]
    fn a_span_that_32_bits_cannot_tell_is_refused() {
        let (mut set, mut none) = (RangeSet::default(), BlockPool::of(0));
        assert!(set.insert(5, 10, &mut none).is_some());
        assert_eq!(set.insert(1 << 33, (1 << 33) + 1, &mut none), None);
        assert_eq!(set.ranges(&mut none), [(5, 10)]);
    }

    #[test]
    fn every_other_segment_of_a_window_finds_block_and_leaves_it_when_the_holes_are_filled() {
        let (mut set, mut block_pool) = (RangeSet::default(), BlockPool::of(1_000));
        for nth in 0..1_000 {
            assert!(
                set.insert(10 + 20 * nth, 20 + 20 * nth, &mut block_pool)
                    .is_some()
            );
        }
        assert_eq!((set.total(), block_pool.is_lent), (10_000, true));
        assert_eq!(
            set.insert(90_000, 90_010, &mut block_pool),
            None,
            "all slots are taken"
        );
        for nth in 0..1_000 {
            assert_eq!(set.advance(10 + 20 * nth, &mut block_pool), 20 + 20 * nth);
        }
        assert_eq!((set.total(), block_pool.is_lent), (0, false));
    }

    #[test]
    fn a_block_that_is_gone_is_as_if_nothing_had_arrived() {
        let (mut set, mut block_pool) = (RangeSet::default(), BlockPool::of(100));
        for nth in 0..50 {
            set.insert(10 + 20 * nth, 20 + 20 * nth, &mut block_pool);
        }
        block_pool.is_lent = false;
        assert_eq!(set.advance(10, &mut block_pool), 10);
        assert!(set.is_empty());
        assert!(set.insert(40, 50, &mut block_pool).is_some());
    }

    fn model_ranges(model: &BTreeSet<u64>) -> Vec<(u64, u64)> {
        let mut out: Vec<(u64, u64)> = Vec::new();
        for &p in model {
            match out.last_mut() {
                Some(last) if last.1 == p => last.1 = p + 1,
                _ => out.push((p, p + 1)),
            }
        }
        out
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_of_positions(
            slots in prop_oneof![Just(0_usize), Just(12), Just(64)],
            ops in proptest::collection::vec((0_u64..200, 1_u64..9, any::<bool>()), 1..120),
        ) {
            let (mut set, mut block_pool) = (RangeSet::default(), BlockPool::of(slots));
            let mut model = BTreeSet::new();
            for (start, len, is_insert) in ops {
                let start = start + BASE;
                if is_insert {
                    let full = model_ranges(&model).len() >= slots.max(RANGES);
                    if let Some(merged) = set.insert(start, start + len, &mut block_pool) {
                        model.extend(start..start + len);
                        prop_assert!((merged.start..merged.end).all(|p| model.contains(&p)));
                        prop_assert!(!model.contains(&merged.end));
                    } else {
                        prop_assert!(full);
                    }
                } else if len == 1 {
                    let below = BASE + (start - BASE) / 4;
                    let reached = set.advance(below, &mut block_pool);
                    model = model.split_off(&below);
                    let mut expected = below;
                    while model.remove(&expected) {
                        expected += 1;
                    }
                    prop_assert_eq!(reached, expected);
                } else {
                    let held = set.overlap(start, start + len, &mut block_pool);
                    let first = (start..start + len).find(|p| model.contains(p));
                    prop_assert_eq!(held.map(|range| range.start), first);
                }
                prop_assert_eq!(set.ranges(&mut block_pool), model_ranges(&model));
                prop_assert_eq!(set.total(), model.len() as u64);
            }
        }
    }
}
