//! A small set of disjoint ranges of absolute positions, without heap.
//!
//! Used for received data beyond a hole (RFC 2018 §4) and, on the sender's side, for what the peer
//! has selectively acknowledged (RFC 6675 §2). Bounded: when it is full, a range that would need a
//! new entry is refused, which costs a retransmission and never memory.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Ranges at most in one set.
pub const RANGES: usize = 32;

/// `[start, end)` in absolute positions.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
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

/// Disjoint, non-touching ranges in ascending order.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RangeSet {
    ranges: [Range; RANGES],
    len: u64,
}

impl Default for RangeSet {
    fn default() -> Self {
        Self {
            ranges: [Range::default(); RANGES],
            len: 0,
        }
    }
}

impl RangeSet {
    /// The ranges, ascending.
    pub fn as_slice(&self) -> &[Range] {
        &self.ranges[..self.count()]
    }

    fn count(&self) -> usize {
        // A restored record may hold anything: never index past the array.
        usize::try_from(self.len).map_or(RANGES, |len| len.min(RANGES))
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
        self.as_slice().iter().map(|range| range.len()).sum()
    }

    /// End of the highest range.
    pub fn highest(&self) -> Option<u64> {
        self.as_slice().last().map(|range| range.end)
    }

    /// The range that holds `position`.
    pub fn containing(&self, position: u64) -> Option<Range> {
        self.as_slice()
            .iter()
            .copied()
            .find(|range| range.start <= position && position < range.end)
    }

    /// Adds `[start, end)`, merging with what it overlaps or touches. `false`: no room, nothing changed.
    pub fn insert(&mut self, start: u64, end: u64) -> bool {
        if start >= end {
            return true;
        }
        let count = self.count();
        let first = self.as_slice().partition_point(|range| range.end < start);
        let after = self.as_slice().partition_point(|range| range.start <= end);
        if first == after {
            if count == RANGES {
                return false;
            }
            self.ranges.copy_within(first..count, first + 1);
            self.ranges[first] = Range { start, end };
            self.len += 1;
            return true;
        }
        let merged = Range {
            start: start.min(self.ranges[first].start),
            end: end.max(self.ranges[after - 1].end),
        };
        self.ranges[first] = merged;
        self.ranges.copy_within(after..count, first + 1);
        self.len = u64::try_from(count - (after - first - 1)).unwrap_or(0);
        true
    }

    /// Forgets everything below `position`.
    pub fn remove_below(&mut self, position: u64) {
        let count = self.count();
        let gone = self
            .as_slice()
            .partition_point(|range| range.end <= position);
        self.ranges.copy_within(gone..count, 0);
        self.len = u64::try_from(count - gone).unwrap_or(0);
        if let Some(first) = self.ranges[..count - gone].first_mut() {
            first.start = first.start.max(position);
        }
    }

    /// Positions of `[start, end)` that are covered.
    pub fn covered(&self, start: u64, end: u64) -> u64 {
        self.as_slice()
            .iter()
            .map(|range| range.end.min(end).saturating_sub(range.start.max(start)))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

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
                if is_insert {
                    let full = set.as_slice().len() == RANGES;
                    if set.insert(start, start + len) {
                        model.extend(start..start + len);
                    } else {
                        prop_assert!(full);
                    }
                } else if len == 1 {
                    set.remove_below(start / 4);
                    model = model.split_off(&(start / 4));
                }
                let ranges: Vec<_> = set.as_slice().iter().map(|r| (r.start, r.end)).collect();
                prop_assert_eq!(ranges, model_ranges(&model));
                prop_assert_eq!(set.total(), model.len() as u64);
                prop_assert_eq!(set.covered(50, 120), model.range(50..120).count() as u64);
            }
        }
    }
}
