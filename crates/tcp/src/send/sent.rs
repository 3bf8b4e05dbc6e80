//! What is in flight: when each byte last left, and what is known of its fate.
//!
//! The table that RACK (RFC 8985 §5.2) keeps for each segment and RFC 6675 §2 calls the scoreboard, in one:
//! runs of neighbouring positions with the time of their last transmission and three marks. A segment of
//! 64 KiB is one run until an ACK splits it. [`RUNS`] are in the connection's row, many more in a block that its
//! owner lends (`blocks`); when both run out, neighbours merge so that the table knows less, never something
//! false: a merged run was sent between two times, and counts as selectively acknowledged, or as lost, only
//! if both parts were. What to conclude from the times is `rack`'s business, what to send again
//! `recovery`'s.

mod edit;
mod run;
#[cfg(test)]
mod tests;

use crate::{
    send::{flight_pool::FlightPool, segment::Stretch},
    time::{Duration, Instant},
};
use run::low;
use zerocopy::{FromZeros, Immutable, KnownLayout};

pub use run::Run;
pub(crate) use run::{Marks, Piece};

/// Runs beside the connection.
pub(crate) const RUNS: usize = 8;
/// Free runs that one change of the table may need.
const SPARE: usize = 2;

/// What is in flight, in short, and where the runs are.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
struct Extent {
    /// SND.UNA while anything is in flight.
    start: u64,
    /// Highest position sent, plus one.
    end: u64,
    /// Bytes of the flight, which the sequence space bounds.
    sacked: u32,
    lost: u32,
    resent: u32,
    /// Index of the first run in the ring of all.
    head: u32,
    len: u32,
}

impl Extent {
    /// Nothing is in flight.
    const fn empty_at(position: u64) -> Self {
        Self {
            start: position,
            end: position,
            sacked: 0,
            lost: 0,
            resent: 0,
            head: 0,
            len: 0,
        }
    }
}

/// The runs of `[start, end)`, without gaps, in a ring.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Sent {
    extent: Extent,
    /// The block that holds the runs; 0: they are here.
    block: u32,
    /// One past the probe of the path MTU in flight, the low half of its position; see `pmtud`.
    pub path_probe_end: u32,
    runs: [Run; RUNS],
}

