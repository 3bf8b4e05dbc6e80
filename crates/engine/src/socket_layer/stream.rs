//! How far programs have written and consumed streams, and what they want sent from a file: positions checked once, told to
//! the stack. Notes come by the rings (`core::notes`).

use super::senders::Noted;
use super::{SocketLayer, TX_BUDGET};
use crate::device::extents::SocketUse;
use crate::device::link::{FileTooShort, IsMapped, SourceFile};
use crate::programs::files;
use crate::sockets::hears_acks;
use hostif::stages::{Mark, mark};
use hostif::{Consumed, FileSource, Written};
use rustix::io::Errno;
use stack::ConnectionId;
use std::sync::Arc;
use tcp::Instant;

impl SocketLayer {
    /// One of its holders has noted that a socket is written further, perhaps from a file. An old position says nothing.
    pub(crate) fn write(
        &mut self,
        now: Instant,
        row: u32,
        note: &Written,
        file: Option<&Arc<SourceFile>>,
    ) -> Noted {
        if let Some(id) = self.sockets.row(row).datagram() {
            return self.senders.note(&mut self.sockets, row, id, note);
        }
        let Some(connection) = self.sockets.row(row).connection() else {
            return Noted::Done;
        };
        let Some(known) = self.known_written(connection) else {
            return Noted::Done;
        };
        if note.end <= known {
            return Noted::Done;
        }
        if note.start > known {
            if self.sockets.holders(row).len() == 1 {
                return Noted::Impossible;
            }
            return Noted::Early;
        }
        // What begins below and ends above what is known contradicts the note that made it known.
        if note.source.is_some() && note.start < known {
            return Noted::Done;
        }
        let mode = match note.mode {
            hostif::WriteMode::Plain => tcp::WriteMode::Plain,
            hostif::WriteMode::More => tcp::WriteMode::More,
            hostif::WriteMode::Urgent => tcp::WriteMode::Urgent,
            hostif::WriteMode::EndOfRecord => tcp::WriteMode::EndOfRecord,
        };
        if self.sockets.take_lack_of_capacity(row)
            && let Ok(info) = self.stack.info(connection)
        {
            self.sockets.grow_capacity(row, info.cwnd, info.unsent);
        }
        // Before the stack knows of the bytes, of which the window has none: the next engine finds where they are, or does not know of them.
        if let Some(source) = note.source
            && self.place_file((row, connection), note, source, file) == Err(FileTooShort)
        {
            tracing::warn!("a file ends before the bytes that a program asked to send from it");
            let _ = self.stack.abort(now, connection, &mut self.sockets);
            self.sockets.fail(row, Errno::IO);
            return file.map_or(Noted::Impossible, |_| Noted::Done);
        }
        if self
            .stack
            .written_as(now, connection, note.end, mode)
            .is_err()
        {
            return Noted::Impossible;
        }
        let copies = &mut self.sockets.copies;
        copies.on_written(note.end - known, note.source.is_some() || note.in_place);
        if note.stamps != 0 {
            self.stamps
                .ask(&self.stack, &mut self.sockets, row, note.end, note.stamps);
        }
        Noted::Done
    }

    /// As [`SocketLayer::write`], of plain bytes that begin where the stream of a connection is known to end, by its only
    /// holder, who did not lack space before; or of records of datagrams. `None`, with nothing done: it is not so.
    pub(crate) fn write_next(
        &mut self,
        now: Instant,
        row: u32,
        start: u64,
        end: u64,
    ) -> Option<()> {
        let Some(connection) = self.only_holders(row) else {
            return self.write_records(now, row, start, end).map(drop);
        };
        self.stack.written_next(now, connection, start, end)?;
        mark(Mark::Accepted);
        self.sockets.copies.on_written(end - start, false);
        Some(())
    }

    /// The connection of a socket with one holder, who did not lack space.
    #[inline(always)]
    fn only_holders(&self, row: u32) -> Option<ConnectionId> {
        let is_usual = self.sockets.holders(row).len() == 1 && !self.sockets.lacked_capacity(row);
        self.sockets.row(row).connection().filter(|_| is_usual)
    }

