//! Notes of written bytes: how far each program has written, and what it wants sent from a file.
//!
//! Each holder of a socket notes what it wrote in a ring of its own, so notes of one stream may be seen
//! out of order. A note is pushed under the socket's send lock before anybody can write behind it: the
//! missing one is therefore in its ring already, and a note that comes early waits for it. A command
//! that speaks of written bytes comes after the notes of those bytes, in another ring: they are taken
//! first.

use crate::calls::senders::Noted;
use crate::core::EngineCore;
use crate::device::link::{FileTooShort, IsMapped};
use crate::programs::files;
use crate::sockets::hears_acks;
use hostif::{FileSource, Written};
use rustix::io::Errno;
use stack::{ConnectionId, UdpId};
use tcp::Instant;

/// Notes taken from one session in one turn.
const RING_BUDGET: usize = 256;
/// Rounds over all sessions in search of the note that another waits for.
const ROUNDS_MAX: usize = 16;

/// What became of a note.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// It was acted on, or said nothing new.
    Done,
    /// Another holder's note has to come first.
    Early,
    /// No honest program sends it.
    Impossible,
}

impl EngineCore {
    /// Takes the session's notes. Returns how many.
    pub(crate) fn drain_written(&mut self, now: Instant, slot: usize) -> usize {
        for work in 0..RING_BUDGET {
            let note = match self.early_note(slot) {
                Some(note) => Ok(note),
                None => match self
                    .programs
                    .rings_of(slot)
                    .and_then(|rings| rings.written.pop().transpose())
                {
                    Some(note) => note,
                    None => return work,
                },
            };
            let taken = match note {
                Ok(note) => self.handle_written(now, slot, &note),
                Err(_) => Taken::Impossible,
            };
            match taken {
                Taken::Done => {}
                Taken::Early => return work,
                Taken::Impossible => {
                    return self.fault(slot, work + 1, "a send position outside the window");
                }
            }
        }
        RING_BUDGET
    }

    /// The session's process is gone: takes what it had noted, however its threads were interrupted.
    pub(crate) fn drain_written_finally(&mut self, now: Instant, slot: usize) {
        self.settle_written(now, slot);
        // One ringful: a program that only closed its channel may go on filling it.
        for _ in 0..self.config.limits.region.ring_entries.send {
            let Some(Ok(Some(note))) = self
                .programs
                .rings_of(slot)
                .map(|rings| rings.written.pop_final())
            else {
                return;
            };
            if self.handle_written(now, slot, &note) == Taken::Impossible {
                return;
            }
        }
    }

    /// Takes all that the session has noted so far, with what that waits for in other sessions' rings.
    pub(crate) fn settle_written(&mut self, now: Instant, slot: usize) {
        self.drain_written(now, slot);
        for _ in 0..ROUNDS_MAX {
            if !self.has_early_note(slot) || self.drain_all_written(now) == 0 {
                return;
            }
        }
    }