/// Bytes of the flight, as [`Extent`] counts them.
fn bytes(len: u64) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl Sent {
    /// Whether nothing is in flight.
    pub const fn is_empty(&self) -> bool {
        self.extent.len == 0
    }

    /// Positions selectively acknowledged.
    pub const fn sacked(&self) -> u64 {
        self.extent.sacked as u64
    }

    /// Positions that count as lost and were not sent again since.
    pub const fn lost(&self) -> u64 {
        self.extent.lost as u64
    }

    /// Positions that counted as lost and were sent again since, which nothing has answered.
    pub const fn resent(&self) -> u64 {
        self.extent.resent as u64
    }

    /// Positions that are thought to be in the network (RFC 8985 §9.3, the pipe of RFC 6675 §4).
    pub fn in_flight(&self) -> u64 {
        let extent = &self.extent;
        (extent.end - extent.start)
            .saturating_sub(u64::from(extent.sacked) + u64::from(extent.lost))
    }

    /// The lowest stretch that counts as lost.
    pub fn next_lost(&mut self, pool: &mut dyn FlightPool) -> Option<(u64, u64)> {
        if self.extent.lost == 0 {
            return None;
        }
        self.table(pool).next_lost()
    }

    /// Whether the receiver said that it holds what it now asks for: it has renounced (RFC 2018 §8).
    pub fn is_renounced(&mut self, pool: &mut dyn FlightPool) -> bool {
        self.extent.sacked > 0 && self.table(pool).is_renounced()
    }

    /// Whether the runs are here, with room for more.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.block == 0 && usize::try_from(self.extent.len).is_ok_and(|len| len + SPARE < RUNS)
    }

    /// The runs, wherever they are; before they become too many for here, in a block.
    #[inline]
    pub fn table<'a>(&'a mut self, pool: &'a mut dyn FlightPool) -> Table<'a> {
        if self.is_here() {
            return Table::new(&mut self.extent, &mut self.runs);
        }
        self.large_table(pool)
    }

    #[inline(never)]
    fn large_table<'a>(&'a mut self, pool: &'a mut dyn FlightPool) -> Table<'a> {
        if self.block == 0 {
            self.move_out(pool);
        }
        if self.block > 0 {
            if let Some(runs) = pool.flight(self.block).filter(|runs| !runs.is_empty()) {
                return Table::new(&mut self.extent, runs);
            }
            // Whoever lent it knows nothing of it.
            self.leave_block();
        }
        Table::new(&mut self.extent, &mut self.runs)
    }

    /// New data left: see [`Table::append`].
    #[inline(always)]
    pub fn append(
        &mut self,
        now: Instant,
        stretch: Stretch,
        quantum: impl FnOnce() -> Duration,
        pool: &mut dyn FlightPool,
    ) {
        let Stretch { start, end } = stretch;
        if !self.is_empty() || self.block > 0 {
            return self.append_behind(now, stretch, quantum(), pool);
        }
        self.runs[0] = Run::sent_at(now, low(end));
        self.extent = Extent {
            end,
            head: 0,
            len: 1,
            ..Extent::empty_at(start)
        };
    }

    #[inline(never)]
    fn append_behind(
        &mut self,
        now: Instant,
        stretch: Stretch,
        quantum: Duration,
        pool: &mut dyn FlightPool,
    ) {
        let Stretch { start, end } = stretch;
        self.table(pool).append(now, start, end, quantum);
    }

    /// Everything below `una` is acknowledged, where that is all that is in flight, and one run that left once: when that was at the
    /// earliest, and the piece. `None`, with nothing done: it is not so.
    #[inline(always)]
    pub fn release_only(&mut self, now: Instant, una: u64) -> Option<(Instant, Piece)> {
        let Extent { start, end, .. } = self.extent;
        let run = *self.runs.get(usize::try_from(self.extent.head).ok()?)?;
        let is_only = self.extent.len == 1 && self.block == 0 && start < una && end <= una;
        if !is_only || !run.marks().is_empty() {
            return None;
        }
        let piece = run.piece(now, start, end);
        let first = piece.first?;
        self.extent = Extent::empty_at(una);
        Some((first, piece))
    }

    /// What is sent next begins at `position`. False, with nothing done: something is in flight.
    pub fn begin_at(&mut self, position: u64) -> bool {
        let is_empty = self.is_empty() && self.block == 0;
        if is_empty {
            self.extent = Extent::empty_at(position);
        }
        is_empty
    }

    /// When the lowest position in flight left: see [`Table::oldest`].
    #[inline(never)]
    pub fn oldest(&mut self, now: Instant, pool: &mut dyn FlightPool) -> Option<Instant> {
        self.table(pool).oldest(now)
    }

    /// Gives the block back if the few runs that are left fit here with some to spare.
    #[inline]
    pub fn settle(&mut self, pool: &mut dyn FlightPool) {
        if self.block > 0 {
            self.move_back(pool);
        }
    }

    fn move_back(&mut self, pool: &mut dyn FlightPool) {
        if usize::try_from(self.extent.len).is_ok_and(|len| len > RUNS / 4) {
            return;
        }
        let mut few = [Run::default(); RUNS];
        let table = self.table(pool);
        for (index, run) in few.iter_mut().enumerate().take(table.count()) {
            *run = table.run(index);
        }
        self.runs = few;
        self.extent.head = 0;
        pool.give_back_flight(core::mem::take(&mut self.block));
    }

    /// The block that the table holds; 0: none.
    pub const fn block(&self) -> u32 {
        self.block
    }

    /// The block that the table holds, which is the caller's again; 0: none. Of what is in flight nothing is
    /// known then: it counts as sent long ago, and is sent again on the first evidence.
    pub fn leave_block(&mut self) -> u32 {
        let block = core::mem::take(&mut self.block);
        if block > 0 {
            self.runs[0] = Run::unknown(low(self.extent.end));
            self.extent = Extent {
                sacked: 0,
                lost: 0,
                resent: 0,
                head: 0,
                len: u32::from(self.extent.start < self.extent.end),
                ..self.extent
            };
        }
        block
    }

    fn move_out(&mut self, pool: &mut dyn FlightPool) {
        let Some(block) = pool.claim_flight() else {
            return;
        };
        let Some(runs) = pool.flight(block).filter(|runs| runs.len() > RUNS) else {
            pool.give_back_flight(block);
            return;
        };
        let here = Table::new(&mut self.extent, &mut self.runs);
        for (index, run) in runs.iter_mut().enumerate().take(here.count()) {
            *run = here.run(index);
        }
        self.extent.head = 0;
        self.block = block;
    }
}

/// The runs and what they amount to.
pub(crate) struct Table<'a> {
    extent: &'a mut Extent,
    runs: &'a mut [Run],
}

impl<'a> Table<'a> {
    #[inline]
    fn new(extent: &'a mut Extent, runs: &'a mut [Run]) -> Self {
        // A restored record may hold anything: never index past the runs.
        let size = u32::try_from(runs.len()).unwrap_or(u32::MAX);
        extent.head = if extent.head < size { extent.head } else { 0 };
        extent.len = extent.len.min(size);
        Self { extent, runs }
    }

    /// New data left: `[start, end)`, where `start` is the highest position sent so far, plus one.
    ///
    /// It joins the last run if that is plain and began to leave within `quantum`.
    #[inline(always)]
    pub fn append(&mut self, now: Instant, start: u64, end: u64, quantum: Duration) {
        let count = self.count();
        if count == 0 {
            self.begin_at(start);
        }
        let fresh = Run::sent_at(now, low(end));
        if count > 0 {
            let tail = self.run(count - 1);
            let both = tail.joined(fresh);
            let plain = tail.marks().is_empty();
            if plain && both.spread().is_some_and(|spread| spread <= quantum) {
                *self.run_mut(count - 1) = both;
                self.extent.end = end;
                return;
            }
        }
        if count == self.runs.len() && !self.compact() {
            self.widen_tail(fresh, end);
            return;
        }
        self.extent.end = end;
        let count = self.count();
        *self.run_mut(count) = fresh;
        self.extent.len += 1;
    }

