//! Files that the engine may read for this process, so that sendfile(2) need not copy them into a
//! window: shared once, then named in notes by handle.

use hostif::control::{Reply, Request};
use hostif::{Command, Op};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use crate::engines::attachment::Attachment;
use crate::engines::session::Session;
use crate::tcp::socket::TcpSocket;

/// A file that the engine holds open for this process; dropping it gives it back. In a forked child
/// it is of no use: the child shares files of its own.
pub struct SharedFile {
    session: &'static Session,
    attachment: &'static Attachment,
    handle: u32,
}

impl TcpSocket {
    /// Shares a file that is open for reading with the core that serves this socket, to be sent over
    /// this and other sockets of that core. EOPNOTSUPP: the engine does not read such a file.
    pub fn share_file(&self, file: BorrowedFd<'_>) -> Result<SharedFile, Errno> {
        let (session, core) = (self.session(), self.id().core());
        let attachment = self.living()?;
        match session.request(core, &Request::ShareFile, &[file])? {
            (
                Reply::Prepared {
                    first: handle,
                    count: 1,
                },
                _,
            ) => {
                // Another thread may have attached to a new engine, which then has the file.
                if core::ptr::eq(attachment, self.living()?) {
                    Ok(SharedFile {
                        session,
                        attachment,
                        handle,
                    })
                } else {
                    Err(Errno::STALE)
                }
            }
            _ => Err(Errno::PROTO),
        }
    }
}

impl SharedFile {
    /// Whether the session has not changed engines or processes since the file was shared.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.session
            .attached()
            .is_some_and(|all| all.has(self.attachment))
    }

    /// Whether it was shared with the core that serves this socket.
    #[must_use]
    pub fn is_for(&self, socket: &TcpSocket) -> bool {
        core::ptr::eq(self.session, socket.session()) && self.attachment.core == socket.id().core()
    }

    /// Attachments are never freed, so an address names one for ever.
    pub(crate) fn is_of(&self, attachment: &Attachment) -> bool {
        core::ptr::eq(self.attachment, attachment)
    }

    pub(crate) fn handle(&self) -> u32 {
        self.handle
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // Otherwise the handle is another process's, or gone.
        if !self.is_current() {
            return;
        }
        let command = Command {
            token: 0,
            socket: None,
            op: Op::CloseBacking {
                handle: self.handle,
            },
        };
        // It fails only when the engine is gone, and the handle with it.
        let _ = self.attachment.push(&self.attachment.commands, &command);
        self.attachment.ring_engine();
    }
}