    /// As [`Self::settle_written`], until the stream is known up to `end` if any note says so.
    pub(crate) fn settle_written_to(&mut self, now: Instant, slot: usize, row: u32, end: u64) {
        self.settle_written(now, slot);
        let is_behind = |core: &Self| {
            core.sockets.holders(row).len() > 1
                && core
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

    fn early_note(&mut self, slot: usize) -> Option<Written> {
        self.programs
            .get_mut(slot)
            .filter(|session| !session.is_faulty)?
            .early
            .take()
    }

    fn has_early_note(&self, slot: usize) -> bool {
        self.programs
            .get(slot)
            .is_some_and(|session| session.early.is_some() && !session.is_faulty)
    }

    /// A stale socket or an old position says nothing.
    fn handle_written(&mut self, now: Instant, slot: usize, note: &Written) -> Taken {
        let Some(row) = self.sockets.held_by(note.socket, slot) else {
            return Taken::Done;
        };
        if let Some(id) = self.sockets.row(row).datagram() {
            return self.handle_records(slot, row, id, note);
        }
        let Some(connection) = self.sockets.row(row).connection() else {
            return Taken::Done;
        };
        let Some(known) = self.known_written(connection) else {
            return Taken::Done;
        };
        if note.end <= known {
            return Taken::Done;
        }
        if note.start > known {
            if self.sockets.holders(row).len() == 1 {
                return Taken::Impossible;
            }
            if let Some(session) = self.programs.get_mut(slot) {
                session.early = Some(*note);
            }
            return Taken::Early;
        }
        // What begins below and ends above what is known contradicts the note that made it known.
        if note.source.is_some() && note.start < known {
            return Taken::Done;
        }
        let mode = match note.mode {
            hostif::WriteMode::Plain => tcp::WriteMode::Plain,
            hostif::WriteMode::More => tcp::WriteMode::More,
            hostif::WriteMode::Urgent => tcp::WriteMode::Urgent,
            hostif::WriteMode::EndOfRecord => tcp::WriteMode::EndOfRecord,
        };
        if self.sockets.take_lack_of_room(row)
            && let Ok(info) = self.stack.info(connection)
        {
            self.sockets.grow_room(row, info.cwnd, info.unsent);
        }
        let accepted = self
            .stack
            .written_as(now, connection, note.end, mode, &mut self.sockets);
        if accepted.is_ok() {
            let copies = &mut self.sockets.copies;
            copies.on_written(note.end - known, note.source.is_some() || note.in_place);
            if note.stamps != 0 {
                self.ask_for_stamps(row, note.end, note.stamps);
            }
        }
        match (accepted, note.source) {
            (Err(_), _) => Taken::Impossible,
            (Ok(()), None) => Taken::Done,
            (Ok(()), Some(source)) => self.send_file(now, (slot, row, connection), note, source),
        }
    }

    /// A note about a datagram socket.
    fn handle_records(&mut self, slot: usize, row: u32, id: UdpId, note: &Written) -> Taken {
        match self.note_datagrams(row, id, note) {
            Noted::Done => Taken::Done,
            Noted::Impossible => Taken::Impossible,
            Noted::Early => {
                if let Some(session) = self.programs.get_mut(slot) {
                    session.early = Some(*note);
                }
                Taken::Early
            }
        }
    }

    /// The stack knows of the bytes; nothing of them has left yet.
    fn send_file(
        &mut self,
        now: Instant,
        (slot, row, connection): (usize, u32, ConnectionId),
        note: &Written,
        source: FileSource,
    ) -> Taken {
        let session = self.programs.get(slot);
        let file = session.and_then(|session| session.files.get(&source.handle).cloned());
        let reached = source.offset + (note.end - note.start);
        let added = match &file {
            Some(file) if files::reaches(file.file(), reached) => {
                // On the way back to this engine it is the engine that copies, which must not touch a
                // mapping.
                let remote = self
                    .stack
                    .addresses(connection)
                    .map(|(_, remote)| remote.ip());
                let may_map = remote.is_ok_and(|remote| !self.stack.owns_address(remote));
                if may_map {
                    self.link
                        .add_file(row, file, source.offset, note.start, note.end)
                } else {
                    let read = self
                        .link
                        .read_file(row, file, source.offset, note.start, note.end);
                    read.map(|()| IsMapped(false))
                }
            }
            _ => Err(FileTooShort),
        };
        match added {
            Ok(IsMapped(has_files)) => {
                let hears = &mut self.sockets.companion(row).hears_acks;
                if has_files {
                    *hears |= hears_acks::FILES;
                } else {
                    *hears &= !hears_acks::FILES;
                }
                Taken::Done
            }
            Err(FileTooShort) => {
                tracing::warn!("a file ends before the bytes that a program asked to send from it");
                let _ = self.stack.abort(now, connection, &mut self.sockets);
                self.sockets.fail(row, Errno::IO);
                if file.is_some() {
                    Taken::Done
                } else {
                    Taken::Impossible
                }
            }
        }
    }

    /// How far the stream is written; `None` where no more can be.
    fn known_written(&self, connection: ConnectionId) -> Option<u64> {
        let view = self.stack.view(connection).ok()?;
        view.state.can_send().then_some(view.written)
    }

    /// How far the stream, or the send ring of a datagram socket, is known to be written.
    fn written_by_holders(&self, row: u32) -> Option<u64> {
        let record = self.sockets.row(row);
        match record.datagram() {
            Some(id) => Some(self.sockets.datagram(id).written),
            None => self.known_written(record.connection()?),
        }
    }

    /// Several holders report positions, so an older one may come later.
    pub(crate) fn advance_written(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        end: u64,
    ) -> Result<(), ()> {
        match self.known_written(connection) {
            Some(known) if known < end => {
                let accepted = self.stack.written(now, connection, end, &mut self.sockets);
                if accepted.is_ok() {
                    self.sockets.copies.on_written(end - known, false);
                }
                accepted.map_err(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Frees the locks of a socket that a dead session held. If it died while it was writing, the next
    /// writer goes on where the last note ended.
    pub(crate) fn release_locks(&mut self, row: u32, session: u32) {
        let known = self.written_by_holders(row);
        self.sockets.with_header(row, |header| {
            if let Some(known) = known
                && header.send_lock().is_held_by(session)
            {
                header.program_set_written(known);
            }
            header.engine_release_dead(session);
        });
    }
}
