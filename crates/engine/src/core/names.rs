//! Commands that need what the kernel calls a backing socket. To ask takes the socket's lock, which a program can
//! keep, so those of other users are asked on their own threads, and the command that needs the answer waits: see `users`.

use super::EngineCore;
use crate::programs::users::Finished;
use crate::sockets::backing::name_of;
use core::net::SocketAddr;
use hostif::{Command, Op, SocketId};
use rustix::io::Errno;
use std::sync::Arc;
use tcp::Instant;

impl EngineCore {
    /// Whether a command needs a name that is not known yet. Then it is asked for, and the command is kept.
    pub(crate) fn must_wait_for_name(&mut self, slot: usize, command: &Command) -> bool {
        let needs = matches!(
            command.op,
            Op::Bind { .. }
                | Op::Listen { .. }
                | Op::Connect { .. }
                | Op::ConnectHeard { .. }
                | Op::ConnectFast { .. }
                | Op::ConnectForCookie { .. }
        );
        let Some(id) = command.socket.filter(|_| needs) else {
            return false;
        };
        if self
            .layer
            .sockets
            .asked_name
            .is_some_and(|(socket, _)| socket == id)
        {
            return false;
        }
        let Some(row) = self.layer.sockets.held_by(id, slot) else {
            return false;
        };
        if asks_for_any_port(&command.op) && !self.layer.is_datagram(row) {
            return false;
        }
        let Some(backing) = &self.layer.sockets.companion(row).backing else {
            return false;
        };
        let user = Arc::clone(backing.user());
        if user.is_asked_here() {
            return false;
        }
        // The number may be another's by then.
        let Ok(copy) = rustix::io::fcntl_dupfd_cloexec(&**backing, 0) else {
            return false;
        };
        let copy = user.keep(copy);
        let Some(session) = self.programs.get_mut(slot) else {
            return false;
        };
        session.unnamed = Some(*command);
        let (session, answers) = (session.number, self.programs.finished.sender());
        user.run(move || {
            let name = name_of(&copy);
            copy.close_here();
            answers.tell(Finished::Named {
                session,
                socket: id,
                name,
            });
        });
        true
    }

    /// Carries out the command that has waited for a name.
    pub(crate) fn on_named(
        &mut self,
        now: Instant,
        session: u32,
        socket: SocketId,
        name: Result<SocketAddr, Errno>,
    ) {
        let Some(slot) = self.programs.slot_of(session) else {
            return;
        };
        let waiting = self.programs.get_mut(slot);
        let Some(command) = waiting.and_then(|session| session.unnamed.take()) else {
            return;
        };
        self.layer.sockets.set_now(now);
        self.layer.sockets.asked_name = Some((socket, name));
        self.programs.begin_command(slot);
        self.handle_command(now, slot, command);
        self.programs.end_command(slot);
        self.layer.sockets.asked_name = None;
    }
}

/// Whether it is a connect whose port the engine is to choose.
fn asks_for_any_port(op: &Op) -> bool {
    match op {
        Op::Connect { local, .. }
        | Op::ConnectHeard { local, .. }
        | Op::ConnectFast { local, .. }
        | Op::ConnectForCookie { local, .. } => local.is_some_and(|local| local.port() == 0),
        _ => false,
    }
}
