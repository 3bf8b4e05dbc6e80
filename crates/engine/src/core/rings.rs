//! What programs ask through their rings; what they write is in `notes.rs`. Every value was decoded and is judged here once: a socket
//! that the session does not hold is `EBADF`, a position that cannot be ends the session.

use super::EngineCore;
use crate::programs::session::{Left, Session};
use core::net::SocketAddr;
use hostif::{Command, Completion, Consumed, Op};
use rustix::io::Errno;
use tcp::Instant;

/// Descriptors taken from one ring of one session in one poll.
const RING_BUDGET: usize = 256;

impl EngineCore {
    /// Takes what the session in `slot` has put into its rings. Returns how much that was.
    #[inline]
    pub(crate) fn drain_rings(&mut self, now: Instant, slot: usize) -> usize {
        let left = self.programs.get(slot).map(Session::left);
        match left.filter(|left| !left.is_nothing()) {
            Some(left) => self.drain_left(now, slot, left),
            None => 0,
        }
    }

    fn drain_left(&mut self, now: Instant, slot: usize, left: Left) -> usize {
        let mut work = 0;
        if left.commands || left.is_owed {
            // While completions wait for space in their ring, commands wait too.
            if self.programs.get(slot).is_some_and(Session::has_backlog) {
                self.programs.end_command(slot);
            }
            match self.drain_commands(now, slot) {
                Ok(commands) => work += commands,
                Err(commands) => {
                    return self.fault(slot, commands, "a command that makes no sense");
                }
            }
        }
        if left.written || left.is_owed || work > 0 {
            work += self.drain_written(now, slot);
        }
        if left.consumed || left.is_owed || work > 0 {
            work = self.drain_consumed(now, slot, work);
        }
        work
    }

    /// Carries out the session's commands. How many there were; `Err`: the last makes no sense.
    fn drain_commands(&mut self, now: Instant, slot: usize) -> Result<usize, usize> {
        for work in 0..RING_BUDGET {
            let takes = |session: &Session| session.takes_commands();
            if !self.programs.get(slot).is_some_and(takes) {
                return Ok(work);
            }
            let rings = self.programs.rings_of(slot);
            match rings.and_then(|rings| rings.commands.read().transpose()) {
                None => return Ok(work),
                Some(Ok(command)) => {
                    self.programs.begin_command(slot);
                    self.handle_command(now, slot, command);
                    self.programs.end_command(slot);
                }
                Some(Err(_)) => return Err(work + 1),
            }
        }
        Ok(RING_BUDGET)
    }

    /// Takes the session's notes of what it has consumed, which are added to `work`.
    fn drain_consumed(&mut self, now: Instant, slot: usize, mut work: usize) -> usize {
        for _ in 0..RING_BUDGET {
            let Some(rings) = self.programs.rings_of(slot) else {
                return work;
            };
            let Some(consumed) = rings.consumed.read().transpose() else {
                break;
            };
            work += 1;
            let is_well = consumed.is_ok_and(|consumed| self.handle_consumed(now, slot, &consumed));
            if !is_well {
                return self.fault(slot, work, "a receive position outside the window");
            }
        }
        if let Some(rings) = self.programs.rings_of(slot) {
            rings.consumed.release();
        }
        work
    }

    /// The process is gone: what it had put into the rings still counts.
    pub(crate) fn drain_rings_finally(&mut self, now: Instant, slot: usize) {
        // One ringful each: a program that only closed its channel may go on filling them. Each slot is given back when what was in it is
        // done: the engine that goes on after a crash reads it again.
        let entries = self.config.limits.region.ring_entries;
        for _ in 0..entries.command {
            let rings = self.programs.rings_of(slot);
            let Some(Ok(Some(command))) = rings.map(|rings| rings.commands.read_final()) else {
                break;
            };
            self.programs.begin_command(slot);
            self.handle_command(now, slot, command);
            self.programs.end_command(slot);
            if let Some(rings) = self.programs.rings_of(slot) {
                rings.commands.release();
            }
        }
        self.drain_written_finally(now, slot);
        for _ in 0..entries.receive {
            let rings = self.programs.rings_of(slot);
            let Some(Ok(Some(consumed))) = rings.map(|rings| rings.consumed.read_final()) else {
                break;
            };
            if !self.handle_consumed(now, slot, &consumed) {
                return;
            }
            if let Some(rings) = self.programs.rings_of(slot) {
                rings.consumed.release();
            }
        }
    }

    /// `false`: the position cannot be. A stale socket says nothing.
    fn handle_consumed(&mut self, now: Instant, slot: usize, note: &Consumed) -> bool {
        let row = self.layer.sockets.held_by(note.socket, slot);
        row.is_none_or(|row| self.layer.consume(now, row, note))
    }

