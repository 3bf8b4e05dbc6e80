//! Commands without a completion.

use hostif::{Command, Op, SocketId};
use rustix::io::Errno;

use crate::engines::session::Session;

impl Session {
    /// Sends a command without a completion.
    pub(crate) fn post(&self, socket: SocketId, op: Op) -> Result<(), Errno> {
        self.post_to(socket.core(), Some(socket), op)
    }

    /// As `post`, to a core.
    pub(crate) fn post_to(&self, core: u16, socket: Option<SocketId>, op: Op) -> Result<(), Errno> {
        let attachment = self.living(core)?;
        attachment.push(
            &attachment.commands,
            &Command {
                token: 0,
                socket,
                op,
            },
        )?;
        attachment.ring_engine();
        Ok(())
    }
}
