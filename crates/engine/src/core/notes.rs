//! Notes of written bytes: how far each program has written, and what it wants sent from a file.
//!
//! Each holder of a socket notes what it wrote in a ring of its own, so notes of one stream may be seen
//! out of order. A note is pushed under the socket's send lock before anybody can write behind it: the
//! missing one is therefore in its ring already, and a note that comes early waits for it. A command
//! that speaks of written bytes comes after the notes of those bytes, in another ring: they are taken
//! first.

use super::EngineCore;
use crate::socket_layer::senders::Noted;
use hostif::stages::{Mark, mark};
use hostif::{Corrupt, SocketId, Written};
use tcp::Instant;

/// Notes taken from one session in one poll.
const RING_BUDGET: usize = 256;
/// Rounds over all sessions in search of the note that another waits for.
const ROUNDS_MAX: usize = 16;

/// What a thread of the engine's own process has written, a few bytes with nothing else to be said of them.
#[derive(Clone, Copy, Debug)]
pub struct SmallWrite {
    /// The session that wrote.
    pub session: u32,
    /// Its socket.
    pub socket: SocketId,
    /// Where the bytes begin in the stream.
    pub start: u64,
    /// Where they end.
    pub end: u64,
}

/// Notes of what was written on this connection up to here.
#[derive(Clone, Copy)]
struct Limit {
    row: u32,
    end: u64,
}

/// The count with that low half which is nearest to one that is known.
fn widen(low: u32, known: u64) -> u64 {
    let known_low = hostif::descriptor::low(known);
    let distance = low.wrapping_sub(known_low).cast_signed();
    known.saturating_add_signed(distance.into())
}

impl EngineCore {
    /// Takes the session's notes. Returns how many.
    pub(crate) fn drain_written(&mut self, now: Instant, slot: usize) -> usize {
        self.drain_written_to(now, slot, None)
    }

    fn drain_written_to(&mut self, now: Instant, slot: usize, limit: Option<Limit>) -> usize {
        let work = self.read_written_to(now, slot, limit);
        // A note that waits is read again after a crash.
        if let Some(session) = self.programs.get_mut(slot)
            && session.early.is_none()
            && let Some(rings) = &mut session.rings
        {
            rings.written.release();
        }
        work
    }

    fn read_written_to(&mut self, now: Instant, slot: usize, limit: Option<Limit>) -> usize {
        for work in 0..RING_BUDGET {
            let Some(note) = self.next_note(slot) else {
                return work;
            };
            let taken = match note {
                Ok(note) if self.is_behind(slot, &note, limit) => {
                    self.keep_early(slot, note);
                    return work;
                }
                Ok(note) => {
                    mark(Mark::Taken);
                    let noted = self.handle_written(now, slot, &note);
                    mark(Mark::Accepted);
                    noted
                }
                Err(_) => Noted::Impossible,
            };
            match taken {
                Noted::Done => {}
                Noted::Early => return work,
                Noted::Impossible => {
                    return self.fault(slot, work + 1, "a send position outside the window");
                }
            }
        }
        RING_BUDGET
    }

    /// The row of the socket that a note names which is in no ring; see [`EngineCore::poll_note`].
    #[inline(always)]
    pub(super) fn row_of_note(&mut self, now: Instant, note: &SmallWrite) -> Option<u32> {
        let (slot, session) = self.programs.numbered(note.session)?;
        if session.is_faulty || session.early.is_some() {
            return None;
        }
        session.worked_at = now;
        mark(Mark::Taken);
        self.layer.sockets.held_by(note.socket, slot)
    }

    /// The session's process is gone: takes what it had noted, however its threads were interrupted.
    pub(crate) fn drain_written_finally(&mut self, now: Instant, slot: usize) {
        self.drain_notes(now, slot);
        // One ringful: a program that only closed its channel may go on filling it.
        for _ in 0..self.config.limits.region.ring_entries.send {
            let rings = self.programs.rings_of(slot);
            let Some(Ok(Some(note))) = rings.map(|rings| rings.written.read_final()) else {
                return;
            };
            if self.handle_written(now, slot, &note) == Noted::Impossible {
                return;
            }
            if let Some(rings) = self.programs.rings_of(slot) {
                rings.written.release();
            }
        }
    }

