//! A TCP socket comes into being: a kernel socket that holds the port, or will, stands behind it.

use core::net::SocketAddr;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use hostif::control::Request;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};

use crate::engines::attached::Engines;
use crate::engines::session::Session;
use crate::readiness::State;
use crate::socket::Socket;
use crate::tcp::comeback::{BACKLOG, join_at};
use crate::tcp::listener::PerCore;
use crate::tcp::socket::TcpSocket;

/// Asks for one.
pub(crate) const OPEN: Request = Request::Open { count: 1 };

impl TcpSocket {
    /// Makes an engine socket for a backing socket (SOCK_STREAM), which the engine gets a
    /// duplicate of. For a connection see [`TcpSocket::open_towards`].
    pub fn open(
        session: &'static Session,
        backing: BorrowedFd<'_>,
    ) -> Result<Arc<TcpSocket>, Errno> {
        session.open(0, (&OPEN, backing), TcpSocket::new)
    }

    /// Makes an engine socket on the core that serves the connection from `local`, a port that the backing
    /// socket holds, to `remote`.
    pub fn open_towards(
        session: &'static Session,
        backing: BorrowedFd<'_>,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<Arc<TcpSocket>, Errno> {
        let steering = session.attachments()?.steering;
        let local = session.placed(local, remote)?;
        session.open(
            steering.core_of(local, remote),
            (&OPEN, backing),
            TcpSocket::new,
        )
    }

    /// The socket of one of the engines that a descriptor of SOCK_STREAM stands for, which came from elsewhere; `None`: it is
    /// none of theirs. A listener comes with its per-core sockets.
    pub fn adopt(
        engines: &Engines,
        backing: BorrowedFd<'_>,
    ) -> Result<Option<Arc<TcpSocket>>, Errno> {
        let mut found: Vec<Arc<TcpSocket>> = Vec::new();
        for session in engines.sessions() {
            if session.is_dead() {
                continue;
            }
            let cores = session.attachments()?.steering.cores;
            let mut known = None;
            for core in 0..cores {
                known = session.adopt_at(core, backing, TcpSocket::new)?;
                if known.is_some() {
                    break;
                }
            }
            let Some(known) = known else { continue };
            if known.state() != State::Listening && found.is_empty() {
                return Ok(Some(known));
            }
            let Some(local) = known.local_address() else {
                continue;
            };
            for core in 0..cores {
                // Those of lower cores too: they may have come since they were asked for.
                found.push(match known.id().core() == core {
                    true => Arc::clone(&known),
                    false => join_at(session, core, (backing, local))?,
                });
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
            for other in &per_core {
                other.session().on_listener_opened();
            }
            if !per_core.is_empty() {
                let _ = first.per_core.set(PerCore::new(per_core));
            }
        }
        Ok(Some(first))
    }
}