    /// [`Self::write_next`], and what is written leaves, while nobody asks for times of sending. Says how many segments did.
    #[inline(always)]
    pub(crate) fn write_and_transmit(
        &mut self,
        now: Instant,
        row: u32,
        start: u64,
        end: u64,
    ) -> Option<usize> {
        let Some(connection) = self.only_holders(row) else {
            let sent = self.write_records(now, row, start, end)?;
            self.link.flush();
            return Some(sent);
        };
        let (stack, host, egress) = (&mut self.stack, &mut self.sockets, &mut self.link);
        mark(Mark::Accepted);
        let span = (start, end);
        let sent = stack.write_and_transmit(now, connection, span, (host, egress), TX_BUDGET)?;
        self.sockets.copies.on_written(end - start, false);
        self.link.flush();
        Some(sent)
    }

    /// The bytes of a note are in this file.
    fn place_file(
        &mut self,
        (row, connection): (u32, ConnectionId),
        note: &Written,
        source: FileSource,
        file: Option<&Arc<SourceFile>>,
    ) -> Result<(), FileTooShort> {
        let reached = source.offset.checked_add(note.end - note.start);
        let reaches = |file: &&Arc<SourceFile>| {
            reached.is_some_and(|reached| files::reaches(file.file(), reached))
        };
        let file = file.filter(reaches).ok_or(FileTooShort)?;
        // On the way back to this engine it is the engine that copies, which must not touch a mapping.
        let remote = self
            .stack
            .addresses(connection)
            .map(|(_, remote)| remote.ip());
        let may_map = remote.is_ok_and(|remote| !self.stack.owns_address(remote));
        let (offset, start, end) = (source.offset, note.start, note.end);
        let IsMapped(has_files) = if may_map {
            let generation = self.sockets.row(row).generation;
            let of = SocketUse { row, generation };
            self.link.add_file(of, file, offset, start, end)?
        } else {
            let read = self.link.read_file(row, file, offset, start, end);
            read.map(|()| IsMapped(false))?
        };
        let hears = &mut self.sockets.companion(row).hears_acks;
        if has_files {
            *hears |= hears_acks::FILES;
        } else {
            *hears &= !hears_acks::FILES;
        }
        Ok(())
    }

    /// How far the stream is written; `None` where no more can be.
    fn known_written(&self, connection: ConnectionId) -> Option<u64> {
        let tcp = self.stack.connection(connection).ok()?;
        tcp.state().can_send().then(|| tcp.written())
    }

    /// How far the stream, or the send ring of a datagram socket, is known to be written.
    pub(crate) fn written_by_holders(&self, row: u32) -> Option<u64> {
        let record = self.sockets.row(row);
        match record.datagram() {
            Some(id) => Some(self.sockets.datagram(id).written),
            None => self.known_written(record.connection()?),
        }
    }

    /// Several holders report positions, so an older one may come later.
    pub(super) fn advance_written(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        end: u64,
    ) -> Result<(), ()> {
        match self.known_written(connection) {
            Some(known) if known < end => {
                let accepted = self.stack.written(now, connection, end);
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

    /// One of its holders has noted that a socket was read further. `false`: the position cannot be. An old one says
    /// nothing.
    pub(crate) fn consume(&mut self, now: Instant, row: u32, note: &Consumed) -> bool {
        // How far the records of a datagram socket were taken is looked up in its header when its ring seems full.
        let Some(connection) = self.sockets.row(row).connection() else {
            return true;
        };
        let is_right = self
            .advance_consumed(now, connection, note.end, note.in_place)
            .is_ok();
        self.place_window(row);
        is_right
    }

    /// How the connection of a socket uses its receive window may have changed.
    pub(crate) fn place_window(&mut self, row: u32) {
        let connection = self.sockets.row(row).connection();
        if let Some(Ok(used)) = connection.map(|id| self.stack.receive_use(id)) {
            self.sockets.place_window(row, &used);
        }
    }

    pub(super) fn advance_consumed(
        &mut self,
        now: Instant,
        connection: stack::ConnectionId,
        end: u64,
        in_place: bool,
    ) -> Result<(), ()> {
        match self.stack.view(connection) {
            Ok(view) if view.consumed < end => {
                let accepted = self.stack.consumed(now, connection, end);
                if accepted.is_ok() {
                    self.sockets
                        .copies
                        .on_consumed(end - view.consumed, in_place);
                }
                accepted.map_err(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Takes in how far the holders have consumed by their own word: small steps come without a note.
    pub(crate) fn look_consumed(&mut self, now: Instant, row: u32) {
        if let Some(connection) = self.sockets.row(row).connection()
            && let Some((end, in_place)) = self.sockets.with_header(row, |header| {
                (header.consumed(), header.is_consumed_in_place())
            })
        {
            // A position that cannot be is a lie about the program's own connection.
            let _ = self.advance_consumed(now, connection, end, in_place);
        }
    }
}