    /// Takes all that the session has noted so far, with what that waits for in other sessions' rings.
    pub(crate) fn drain_notes(&mut self, now: Instant, slot: usize) {
        self.drain_notes_within(now, slot, None);
    }

    /// As [`Self::drain_notes`], but what the session wrote on a connection after the byte with that count (its low half)
    /// stays, with all that follows it in the ring.
    pub(crate) fn drain_notes_before(
        &mut self,
        now: Instant,
        slot: usize,
        row: u32,
        written_low: u32,
    ) {
        let known = match self.layer.is_datagram(row) {
            true => None,
            false => self.layer.written_by_holders(row),
        };
        let limit = known.map(|known| Limit {
            row,
            end: widen(written_low, known),
        });
        self.drain_notes_within(now, slot, limit);
    }

    fn drain_notes_within(&mut self, now: Instant, slot: usize, limit: Option<Limit>) {
        self.drain_written_to(now, slot, limit);
        for _ in 0..ROUNDS_MAX {
            if !self.waits_for_others(slot, limit) {
                return;
            }
            let others = (0..self.programs.slots()).filter(|other| *other != slot);
            let taken: usize = others.map(|other| self.drain_written(now, other)).sum();
            if taken + self.drain_written_to(now, slot, limit) == 0 {
                return;
            }
        }
    }

    /// As [`Self::drain_notes`], until the stream is known up to `end` if any note says so.
    pub(crate) fn drain_notes_to(&mut self, now: Instant, slot: usize, row: u32, end: u64) {
        self.drain_notes(now, slot);
        let is_behind = |core: &Self| {
            core.layer.sockets.holders(row).len() > 1
                && core
                    .layer
                    .written_by_holders(row)
                    .is_some_and(|known| known < end)
        };
        for _ in 0..ROUNDS_MAX {
            if !is_behind(self) || self.drain_all_written(now) == 0 {
                return;
            }
        }
    }

    fn drain_all_written(&mut self, now: Instant) -> usize {
        (0..self.programs.slots())
            .map(|slot| self.drain_written(now, slot))
            .sum()
    }

    /// What came early, or else the next note of the session's ring.
    #[inline]
    fn next_note(&mut self, slot: usize) -> Option<Result<Written, Corrupt>> {
        let session = self.programs.get_mut(slot);
        let session = session.filter(|session| !session.is_faulty)?;
        if session.early.is_some() {
            return session.early.take().map(Ok);
        }
        session.rings.as_mut()?.written.read().transpose()
    }

    /// Whether the session's next note waits for one of another, and not for the limit to be lifted.
    fn waits_for_others(&self, slot: usize, limit: Option<Limit>) -> bool {
        let session = self.programs.get(slot).filter(|session| !session.is_faulty);
        session
            .and_then(|session| session.early.as_ref())
            .is_some_and(|note| !self.is_behind(slot, note, limit))
    }

    fn is_behind(&self, slot: usize, note: &Written, limit: Option<Limit>) -> bool {
        limit.is_some_and(|limit| {
            note.end > limit.end && self.layer.sockets.held_by(note.socket, slot) == Some(limit.row)
        })
    }

    fn keep_early(&mut self, slot: usize, note: Written) {
        if let Some(session) = self.programs.get_mut(slot) {
            session.early = Some(note);
        }
    }

    /// A stale socket says nothing.
    fn handle_written(&mut self, now: Instant, slot: usize, note: &Written) -> Noted {
        let Some(row) = self.layer.sockets.held_by(note.socket, slot) else {
            return Noted::Done;
        };
        let file = note.source.and_then(|source| {
            let session = self.programs.get(slot)?;
            session.files.get(&source.handle)
        });
        let noted = self.layer.write(now, row, note, file);
        if noted == Noted::Early {
            self.keep_early(slot, *note);
        }
        noted
    }
}
