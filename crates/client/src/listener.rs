//! Listening on an engine of several cores: the socket has a twin on each other core, and what they have
//! adds up. Connections of a listener arrive wherever their addresses and ports are steered to.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use hostif::{Op, SocketId};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};

use crate::readiness::State;
use crate::socket::TcpSocket;

/// The twins of a listener on core 0.
pub struct Twins {
    sockets: Box<[Arc<TcpSocket>]>,
    /// Which part is asked first by the next accept.
    turn: AtomicUsize,
}

impl TcpSocket {
    /// Starts to accept connections on all cores, or changes the backlog. `backing` is the backing socket
    /// that the socket was opened with. Each core has the whole backlog: what is steered there alone
    /// shall not be refused earlier than one core would refuse it.
    pub fn listen(&self, backing: BorrowedFd<'_>, backlog: u32) -> Result<(), Errno> {
        let first = self.state() != State::Listening;
        let family = sockopt::socket_domain(backing)?;
        self.is_v6
            .store(family == AddressFamily::INET6, Ordering::Relaxed);
        if first && self.session().attachments()?.steering.cores > 1 {
            let twins = self.make_twins(backing)?;
            // A second thread that listens at the same time finds the port taken by the first.
            let _ = self.twins.set(twins);
        }
        for part in self.parts() {
            let listening = part.session().call_plain(part.id(), Op::Listen { backlog });
            match listening {
                Ok(_) if first => part.session().on_listener_opened(),
                Ok(_) => {}
                Err(error) => {
                    self.close_twins();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn make_twins(&self, backing: BorrowedFd<'_>) -> Result<Twins, Errno> {
        let local = self.local_address().ok_or(Errno::INVAL)?;
        let cores = self.session().attachments()?.steering.cores;
        let own = self.id().core();
        let mut sockets = Vec::new();
        for core in (0..cores).filter(|core| *core != own) {
            let twin = self.session().open_at(core, backing)?;
            twin.bind(local)?;
            sockets.push(twin);
        }
        Ok(Twins {
            sockets: sockets.into_boxed_slice(),
            turn: AtomicUsize::new(0),
        })
    }

    /// The socket itself and, of a listener, its twins.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &TcpSocket> {
        let twins = self.twins.get().map_or(&[][..], |twins| &twins.sockets);
        core::iter::once(self).chain(twins.iter().map(Arc::as_ref))
    }

    /// As `parts`, from another one on each time.
    pub(crate) fn parts_by_turns(&self) -> impl Iterator<Item = &TcpSocket> {
        let (turn, count) = self.twins.get().map_or((0, 1), |twins| {
            let count = twins.sockets.len() + 1;
            (twins.turn.fetch_add(1, Ordering::Relaxed) % count, count)
        });
        self.parts()
            .skip(turn)
            .chain(self.parts().take(turn))
            .take(count)
    }

    /// Their names.
    pub(crate) fn ids(&self) -> impl Iterator<Item = SocketId> {
        self.parts().map(TcpSocket::id)
    }

    pub(crate) fn close_twins(&self) {
        for part in self.parts().skip(1) {
            part.close();
        }
    }
}
