//! Listeners outlive their engines: when one has ended, and another answers under its name, a listener listens there
//! again (docs/decisions/0051-listeners-outlive-engines.md). Until then it has no connections, and says nothing else.

use core::net::SocketAddr;
use core::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hostif::Op;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use crate::engines::session::Session;
use crate::readiness::State;
use crate::socket::Socket;
use crate::tcp::open::OPEN;
use crate::tcp::socket::TcpSocket;

/// How many connections may wait at a listener that came from another program, which alone knows: as many as Linux
/// allows by default (SOMAXCONN).
pub(crate) const BACKLOG: u32 = 4096;

/// How long another process may take from the first core that its listener is on to the last.
const OTHER_LISTENS: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_micros(200);

impl TcpSocket {
    /// Notes where it listens, for other engines that come after its own.
    pub(crate) fn note_listening(&self, backlog: u32) {
        if let Some(local) = self.local_address() {
            let _ = self.listens_at.set(local);
        }
        self.backlog.store(backlog, Ordering::Relaxed);
    }

    /// Whether this process listens with it, on all cores: it has begun to, or has found it listening. One that was adopted while another
    /// process was about to listen has the socket of one core alone.
    #[must_use]
    pub fn takes_part_in_listening(&self) -> bool {
        self.listens_at.get().is_some()
    }

    /// Whether it listens, and all its engines are gone.
    #[must_use]
    pub fn is_lost_listener(&self) -> bool {
        self.takes_part_in_listening() && self.is_reset() && !self.is_served_elsewhere()
    }

    /// Whether one of the engines on which it listened is gone, and it does not listen on another one in its place.
    #[must_use]
    pub fn misses_engine(&self) -> bool {
        self.missed().next().is_some()
    }

    /// The sessions with the engines that are missed.
    fn missed(&self) -> impl Iterator<Item = &'static Session> {
        let is_lost = self.takes_part_in_listening() && !self.is_closed();
        let parts = self.all_parts().filter(move |_| is_lost);
        parts
            .enumerate()
            .filter(|(at, part)| {
                let same = |one: &TcpSocket| core::ptr::eq(one.session(), part.session());
                let is_first = !self.all_parts().take(*at).any(same);
                is_first
                    && self
                        .all_parts()
                        .filter(|one| same(one))
                        .all(|one| one.is_reset())
            })
            .map(|(_, part)| part.session())
    }

    /// Listens again on every engine that has come in the place of one that is gone; `backing` is the backing socket.
    /// Whether none is missing any more.
    pub fn listen_again(&self, backing: BorrowedFd<'_>) -> bool {
        let Some(local) = self.listens_at.get().copied() else {
            return true;
        };
        let missed: Vec<_> = self.missed().collect();
        let mut is_whole = true;
        for session in missed {
            let backlog = self.backlog.load(Ordering::Relaxed);
            let listening = if session.is_dead() {
                Err(Errno::CONNRESET)
            } else {
                listen_on(session, backing, local, backlog)
            };
            match listening {
                Ok(sockets) => {
                    let marks = self.marks();
                    for socket in &sockets {
                        socket.header().program_mark(marks, true);
                        session.on_listener_opened();
                    }
                    self.add_per_core(sockets);
                }
                Err(_) => is_whole = false,
            }
        }
        is_whole
    }
}

/// Listens on all cores of an engine, beside other processes that have the listener too and were faster. As little as can
/// be lies between the first core and the last: one that does not listen yet refuses what is steered there.
pub(crate) fn listen_on(
    session: &'static Session,
    backing: BorrowedFd<'_>,
    local: SocketAddr,
    backlog: u32,
) -> Result<Vec<Arc<TcpSocket>>, Errno> {
    let cores = session.attachments()?.steering.cores;
    let bind = |core| bind_at(session, core, (backing, local));
    let sockets = (0..cores).map(bind).collect::<Result<Vec<_>, Errno>>()?;
    let listen = |(socket, bound)| listen_as_bound(socket, bound, backlog);
    sockets.into_iter().map(listen).collect()
}

/// What another process has bound or listens with there, or a socket of our own, and whether it is bound.
type MaybeBound = (Arc<TcpSocket>, Result<SocketAddr, Errno>);

fn bind_at(
    session: &'static Session,
    core: u16,
    (backing, local): (BorrowedFd<'_>, SocketAddr),
) -> Result<MaybeBound, Errno> {
    let socket = match session.adopt_at(core, backing, TcpSocket::new)? {
        Some(known) => known,
        None => session.open(core, (&OPEN, backing), TcpSocket::new)?,
    };
    let bound = match socket.state() {
        State::Listening => Ok(local),
        // Another process may have bound it a moment ago.
        _ => socket.bind(local),
    };
    Ok((socket, bound))
}

fn listen_as_bound(
    socket: Arc<TcpSocket>,
    bound: Result<SocketAddr, Errno>,
    backlog: u32,
) -> Result<Arc<TcpSocket>, Errno> {
    if socket.state() != State::Listening {
        socket
            .call(Op::Listen { backlog })
            .map_err(|error| bound.err().unwrap_or(error))?;
    }
    Ok(socket)
}

/// The per-core socket of a listener that another process has begun, which listens core by core: that takes a moment, in which this process,
/// if it tried to listen too and was later, may still be known with a socket that it has closed. If the other process ended there, this one
/// listens in its place.
pub(crate) fn join_at(
    session: &'static Session,
    core: u16,
    at: (BorrowedFd<'_>, SocketAddr),
) -> Result<Arc<TcpSocket>, Errno> {
    let deadline = Instant::now() + OTHER_LISTENS;
    while Instant::now() < deadline {
        let found = session.adopt_at(core, at.0, TcpSocket::new)?;
        if let Some(socket) = found.filter(|socket| socket.state() == State::Listening) {
            return Ok(socket);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    let (socket, bound) = bind_at(session, core, at)?;
    listen_as_bound(socket, bound, BACKLOG)
}
