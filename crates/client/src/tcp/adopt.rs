//! Sockets whose descriptors come from elsewhere: through exec(3), or in a message with SCM_RIGHTS. The descriptor is
//! passed to the engine, which reads from it which socket it is (docs/decisions/0037-descriptors-that-are-handed-on.md).
//! And the other way: telling the engines that descriptors are about to leave.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use hostif::control::{Reply, Request};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};

use crate::engines::Engines;
use crate::engines::session::Session;
use crate::lock::{lock, read};
use crate::readiness::State;
use crate::tcp::comeback::BACKLOG;
use crate::tcp::listener::PerCore;
use crate::tcp::socket::TcpSocket;

impl Session {
    /// The socket of a core that a descriptor stands for; `None`: it is none of that core's.
    pub(crate) fn adopt_at(
        &'static self,
        core: u16,
        backing: BorrowedFd<'_>,
    ) -> Result<Option<Arc<TcpSocket>>, Errno> {
        let _opening = read(&self.opening);
        let adopted = match self.request(core, &Request::Adopt, &[backing]) {
            Ok((Reply::Adopted(adopted), _)) => adopted,
            Ok(_) => return Err(Errno::PROTO),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error),
        };
        let known = lock(&self.registry).find(adopted.socket);
        if known.is_some() {
            return Ok(known);
        }
        if adopted.socket.core() != core {
            return Err(Errno::PROTO);
        }
        let region = self.region(core, adopted.region)?;
        self.make_socket(adopted.socket, region, adopted.header)
            .map(Some)
    }

    /// Descriptors of all sockets of this process are about to be open elsewhere too.
    fn share_all(&self) {
        if lock(&self.registry).is_empty() {
            return;
        }
        let attached = self.attached().into_iter();
        for attachment in attached.flat_map(crate::engines::attachments::Attachments::iter) {
            // It fails only when the engine is gone, and the sockets with it.
            let _ = self.request(attachment.core, &Request::Share { socket: None }, &[]);
        }
    }
}

impl Engines {
    /// The socket of one of the engines that a descriptor stands for; `None`: it is none of theirs. A listener comes
    /// with its per-core sockets.
    pub fn adopt(&self, backing: BorrowedFd<'_>) -> Result<Option<Arc<TcpSocket>>, Errno> {
        let mut found: Vec<Arc<TcpSocket>> = Vec::new();
        for session in self.sessions() {
            if session.is_dead() {
                continue;
            }
            for core in 0..session.attachments()?.steering.cores {
                let Some(socket) = session.adopt_at(core, backing)? else {
                    continue;
                };
                // Of a listener that another process makes at this moment the other cores follow.
                if socket.state() != State::Listening && found.is_empty() {
                    return Ok(Some(socket));
                }
                found.push(socket);
            }
        }
        let mut found = found.into_iter();
        let Some(first) = found.next() else {
            return Ok(None);
        };
        let is_v6 = sockopt::socket_domain(backing)? == AddressFamily::INET6;
        first.is_v6.store(is_v6, Ordering::Relaxed);
        first.note_listening(BACKLOG);
        let per_core: Vec<_> = found.collect();
        if first.per_core.get().is_none() {
            first.session().on_listener_opened();
            for twin in &per_core {
                twin.session().on_listener_opened();
            }
            if !per_core.is_empty() {
                let _ = first.per_core.set(PerCore::new(per_core));
            }
        }
        Ok(Some(first))
    }

    /// Descriptors of all sockets of this process are about to be open elsewhere too, where no engine sees them: another
    /// program starts.
    pub fn share_all(&self) {
        for session in self.sessions() {
            session.share_all();
        }
    }
}

impl TcpSocket {
    /// A descriptor of this socket is about to leave in a message.
    pub fn share(&self) {
        for part in self.parts() {
            let socket = Some(part.id());
            let request = Request::Share { socket };
            let _ = part.session().request(part.id().core(), &request, &[]);
        }
    }

    /// What the processes that hold the socket have noted for each other.
    #[must_use]
    pub fn marks(&self) -> u32 {
        self.parts().next().unwrap_or(self).header().marks()
    }

    /// Notes something, or takes it back.
    pub fn mark(&self, marks: u32, on: bool) {
        for part in self.all_parts() {
            part.header().program_mark(marks, on);
        }
    }

    /// Which directions the program has shut down: reading, writing.
    #[must_use]
    pub fn shut(&self) -> (bool, bool) {
        let shut = self.header().shut();
        (
            shut & hostif::header::SHUT_READ != 0,
            shut & hostif::header::SHUT_WRITE != 0,
        )
    }
}