    /// No block at all, which `compact` leaves only when marks alternate: the last run grows, and what
    /// it was known to be is forgotten.
    fn widen_tail(&mut self, fresh: Run, end: u64) {
        let last = self.count() - 1;
        let len = self.extent.end - self.start_of(last);
        self.forget_marks(self.run(last), len);
        *self.run_mut(last) = self.run(last).joined(fresh);
        self.extent.end = end;
    }

    /// Everything below `una` is acknowledged: takes the lowest piece of it that was in flight, until there is none.
    #[inline]
    pub fn release_next(&mut self, now: Instant, una: u64) -> Option<Piece> {
        if self.extent.len == 0 {
            self.begin_at(una);
            return None;
        }
        if self.extent.start >= una {
            return None;
        }
        let run = self.run(0);
        let run_end = self.end_of(0);
        let piece = run.piece(now, self.extent.start, run_end.min(una));
        self.forget_marks(run, piece.len());
        self.extent.start = piece.end;
        if run_end <= una {
            self.extent.head = u32::try_from(self.slot(1)).unwrap_or(0);
            self.extent.len -= 1;
        }
        Some(piece)
    }

    /// Nothing is in flight.
    fn begin_at(&mut self, position: u64) {
        *self.extent = Extent::empty_at(position);
    }

    /// The runs, ascending.
    #[cfg(test)]
    pub fn pieces(&self, now: Instant) -> impl Iterator<Item = Piece> + '_ {
        let mut start = self.extent.start;
        (0..self.count()).map(move |index| {
            let piece = self.run(index).piece(now, start, self.end_of(index));
            start = piece.end;
            piece
        })
    }

    /// Panics unless the sums and the runs agree.
    #[cfg(any(test, fuzzing, feature = "fuzzing"))]
    pub fn check(&self) {
        let (mut sacked, mut lost, mut resent, mut start) = (0, 0, 0, self.extent.start);
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
            resent += if marks.contains(Marks::RESENT) {
                assert!(!marks.intersects(Marks::SACKED | Marks::LOST));
                end - start
            } else {
                0
            };
            start = end;
        }
        assert_eq!(
            (start, sacked, lost, resent),
            (
                self.extent.end,
                u64::from(self.extent.sacked),
                u64::from(self.extent.lost),
                u64::from(self.extent.resent)
            )
        );
    }

    /// Whether the peer holds `position`.
    pub fn is_sacked(&self, position: u64) -> bool {
        self.count() > 0
            && self
                .run(self.find(position))
                .marks()
                .contains(Marks::SACKED)
    }

    /// The lowest stretch that counts as lost.
    pub fn next_lost(&self) -> Option<(u64, u64)> {
        let is_lost = |index: &usize| self.run(*index).marks().contains(Marks::LOST);
        let count = self.count();
        let first = (0..count).find(is_lost)?;
        let last = (first..count).take_while(is_lost).last()?;
        Some((self.start_of(first), self.end_of(last)))
    }

    /// When the lowest position in flight left, at the earliest, if it left only once.
    pub fn oldest(&self, now: Instant) -> Option<Instant> {
        if self.count() == 0 {
            return None;
        }
        let piece = self.run(0).piece(now, self.extent.start, self.end_of(0));
        piece
            .first
            .filter(|_| !piece.marks.contains(Marks::RETRANSMITTED))
    }

    /// Whether the receiver said that it holds what it now asks for: it has renounced (RFC 2018 §8).
    pub fn is_renounced(&self) -> bool {
        self.extent.len > 0 && self.run(0).marks().contains(Marks::SACKED)
    }

    fn count(&self) -> usize {
        usize::try_from(self.extent.len).unwrap_or(0)
    }

    fn slot(&self, index: usize) -> usize {
        let slot = usize::try_from(self.extent.head).unwrap_or(0) + index;
        let size = self.runs.len();
        if slot < size { slot } else { slot - size }
    }

    fn run(&self, index: usize) -> Run {
        self.runs[self.slot(index)]
    }

    fn run_mut(&mut self, index: usize) -> &mut Run {
        &mut self.runs[self.slot(index)]
    }

    fn start_of(&self, index: usize) -> u64 {
        if index == 0 {
            self.extent.start
        } else {
            self.end_of(index - 1)
        }
    }

    /// Runs hold 32 bits; no window is so large that they could mean another position.
    fn end_of(&self, index: usize) -> u64 {
        self.extent.start + u64::from(self.run(index).end().wrapping_sub(low(self.extent.start)))
    }
}
