//! What is in flight: when each byte last left, and what is known of its fate.
//!
//! The table that RACK (RFC 8985 §5.2) keeps for each segment and RFC 6675 §2 calls the scoreboard, in one:
//! runs of neighbouring positions with the time of their last transmission and three marks. A segment of
//! 64 KiB is one run until an ACK splits it. There is room for [`RUNS`]; when it runs out, neighbours merge
//! so that the table knows less, never something false: a merged run was sent between two times, and
//! counts as selectively acknowledged, or as lost, only if both parts were. What to conclude from the
//! times is `rack`'s business, what to send again `recovery`'s.

mod edit;
mod run;
#[cfg(test)]
mod tests;

use crate::time::{Duration, Instant};
use run::{Run, low};
use zerocopy::{FromZeros, Immutable, KnownLayout};

pub(crate) use run::{Marks, Piece};

/// Runs at most.
pub(crate) const RUNS: usize = 40;

/// The runs of `[start, end)`, without gaps, in a ring.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Sent {
    /// SND.UNA while anything is in flight.
    start: u64,
    /// Highest position sent, plus one.
    end: u64,
    sacked: u64,
    lost: u64,
    /// Index of the first run.
    head: u16,
    len: u16,
    /// One past the probe of the path MTU in flight, the low half of its position; see `pmtud`.
    pub path_probe_end: u32,
    runs: [Run; RUNS],
}

impl Sent {
    /// Whether nothing is in flight.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Positions selectively acknowledged.
    pub const fn sacked(&self) -> u64 {
        self.sacked
    }

    /// Positions that count as lost and were not sent again since.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Positions that are thought to be in the network (RFC 8985 §9.3, the pipe of RFC 6675 §4).
    pub fn in_flight(&self) -> u64 {
        (self.end - self.start).saturating_sub(self.sacked + self.lost)
    }

    /// New data left: `[start, end)`, where `start` is the highest position sent so far, plus one.
    ///
    /// It joins the last run if that is plain and began to leave within `quantum`.
    pub fn append(&mut self, now: Instant, start: u64, end: u64, quantum: Duration) {
        if self.is_empty() {
            (self.start, self.end) = (start, start);
            (self.sacked, self.lost) = (0, 0);
        }
        let count = self.count();
        let fresh = Run::sent_at(now, low(end));
        if count > 0 {
            let tail = self.run(count - 1);
            let both = tail.joined(fresh);
            let plain = tail.marks().is_empty();
            if plain && both.spread().is_some_and(|spread| spread <= quantum) {
                *self.run_mut(count - 1) = both;
                self.end = end;
                return;
            }
        }
        if count == RUNS && !self.compact() {
            self.widen_tail(fresh, end);
            return;
        }
        self.end = end;
        let count = self.count();
        *self.run_mut(count) = fresh;
        self.len += 1;
    }

    /// No room at all, which `compact` leaves only when marks alternate: the last run grows, and what
    /// it was known to be is forgotten.
    fn widen_tail(&mut self, fresh: Run, end: u64) {
        let last = self.count() - 1;
        let len = self.end - self.start_of(last);
        self.forget_marks(self.run(last), len);
        *self.run_mut(last) = self.run(last).joined(fresh);
        self.end = end;
    }

    /// Everything below `una` is acknowledged. `visit` sees what was in flight there, lowest first.
    pub fn release(&mut self, now: Instant, una: u64, mut visit: impl FnMut(&Piece)) {
        while self.len > 0 && self.start < una {
            let run = self.run(0);
            let run_end = self.end_of(0);
            let piece = run.piece(now, self.start, run_end.min(una));
            self.forget_marks(run, piece.len());
            self.start = piece.end;
            visit(&piece);
            if run_end > una {
                break;
            }
            self.head = (self.head + 1) % RUNS_U16;
            self.len -= 1;
        }
        if self.len == 0 {
            (self.start, self.end) = (una, una);
            (self.sacked, self.lost) = (0, 0);
        }
    }

    /// The runs, ascending.
    #[cfg(test)]
    pub fn pieces(&self, now: Instant) -> impl Iterator<Item = Piece> + '_ {
        let mut start = self.start;
        (0..self.count()).map(move |index| {
            let piece = self.run(index).piece(now, start, self.end_of(index));
            start = piece.end;
            piece
        })
    }

    /// Panics unless the sums and the runs agree.
    #[cfg(any(test, fuzzing, feature = "fuzzing"))]
    pub fn check(&self) {
        let (mut sacked, mut lost, mut start) = (0, 0, self.start);
        for index in 0..self.count() {
            let (marks, end) = (self.run(index).marks(), self.end_of(index));
            assert!(start < end, "an empty run");
            assert!(!marks.contains(Marks::SACKED | Marks::LOST));
            sacked += if marks.contains(Marks::SACKED) {
                end - start
            } else {
                0
            };
            lost += if marks.contains(Marks::LOST) {
                end - start
            } else {
                0
            };
            start = end;
        }
        assert_eq!((start, sacked, lost), (self.end, self.sacked, self.lost));
    }

    /// Whether the peer holds `position`.
    pub fn is_sacked(&self, position: u64) -> bool {
        let found = (0..self.count()).find(|&index| position < self.end_of(index));
        found.is_some_and(|index| self.run(index).marks().contains(Marks::SACKED))
    }

    /// The lowest stretch that counts as lost.
    pub fn next_lost(&self) -> Option<(u64, u64)> {
        if self.lost == 0 {
            return None;
        }
        let is_lost = |index: &usize| self.run(*index).marks().contains(Marks::LOST);
        let count = self.count();
        let first = (0..count).find(is_lost)?;
        let last = (first..count).take_while(is_lost).last()?;
        Some((self.start_of(first), self.end_of(last)))
    }

    /// When the lowest position in flight left, at the earliest, if it left only once.
    pub fn oldest(&self, now: Instant) -> Option<Instant> {
        if self.is_empty() {
            return None;
        }
        let piece = self.run(0).piece(now, self.start, self.end_of(0));
        piece
            .first
            .filter(|_| !piece.marks.contains(Marks::RETRANSMITTED))
    }

    /// Whether the receiver said that it holds what it now asks for: it has renounced (RFC 2018 §8).
    pub fn is_renounced(&self) -> bool {
        self.len > 0 && self.run(0).marks().contains(Marks::SACKED)
    }

    fn count(&self) -> usize {
        // A restored record may hold anything: never index past the array.
        usize::from(self.len).min(RUNS)
    }

    fn slot(&self, index: usize) -> usize {
        let slot = usize::from(self.head) % RUNS + index;
        if slot < RUNS { slot } else { slot - RUNS }
    }

    fn run(&self, index: usize) -> Run {
        self.runs[self.slot(index)]
    }

    fn run_mut(&mut self, index: usize) -> &mut Run {
        &mut self.runs[self.slot(index)]
    }

    fn start_of(&self, index: usize) -> u64 {
        if index == 0 {
            self.start
        } else {
            self.end_of(index - 1)
        }
    }

    /// Runs hold 32 bits; no window is so large that they could mean another position.
    fn end_of(&self, index: usize) -> u64 {
        self.start + u64::from(self.run(index).end().wrapping_sub(low(self.start)))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "40")]
const RUNS_U16: u16 = RUNS as u16;
