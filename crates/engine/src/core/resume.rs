//! A core that goes on where another process stopped, killed or replaced: programs, sockets and connections are taken up from
//! the rows, what was being done is done once more, and every program is rung to look at its sockets again.

use super::EngineCore;
use crate::programs::resume::Taken;
use crate::sockets::rows::Kind;
use crate::state::rows::SessionRow;
use hostif::control::{ASK_AGAIN, Reply, send};
use hostif::{Command, Op};
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
        self.layer.resume(now);
        for row in 0..self.layer.sockets.used() {
            for at in 0..self.layer.sockets.holders(row).len() {
                let slot = self.layer.sockets.holders(row)[at];
                if let Some(session) = self.programs.get_mut(slot) {
                    session.sockets.insert(row);
                }
            }
        }
        for slot in 0..self.programs.slots() {
            self.resume_session(now, slot);
        }
        for set in self.layer.orphans.sets() {
            taken.note(set);
        }
    }

    fn resume_session(&mut self, now: Instant, slot: usize) {
        let Some(row) = self.programs.row_mut(slot).map(|row| *row) else {
            return;
        };
        if self.programs.get(slot).is_none() {
            return;
        }
        if row.owes_answer == 1 {
            self.answer_again(slot);
        }
        self.finish_command(now, slot, &row);
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

    /// The command that was being carried out.
    fn finish_command(&mut self, now: Instant, slot: usize, row: &SessionRow) {
        let Some(rings) = self.programs.rings_of(slot) else {
            return;
        };
        let is_told = rings.told() > row.told;
        let is_under_way = row.command == rings.commands.position().wrapping_add(1);
        if !is_told && let Some(accepted) = row.accepted.checked_sub(1) {
            self.give_up(now, slot, accepted);
        }
        let Some(rings) = self.programs.rings_of(slot).filter(|_| is_under_way) else {
            return;
        };
        let Ok(Some(command)) = rings.commands.read() else {
            return;
        };
        if is_told {
            rings.commands.release();
            return;
        }
        self.programs.begin_command(slot);
        if !self.is_done(slot, &command) {
            self.handle_command(now, slot, command);
        }
        self.programs.end_command(slot);
    }

    /// A connection that was accepted, and whose program does not know of it.
    fn give_up(&mut self, now: Instant, slot: usize, row: u32) {
        if row >= self.layer.sockets.used() || !self.layer.sockets.holders(row).contains(&slot) {
            return;
        }
        self.layer.sockets.unhold(row, slot);
        if let Some(session) = self.programs.get_mut(slot) {
            session.sockets.remove(&row);
        }
        if let Some(connection) = self.layer.sockets.row(row).connection() {
            let sockets = &mut self.layer.sockets;
            let _ = self.layer.stack.abort(now, connection, sockets);
        }
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