    /// Carries a command out, or keeps it until the name that it needs is known.
    pub(crate) fn handle_command(&mut self, now: Instant, slot: usize, command: Command) {
        if self.must_wait_for_name(slot, &command) {
            self.programs.put_off_command(slot);
            return;
        }
        let held = |id| self.layer.sockets.held_by(id, slot);
        let row = command.socket.and_then(held);
        let outcome = match (command.op, row) {
            (Op::CloseBacking { handle }, _) => {
                // What was to be sent from it is noted in another ring.
                self.drain_notes(now, slot);
                self.programs.drop_handle(slot, handle);
                Ok(0)
            }
            (_, None) => Err(Errno::BADF),
            (Op::Accept { handle }, Some(row)) => {
                return self.accept(slot, row, command.token, handle);
            }
            (Op::Close { written, consumed }, Some(row)) => {
                self.drain_notes_to(now, slot, row, written);
                self.release_hold(now, slot, row, Some((written, consumed)));
                self.layer.on_hold_released(now, row);
                return self.programs.closed(slot, command.token);
            }
            (Op::Query { what }, Some(row)) => {
                // The answer is that of the moment: what was written and what has arrived before the question counts.
                self.drain_notes(now, slot);
                self.receive(now, None);
                let rings = self.programs.rings_of(slot).ok_or(Errno::BADF);
                let region = rings.map(|rings| rings.region);
                region.and_then(|region| self.layer.answer_query(now, region, row, what))
            }
            (op, Some(row)) => {
                self.drain_before(now, slot, row, &op);
                self.layer.carry_out(now, row, op)
            }
        };
        self.programs.done(slot, command.token, outcome);
    }

    /// What was written before a change leaves as it was before: the notes of it are in another ring than the command.
    fn drain_before(&mut self, now: Instant, slot: usize, row: u32, op: &Op) {
        match *op {
            Op::SetOptions { written_low, .. } | Op::SetOption { written_low, .. } => {
                self.drain_notes_before(now, slot, row, written_low);
            }
            Op::Shutdown { written, .. } => self.drain_notes_to(now, slot, row, written),
            Op::Disconnect | Op::SetDatagramOptions(_) => self.send_before(now, slot, row),
            Op::Connect { .. } if self.layer.is_datagram(row) => self.send_before(now, slot, row),
            _ => {}
        }
    }

    fn send_before(&mut self, now: Instant, slot: usize, row: u32) {
        self.drain_notes(now, slot);
        self.layer.send_all_datagrams(now, row);
    }

    fn accept(&mut self, slot: usize, row: u32, token: u32, handle: u32) {
        let outcome = self.try_accept(slot, row, handle);
        match outcome {
            Err(errno) => self.programs.done(slot, token, Err(errno)),
            Ok((new_row, peer)) => {
                let record = *self.layer.sockets.row(new_row);
                let Some(socket) = self.layer.sockets.id(new_row) else {
                    return;
                };
                let (region, header) = (record.region, record.header);
                self.programs.tell(slot, |session| {
                    session.complete(Completion::Accepted {
                        token,
                        socket,
                        region,
                        header,
                        peer,
                    });
                });
            }
        }
    }

    fn try_accept(
        &mut self,
        slot: usize,
        row: u32,
        handle: u32,
    ) -> Result<(u32, SocketAddr), Errno> {
        let sockets = &self.layer.sockets;
        sockets.row(row).listener().ok_or(Errno::INVAL)?;
        let session = self.programs.get_mut(slot).ok_or(Errno::BADF)?;
        if !session.backings.contains_key(&handle) {
            return Err(Errno::BADF);
        }
        let accepted = self.programs.row_mut(slot).map(|row| &mut row.accepted);
        let (new_row, peer) = self.layer.accept(row, slot, accepted)?;
        let session = self.programs.get_mut(slot).ok_or(Errno::BADF)?;
        session.sockets.insert(new_row);
        if let Some(backing) = session.backings.remove(&handle) {
            self.layer.sockets.set_backing(new_row, backing);
            self.programs.forget_handle(slot, handle);
            self.layer.sockets.spare_backing_if_enough(new_row);
        }
        Ok((new_row, peer))
    }

    /// Drops the session's hold. The caller closes a socket that no session holds any more.
    pub(crate) fn release_hold(
        &mut self,
        now: Instant,
        slot: usize,
        row: u32,
        positions: Option<(u64, u64)>,
    ) {
        let calls = self.layer.sockets.with_header(row, |header| header.calls());
        if let Some(session) = self.programs.get_mut(slot) {
            session.sockets.remove(&row);
            session.past_calls = session.past_calls.plus(calls.unwrap_or_default());
            if let Some(id) = self.layer.sockets.id(row) {
                session.forget(id);
            }
            self.layer.release_hold(now, slot, row, positions);
        }
    }
}
