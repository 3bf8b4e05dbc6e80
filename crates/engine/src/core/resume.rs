//! A core that goes on where another process stopped, killed or replaced: programs, sockets and connections are taken up from
//! the rows, what was being done is done once more, and every program is rung to look at its sockets again.

use super::EngineCore;
use crate::programs::resume::Taken;
use crate::sockets::rows::{Kind, Marks};
use hostif::control::{ASK_AGAIN, Reply, send};
use hostif::{Command, Op, SocketId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd as _;
use tcp::Instant;

impl EngineCore {
    /// Takes everything up, and notes the descriptors that are this core's now.
    pub(crate) fn resume(&mut self, now: Instant, taken: &mut Taken) {
        self.layer.set_now(now);
        let sockets = &mut self.layer.sockets;
        let last = self.programs.engine.last_region;
        let programs = &mut self.programs;
        let users = programs.users();
        let mut user = |uid| users.user(uid).ok();
        sockets.resume_regions(last, &self.config.limits.region, taken, &mut user);
        programs.resume(&mut sockets.regions, taken);
        sockets.resume(taken, &|slot| programs.get(slot).is_some());
        programs.resume_handles(taken);
        self.layer.byte_channels.resume(sockets, taken);
        let slots = 0..self.programs.slots();
        let interrupted: Vec<_> = slots.map(|slot| self.interrupted_command(slot)).collect();
        for (slot, command) in interrupted.iter().enumerate() {
            if let Some(command) = command {
                self.undo(slot, command);
            }
        }
        self.layer.resume(now, taken);
        for row in 0..self.layer.sockets.used() {
            for at in 0..self.layer.sockets.holders(row).len() {
                let slot = self.layer.sockets.holders(row)[at];
                if let Some(session) = self.programs.get_mut(slot) {
                    session.sockets.insert(row);
                }
            }
        }
        for (slot, command) in interrupted.into_iter().enumerate() {
            self.resume_session(now, slot, command);
        }
    }

    fn resume_session(&mut self, now: Instant, slot: usize, interrupted: Option<Command>) {
        let Some(row) = self.programs.row_mut(slot).map(|row| *row) else {
            return;
        };
        if self.programs.get(slot).is_none() {
            return;
        }
        if row.owes_answer == 1 {
            self.answer_again(slot);
        }
        if let Some(command) = interrupted {
            self.finish_command(now, slot, command);
        }
        for token in row.closings {
            if token != 0 {
                self.programs.end_closing(slot, token);
            }
        }
        self.programs.wake(now, slot);
        self.programs.tell(slot, |session| {
            if let Some(rings) = &session.rings {
                rings.ring_anew();
            }
        });
    }

    /// A request was taken, perhaps, and not answered, perhaps: whoever waits asks again. A client takes what lies in its
    /// channel for old before it asks.
    fn answer_again(&mut self, slot: usize) {
        let Some(session) = self.programs.get(slot) else {
            return;
        };
        let mut ready = [PollFd::new(&*session.control, PollFlags::IN)];
        let is_asked = poll(&mut ready, Some(&Timespec::default())) != Ok(0);
        if !is_asked {
            let text =
                "this engine has taken the place of one that was ended: ask again".to_owned();
            let again = Reply::Refused {
                errno: ASK_AGAIN,
                text,
            };
            // A program that is gone is found out soon enough.
            let _ = send(session.control.as_fd(), &again.encode(), &[]);
        }
        self.programs.set_owes_answer(slot, false);
    }

    /// The command that was being carried out, and of whose end the program was not told.
    fn interrupted_command(&mut self, slot: usize) -> Option<Command> {
        let row = *self.programs.row_mut(slot)?;
        let rings = self.programs.rings_of(slot)?;
        if row.command != rings.commands.position().wrapping_add(1) {
            return None;
        }
        let command = rings.commands.read().ok().flatten()?;
        if rings.told() > row.told {
            rings.commands.release();
            return None;
        }
        Some(command)
    }

    /// Undoes what of a command cannot be done once more where a part of it was.
    fn undo(&mut self, slot: usize, command: &Command) {
        match (command.op, command.socket) {
            (Op::Accept { handle }, _) => self.undo_accept(slot, handle),
            (Op::Close { .. }, Some(id)) => self.undo_close(slot, id),
            _ => {}
        }
    }

    /// The connection waits to be accepted again, and what was to stand behind it has its handle again.
    fn undo_accept(&mut self, slot: usize, handle: u32) {
        let noted = self.programs.row_mut(slot).map_or(0, |row| row.accepted);
        let sockets = &mut self.layer.sockets;
        let row = noted.checked_sub(1).filter(|row| *row < sockets.used());
        let Some(row) = row.filter(|row| sockets.id(*row).is_some()) else {
            return;
        };
        let owner = sockets.id(row).map(SocketId::to_bits);
        if let Some(backing) = sockets.companion(row).backing.take() {
            self.programs.return_backing(slot, handle, backing);
            sockets.keep_backing(row, None);
        }
        sockets.unhold(row, slot);
        let mut all = self.layer.stack.connection_names();
        let connection = all.find(|(_, of)| Some(*of) == owner);
        drop(all);
        if let Some((connection, _)) = connection {
            self.layer.stack.put_back(connection);
        }
    }

    /// A socket is its program's until it is closed: what was written before leaves first, and a descriptor may be open elsewhere.
    fn undo_close(&mut self, slot: usize, id: SocketId) {
        let sockets = &self.layer.sockets;
        let Some(row) = sockets.row_of(id.to_bits()) else {
            return;
        };
        let is_held = !sockets.holders(row).is_empty() || sockets.has(row, Marks::ORPHAN);
        let connection = sockets.row(row).connection();
        if !is_held && connection.is_none_or(|one| self.layer.stack.is_owned(one)) {
            self.layer.sockets.hold(row, slot);
        }
    }

    fn finish_command(&mut self, now: Instant, slot: usize, command: Command) {
        self.programs.begin_command(slot);
        if !self.is_done(slot, &command) {
            self.handle_command(now, slot, command);
        }
        self.programs.end_command(slot);
    }

    /// Whether the engine before has carried the command out already; then its program is told.
    fn is_done(&mut self, slot: usize, command: &Command) -> bool {
        let sockets = &self.layer.sockets;
        let row = command.socket.and_then(|id| sockets.held_by(id, slot));
        let record = row.map(|row| *sockets.row(row));
        let outcome = match (command.op, record) {
            (Op::Close { .. }, None) => 0,
            (Op::Bind { .. }, Some(record)) if record.local_port != 0 => {
                u64::from(record.local_port)
            }
            (Op::Bind { .. }, Some(record)) if record.kind == Kind::Datagram => {
                let id = record.datagram();
                let bound = id.and_then(|id| self.layer.stack.udp_addresses(id).ok());
                let port = bound.map_or(0, |(local, _)| local.port());
                if port == 0 {
                    return false;
                }
                port.into()
            }
            (
                Op::Connect { .. }
                | Op::ConnectHeard { .. }
                | Op::ConnectFast { .. }
                | Op::ConnectForCookie { .. },
                Some(record),
            ) if record.kind == Kind::Connection => 0,
            (
                Op::Membership {
                    change,
                    group,
                    source,
                    interface,
                },
                Some(_),
            ) if row.is_some_and(|row| {
                self.layer
                    .has_changed_membership(row, change, (group, source), interface)
            }) =>
            {
                0
            }
            _ => return false,
        };
        self.programs.done(slot, command.token, Ok(outcome));
        true
    }
}
