//! Sockets come into being on an engine: opened over a backing socket, or found by a descriptor that came from elsewhere,
//! through exec(3) or in a message with SCM_RIGHTS. The descriptor is passed to the engine, which reads from it which socket
//! it is (docs/decisions/0037-descriptors-that-are-handed-on.md). What kind of socket it is the caller knows.

use std::sync::{Arc, Weak};

use hostif::SocketId;
use hostif::control::{Reply, Request};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use crate::engines::attachment::attachments::Attachments;
use crate::engines::session::registry::EngineSocket;
use crate::engines::session::{Opened, Session};
use crate::lock::{lock, read};

impl Session {
    /// Makes an engine socket on a core by `request`, for a backing socket, which the engine gets a duplicate of.
    pub(crate) fn open<T: EngineSocket>(
        &'static self,
        core: u16,
        (request, backing): (&Request, BorrowedFd<'_>),
        make: impl FnOnce(&'static Session, Opened) -> Result<T, Errno>,
    ) -> Result<Arc<T>, Errno> {
        let _opening = read(&self.opening);
        match self.request(core, request, &[backing])? {
            (Reply::Opened(list), _) => {
                let opened = list.first().ok_or(Errno::PROTO)?;
                if opened.socket.core() != core {
                    return Err(Errno::PROTO);
                }
                let opened = Opened {
                    id: opened.socket,
                    region: self.living(core)?.region.clone(),
                    header: opened.header,
                };
                self.register(opened, make)
            }
            _ => Err(Errno::PROTO),
        }
    }

    /// Makes a socket of what an engine has opened, and knows it from now on. With `opening` held for reading.
    pub(crate) fn register<T: EngineSocket>(
        &'static self,
        opened: Opened,
        make: impl FnOnce(&'static Session, Opened) -> Result<T, Errno>,
    ) -> Result<Arc<T>, Errno> {
        let id = opened.id;
        let socket = Arc::new(make(self, opened)?);
        let known: Weak<T> = Arc::downgrade(&socket);
        lock(&self.registry).insert(id, known);
        Ok(socket)
    }

    /// The socket of a core that a descriptor stands for; `None`: it is none of that core's. EPROTO: this process knows it as
    /// one of another kind.
    pub(crate) fn adopt_at<T: EngineSocket>(
        &'static self,
        core: u16,
        backing: BorrowedFd<'_>,
        make: impl FnOnce(&'static Session, Opened) -> Result<T, Errno>,
    ) -> Result<Option<Arc<T>>, Errno> {
        let _opening = read(&self.opening);
        let adopted = match self.request(core, &Request::Adopt, &[backing]) {
            Ok((Reply::Adopted(adopted), _)) => adopted,
            Ok(_) => return Err(Errno::PROTO),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error),
        };
        if let Some(known) = self.known(adopted.socket)? {
            return Ok(Some(known));
        }
        if adopted.socket.core() != core {
            return Err(Errno::PROTO);
        }
        let opened = Opened {
            id: adopted.socket,
            region: self.region(core, adopted.region)?,
            header: adopted.header,
        };
        self.register(opened, make).map(Some)
    }

    fn known<T: EngineSocket>(&self, id: SocketId) -> Result<Option<Arc<T>>, Errno> {
        // Not in the match's head: the lock would be held as long as the socket.
        let known = lock(&self.registry).find(id);
        known
            .map(|socket| socket.downcast().map_err(|_| Errno::PROTO))
            .transpose()
    }

    /// Descriptors of all sockets of this process are about to be open elsewhere too, where no engine sees them: another
    /// program starts.
    pub(crate) fn share_all(&self) {
        if lock(&self.registry).is_empty() {
            return;
        }
        for attachment in self.attached().into_iter().flat_map(Attachments::iter) {
            // It fails only when the engine is gone, and the sockets with it.
            let _ = self.request(attachment.core, &Request::Share { socket: None }, &[]);
        }
    }
}
