//! A small set of disjoint ranges of absolute positions, without heap.
//!
//! Used for received data beyond a hole (RFC 2018 §4). Bounded: when it is full, a range that would need a
//! new entry is refused, which costs a retransmission and never memory. What is in flight the other way
//! is `sent`'s.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Ranges at most in one set.
pub const RANGES: usize = 32;

/// `[start, end)` in absolute positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// First position.
    pub start: u64,
    /// One past the last position.
    pub end: u64,
}

impl Range {
    /// Number of positions.
    pub const fn len(self) -> u64 {
        self.end - self.start
    }
}

/// Low halves of a start and an end: no window spans 2^32 positions.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Entry {
    start: u32,
    end: u32,
}

/// Disjoint, non-touching ranges in ascending order.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RangeSet {
    entries: [Entry; RANGES],
    /// At or below the lowest start.
    base: u64,
    len: u64,
}

impl RangeSet {
    /// The ranges, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range> + ExactSizeIterator + '_ {
        (0..self.count()).map(|index| self.at(index))
    }

    fn count(&self) -> usize {
        // A restored record may hold anything: never index past the array.
        usize::try_from(self.len).map_or(RANGES, |len| len.min(RANGES))
    }

    fn at(&self, index: usize) -> Range {
        let Entry { start, end } = self.entries[index];
        let position = |half: u32| self.base + u64::from(half.wrapping_sub(low(self.base)));
        Range {
            start: position(start),
            end: position(end),
        }
    }

    fn put(&mut self, index: usize, range: Range) {
        self.entries[index] = Entry {
            start: low(range.start),
            end: low(range.end),
        };
    }

    /// Whether there is no range.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Positions covered in all.
    pub fn total(&self) -> u64 {
        self.iter().map(Range::len).sum()
    }

    /// The lowest range.
    pub fn first(&self) -> Option<Range> {
        (!self.is_empty()).then(|| self.at(0))
    }

    /// The range that holds `position`.
    pub fn containing(&self, position: u64) -> Option<Range> {
        self.iter()
            .find(|range| range.start <= position && position < range.end)
    }

    /// Adds `[start, end)`, merging with what it overlaps or touches. `false`: no room, nothing changed.
    pub fn insert(&mut self, start: u64, end: u64) -> bool {
        if start >= end {
            return true;
        }
        let count = self.count();
        let highest = if count == 0 {
            self.base = start;
            end
        } else {
            self.at(count - 1).end.max(end)
        };
        if highest - start.min(self.base) >= 1 << 32 {
            return false;
        }
        let first = self.iter().take_while(|range| range.end < start).count();
        let after = self.iter().take_while(|range| range.start <= end).count();
        if first == after {
            if count == RANGES {
                return false;
            }
            self.base = self.base.min(start);
            self.entries.copy_within(first..count, first + 1);
            self.put(first, Range { start, end });
            self.len += 1;
            return true;
        }
        let merged = Range {
            start: start.min(self.at(first).start),
            end: end.max(self.at(after - 1).end),
        };
        self.base = self.base.min(start);
        self.put(first, merged);
        self.entries.copy_within(after..count, first + 1);
        self.len = u64::try_from(count - (after - first - 1)).unwrap_or(0);
        true
    }

    /// Forgets everything below `position`.
    pub fn remove_below(&mut self, position: u64) {
        let count = self.count();
        let gone = self
            .iter()
            .take_while(|range| range.end <= position)
            .count();
        if gone < count {
            let first = self.at(gone);
            let kept = Range {
                start: first.start.max(position),
                ..first
            };
            self.entries.copy_within(gone..count, 0);
            self.put(0, kept);
            self.base = kept.start;
        }
        self.len = u64::try_from(count - gone).unwrap_or(0);
    }
}

fn low(position: u64) -> u32 {
    let [a, b, c, d, ..] = position.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Ranges lie on both sides of 2^32.
    const BASE: u64 = (1 << 32) - 100;

    #[test]
    fn a_span_that_32_bits_cannot_tell_is_refused() {
        let mut set = RangeSet::default();
        assert!(set.insert(5, 10));
        assert!(!set.insert(1 << 33, (1 << 33) + 1));
        assert_eq!(set.first(), Some(Range { start: 5, end: 10 }));
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
        fn agrees_with_a_set_of_positions(ops in proptest::collection::vec((0_u64..200, 1_u64..9, any::<bool>()), 1..120)) {
            let mut set = RangeSet::default();
            let mut model = BTreeSet::new();
            for (start, len, is_insert) in ops {
                let start = start + BASE;
                if is_insert {
                    let full = set.iter().len() == RANGES;
                    if set.insert(start, start + len) {
                        model.extend(start..start + len);
                    } else {
                        prop_assert!(full);
                    }
                } else if len == 1 {
                    let below = BASE + (start - BASE) / 4;
                    set.remove_below(below);
                    model = model.split_off(&below);
                }
                let ranges: Vec<_> = set.iter().map(|r| (r.start, r.end)).collect();
                prop_assert_eq!(ranges, model_ranges(&model));
                prop_assert_eq!(set.total(), model.len() as u64);
            }
        }
    }
}
