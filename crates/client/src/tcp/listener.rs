//! Listening on an engine of several cores, or on several engines: the socket has one more on each other core,
//! and what they have adds up. Connections of a listener arrive wherever their addresses and ports are steered to.

use core::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use hostif::Op;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};

use crate::engines::session::Session;
use crate::readiness::State;
use crate::socket::Socket;
use crate::tcp::comeback::listen_on;
use crate::tcp::open::OPEN;
use crate::tcp::socket::TcpSocket;

/// The per-core sockets of a listener on core 0 of the first engine.
pub struct PerCore {
    sockets: Box<[Arc<TcpSocket>]>,
    /// Those on engines that came in the place of others.
    later: OnceLock<Box<PerCore>>,
}

impl PerCore {
    /// These, beside a listener on core 0.
    pub(crate) fn new(sockets: Vec<Arc<TcpSocket>>) -> Box<PerCore> {
        Box::new(PerCore {
            sockets: sockets.into_boxed_slice(),
            later: OnceLock::new(),
        })
    }
}

impl TcpSocket {
    /// As [`TcpSocket::listen_beside`] on its own engine alone.
    pub fn listen(&self, backing: BorrowedFd<'_>, backlog: u32) -> Result<(), Errno> {
        self.listen_beside(backing, backlog, &[])
    }

    /// Starts to accept connections on all cores, or changes the backlog. `backing` is the backing socket
    /// that the socket was opened with. Each core has the whole backlog: what is steered there alone
    /// shall not be refused earlier than one core would refuse it. Those other engines listen too; one that
    /// cannot is left out, and said.
    pub fn listen_beside(
        &self,
        backing: BorrowedFd<'_>,
        backlog: u32,
        others: &[&'static Session],
    ) -> Result<(), Errno> {
        if self.is_lost_listener() {
            // The next engine hears of it.
            self.backlog.store(backlog, Ordering::Relaxed);
            return Ok(());
        }
        let first = self.state() != State::Listening;
        let family = sockopt::socket_domain(backing)?;
        self.is_v6
            .store(family == AddressFamily::INET6, Ordering::Relaxed);
        if first {
            self.prepare_to_listen(backing)?;
            let per_core = self.listen_on_others(backing, backlog, others)?;
            if !per_core.is_empty() {
                self.add_per_core(per_core);
            }
        }
        for part in self.parts() {
            if first && !self.is_of_our_engine(part) {
                // They listen already.
                continue;
            }
            let listening = part.call(Op::Listen { backlog });
            match listening {
                Ok(_) if first => part.session().on_listener_opened(),
                Ok(_) => {}
                Err(error) => {
                    self.close_per_core();
                    return Err(error);
                }
            }
        }
        self.note_listening(backlog);
        Ok(())
    }

    /// Binds the per-core sockets on all cores of its engine, as it is bound: they know that it is about to listen. For who connects
    /// meanwhile and would be heard by the kernel otherwise, this comes before listen(2) of the backing socket.
    pub fn prepare_to_listen(&self, backing: BorrowedFd<'_>) -> Result<(), Errno> {
        let cores = self.session().attachments()?.steering.cores;
        if cores == 1 || self.per_core.get().is_some() {
            return Ok(());
        }
        let local = self.local_address().ok_or(Errno::INVAL)?;
        let own = self.id().core();
        let mut sockets = Vec::new();
        for core in (0..cores).filter(|core| *core != own) {
            let other = self
                .session()
                .open(core, (&OPEN, backing), TcpSocket::new)?;
            other.bind(local)?;
            sockets.push(other);
        }
        // A second thread that listens at the same time finds the port taken by the first.
        let _ = self.per_core.set(PerCore::new(sockets));
        Ok(())
    }

    fn listen_on_others(
        &self,
        backing: BorrowedFd<'_>,
        backlog: u32,
        others: &[&'static Session],
    ) -> Result<Vec<Arc<TcpSocket>>, Errno> {
        let local = self.local_address().ok_or(Errno::INVAL)?;
        let mut sockets = Vec::new();
        for other in others {
            match listen_on(other, backing, local, backlog) {
                Ok(per_core) => {
                    per_core.iter().for_each(|_| other.on_listener_opened());
                    sockets.extend(per_core);
                }
                Err(error) => crate::say::say(&format!(
                    "a listener on {local} is not served by {}: {error}",
                    other.name()
                )),
            }
        }
        Ok(sockets)
    }

    /// The socket itself and, of a listener, its per-core sockets, living or not.
    pub(crate) fn all_parts(&self) -> impl Iterator<Item = &TcpSocket> {
        let per_core = core::iter::successors(self.per_core.get(), |per_core| per_core.later.get());
        let per_core = per_core.flat_map(|per_core| per_core.sockets.iter().map(Arc::as_ref));
        core::iter::once(self).chain(per_core)
    }

    /// Those of them whose engines are there; if none is, the socket itself.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &TcpSocket> {
        let any = self.is_served_elsewhere();
        self.all_parts().filter(move |part| {
            if any {
                !part.is_reset()
            } else {
                core::ptr::eq(*part, self)
            }
        })
    }

    /// Whether it has per-core sockets, and one of all parts has an engine that is there.
    pub(crate) fn is_served_elsewhere(&self) -> bool {
        self.per_core.get().is_some() && self.all_parts().any(|part| !part.is_reset())
    }

    /// More per-core sockets, on an engine that was started again.
    pub(crate) fn add_per_core(&self, sockets: Vec<Arc<TcpSocket>>) {
        let mut per_core = PerCore::new(sockets);
        let mut place = &self.per_core;
        while let Err(refused) = place.set(per_core) {
            per_core = refused;
            let Some(taken) = place.get() else { return };
            place = &taken.later;
        }
    }

    fn is_of_our_engine(&self, part: &TcpSocket) -> bool {
        core::ptr::eq(self.session(), part.session())
    }

    /// The part whose connection waits longest to be accepted: a program gets them in the order in which they came,
    /// whichever cores they came to.
    pub(crate) fn part_to_accept_from(&self) -> Option<&TcpSocket> {
        self.parts()
            .filter(|part| part.header().accept_ready() > 0)
            .min_by_key(|part| part.header().accept_since_us())
    }

    pub(crate) fn close_per_core(&self) {
        for part in self.all_parts().skip(1) {
            part.close();
        }
    }
}
