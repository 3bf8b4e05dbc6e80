//! What the kernel calls backing sockets: the ports that programs have. To ask takes the socket's lock, which a program can
//! keep, so those of other users are asked on their own threads, and the command that needs the answer waits: see `users`.

use crate::core::EngineCore;
use crate::programs::users::Finished;
use core::net::SocketAddr;
use hostif::{Command, Op, SocketId};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use tcp::Instant;

impl EngineCore {
    /// Address and port that the kernel holds for the backing socket. It decided about privilege, conflicts
    /// and `SO_REUSEADDR`; a program that asks for others here has not asked the kernel.
    pub(crate) fn kernel_name(&mut self, row: u32) -> Result<SocketAddr, Errno> {
        let id = self.sockets.id(row).ok_or(Errno::BADF)?;
        let asked = self.named.filter(|(socket, _)| *socket == id);
        let name = match asked {
            Some((_, name)) => name,
            None => {
                let backing = self.sockets.companion(row).backing.as_ref();
                let backing = backing.ok_or(Errno::BADF)?;
                if !is_asked_here(backing.user()) {
                    return Err(Errno::ACCESS);
                }
                name_of(backing)
            }
        };
        name.and_then(|name| (name.port() != 0).then_some(name).ok_or(Errno::ACCESS))
    }

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
        if self.named.is_some_and(|(socket, _)| socket == id) {
            return false;
        }
        let Some(row) = self.sockets.held_by(id, slot) else {
            return false;
        };
        let Some(backing) = &self.sockets.companion(row).backing else {
            return false;
        };
        let user = Arc::clone(backing.user());
        if is_asked_here(&user) {
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
        let (session, answers) = (session.number, self.programs.desk.answers());
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
        self.sockets.set_now(now);
        self.named = Some((socket, name));
        self.handle_command(now, slot, command);
        self.named = None;
    }
}

/// Root's programs, and those of whoever runs the engine, could stop it in simpler ways.
pub(crate) fn is_asked_here(user: &crate::programs::users::User) -> bool {
    user.is_direct() || user.is_trusted()
}

fn name_of(socket: &OwnedFd) -> Result<SocketAddr, Errno> {
    // Whoever makes a network namespace holds every port in it.
    if !netlink::is_of_own_network(socket.as_fd()).unwrap_or(false) {
        return Err(Errno::ACCESS);
    }
    let name = rustix::net::getsockname(socket)?;
    SocketAddr::try_from(name).map_err(|_| Errno::ACCESS)
}
