//! Changing the middle of the table: marks, splits, merges. Only loss and reordering come here.

use super::{
    Marks, Piece, SPARE, Table, bytes,
    run::{Run, low},
};
use crate::time::{Duration, Instant};

/// Runs that selective acknowledgements leave free for what is sent next, at most.
const RESERVE: usize = 4;

impl Table<'_> {
    /// The peer holds `[start, end)`; `visit` sees what was not known to be held. Returns how much.
    ///
    /// Where the table has no block for a new border, less is taken: it is sent again at worst.
    pub fn sack(
        &mut self,
        now: Instant,
        start: u64,
        end: u64,
        mut visit: impl FnMut(&Piece),
    ) -> u64 {
        let (start, end) = (start.max(self.extent.start), end.min(self.extent.end));
        if start >= end {
            return 0;
        }
        let mut first = self.find(start);
        if self.end_of(first) >= end && self.run(first).marks().contains(Marks::SACKED) {
            return 0;
        }
        let reserve = self.reserve();
        if self.count() + SPARE + reserve > self.runs.len() && self.compact_equal() {
            first = self.find(start);
        }
        let before = self.extent.sacked;
        let mut index = first;
        if self.start_of(first) < start {
            if !self.run(first).marks().contains(Marks::SACKED) {
                self.split(first, start, reserve);
            }
            index += 1;
        }
        while index < self.count() && self.start_of(index) < end {
            let run = self.run(index);
            if !run.marks().contains(Marks::SACKED) {
                if self.end_of(index) > end && !self.split(index, end, reserve) {
                    break;
                }
                let run = self.run(index);
                let piece = run.piece(now, self.start_of(index), self.end_of(index));
                self.forget_marks(run, piece.len());
                let others = run.marks() - Marks::LOST - Marks::RESENT;
                *self.run_mut(index) = run.marked(others | Marks::SACKED);
                self.extent.sacked += bytes(piece.len());
                visit(&piece);
            }
            index += 1;
        }
        self.join_sacked(first.saturating_sub(1), index);
        u64::from(self.extent.sacked - before)
    }

    /// Marks as lost what `is_lost` names among what is neither held nor lost. Returns how much.
    pub fn mark_lost(&mut self, now: Instant, mut is_lost: impl FnMut(&Piece) -> bool) -> u64 {
        let before = self.extent.lost;
        let mut start = self.extent.start;
        for index in 0..self.count() {
            let run = self.run(index);
            let piece = run.piece(now, start, self.end_of(index));
            start = piece.end;
            let settled = run.marks().intersects(Marks::SACKED | Marks::LOST);
            if !settled && is_lost(&piece) {
                self.forget_marks(run, piece.len());
                *self.run_mut(index) = run.marked((run.marks() - Marks::RESENT) | Marks::LOST);
                self.extent.lost += bytes(piece.len());
            }
        }
        u64::from(self.extent.lost - before)
    }

    /// Marks as lost what begins at SND.UNA and ends at `end`, if it is not held. Returns how much.
    pub fn mark_front_lost(&mut self, now: Instant, end: u64) -> u64 {
        if self.count() == 0 {
            return 0;
        }
        let end = end.min(self.extent.end);
        if self.end_of(0) > end {
            self.split(0, end, 0);
        }
        let front = self.end_of(0);
        self.mark_lost(now, |piece| piece.end <= front)
    }

    /// `[start, end)` left once more.
    pub fn resend(&mut self, now: Instant, start: u64, end: u64) {
        let (start, end) = (start.max(self.extent.start), end.min(self.extent.end));
        if start >= end {
            return;
        }
        if self.count() + SPARE > self.runs.len() {
            self.compact();
        }
        let mut index = self.find(start);
        // Without a block for a border the whole run counts as sent at some time until now.
        if self.start_of(index) < start && self.split(index, start, 0) {
            index += 1;
        }
        let first = index;
        while index < self.count() && self.start_of(index) < end {
            if !self.run(index).marks().contains(Marks::SACKED) {
                let whole = self.end_of(index) <= end || self.split(index, end, 0);
                let exact = whole && self.start_of(index) >= start;
                let old = self.run(index);
                let len = self.end_of(index) - self.start_of(index);
                self.forget_marks(old, len);
                let again = Run::sent_at(now, old.end());
                let run = if exact { again } else { old.joined(again) };
                let mut marks = Marks::RETRANSMITTED;
                if old.marks().intersects(Marks::LOST | Marks::RESENT) {
                    // A probe of the tail is sent again without having been lost.
                    marks |= Marks::RESENT;
                    self.extent.resent += bytes(len);
                }
                *self.run_mut(index) = run.marked(marks);
            }
            index += 1;
        }
        self.join_resent(first.saturating_sub(1), index);
    }

    /// The receiver has renounced, or may have: what it said that it holds is forgotten (RFC 2018 §8).
    pub fn forget_sacks(&mut self) {
        for index in 0..self.count() {
            let run = self.run(index);
            *self.run_mut(index) = run.marked(run.marks() - Marks::SACKED);
        }
        self.extent.sacked = 0;
    }

    /// What counted as lost is on its way after all.
    pub fn forget_lost(&mut self) {
        for index in 0..self.count() {
            let run = self.run(index);
            *self.run_mut(index) = run.marked(run.marks() - Marks::LOST - Marks::RESENT);
        }
        self.extent.lost = 0;
        self.extent.resent = 0;
    }

    /// Takes what `run` counts for, over `len` positions, out of the sums.
    pub(super) fn forget_marks(&mut self, run: Run, len: u64) {
        let marks = run.marks();
        if marks.is_empty() {
            return;
        }
        if marks.contains(Marks::SACKED) {
            self.extent.sacked = self.extent.sacked.saturating_sub(bytes(len));
        }
        if marks.contains(Marks::LOST) {
            self.extent.lost = self.extent.lost.saturating_sub(bytes(len));
        }
        if marks.contains(Marks::RESENT) {
            self.extent.resent = self.extent.resent.saturating_sub(bytes(len));
        }
    }

    fn reserve(&self) -> usize {
        (self.runs.len() / 10).clamp(1, RESERVE)
    }

    /// Index of the run that holds `position`, which is in flight.
    pub(super) fn find(&self, position: u64) -> usize {
        let (mut low_index, mut high_index) = (0, self.count());
        while low_index < high_index {
            let middle = usize::midpoint(low_index, high_index);
            if self.end_of(middle) <= position {
                low_index = middle + 1;
            } else {
                high_index = middle;
            }
        }
        low_index.min(self.count().saturating_sub(1))
    }

    /// Cuts run `index` at `position`, which lies inside it, if that leaves `spare` runs free.
    fn split(&mut self, index: usize, position: u64, spare: usize) -> bool {
        let count = self.count();
        if count + spare >= self.runs.len() {
            return false;
        }
        for to in (index + 1..=count).rev() {
            *self.run_mut(to) = self.run(to - 1);
        }
        *self.run_mut(index) = self.run(index).ending(low(position));
        self.extent.len += 1;
        true
    }

    /// What lies between `from` and `to` and is held needs no borders.
    fn join_sacked(&mut self, from: usize, to: usize) {
        self.join_where(from, to, usize::MAX, |lower, upper| {
            (lower.marks() & upper.marks()).contains(Marks::SACKED)
        });
    }

    /// What was sent again at one time needs no borders.
    fn join_resent(&mut self, from: usize, to: usize) {
        self.join_where(from, to, usize::MAX, |lower, upper| {
            lower.marks() == upper.marks()
                && (lower.marks() - Marks::RESENT) == Marks::RETRANSMITTED
                && lower.joined(*upper).spread() == Some(Duration::ZERO)
        });
    }

    /// Makes space: every second border between runs that are alike goes. `false`: there was none.
    fn compact_equal(&mut self) -> bool {
        self.join_where(0, usize::MAX, 2, |lower, upper| {
            lower.marks() == upper.marks()
        })
    }

    /// Makes space at any price but forgetting what is held. `false`: marks alternate everywhere.
    pub(super) fn compact(&mut self) -> bool {
        self.compact_equal()
            || self.join_where(0, usize::MAX, 2, |lower, upper| {
                !(lower.marks() | upper.marks()).contains(Marks::SACKED)
            })
    }

    /// One pass over the runs `from..=to`: neighbours that `may_join` become one, at most `group` of
    /// them. `false`: nothing changed.
    fn join_where(
        &mut self,
        from: usize,
        to: usize,
        group: usize,
        may_join: impl Fn(&Run, &Run) -> bool,
    ) -> bool {
        let count = self.count();
        if from >= count {
            return false;
        }
        let (mut kept, mut joined) = (from, 1);
        let (mut start, mut border) = (self.start_of(from), self.end_of(from));
        for next in from + 1..count {
            if next > to && kept + 1 == next {
                return false;
            }
            let (lower, upper) = (self.run(kept), self.run(next));
            let end = self.end_of(next);
            if next <= to && joined < group && may_join(&lower, &upper) {
                let both = lower.joined(upper);
                let gone = |run: Run| run.marked(run.marks() - both.marks());
                self.forget_marks(gone(lower), border - start);
                self.forget_marks(gone(upper), end - border);
                *self.run_mut(kept) = both;
                joined += 1;
            } else {
                kept += 1;
                (start, joined) = (border, 1);
                *self.run_mut(kept) = upper;
            }
            border = end;
        }
        self.extent.len -= u32::try_from(count - kept - 1).unwrap_or(0);
        kept + 1 < count
    }
}
