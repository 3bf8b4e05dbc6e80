//! listen(2) and accept(2). A listener on ANY listens on every stack at once; one accept serves both
//! queues, alternately.

use core::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hostif::sync::doorbell;
use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};
use rustix::net::SocketFlags;

use crate::calls::name;
use crate::calls::options;
use crate::calls::sigio;
use crate::fd_table::descriptors;
use crate::fd_table::file::{File, Kind};
use crate::fd_table::inherited::{self, Found};
use crate::outcome::Switched;
use crate::policy::policy;
use crate::report;
use crate::socket::{EngineIndex, Owner, Socket};
use crate::sys;
use crate::wait::lost_engines;
use crate::wait::sleep::{Deadline, after_interruption};
use crate::wait::sleeping;
use client::PrivateFd;
use client::address::{self, Emitted};
use client::inline_engine::with_spared_descriptors;
use switch::attached;
use switch::backing;
use switch::readiness::Phase;
use switch::stream::{Accepted, Stream};

/// A connect that found no engine's listener on loopback is about to reach the kernel, which refuses it unless it listens.
const GRACE: Duration = Duration::from_millis(1);

/// listen(2).
pub fn listen(fd: RawFd, backlog: i32) -> Switched<i32> {
    let Some(file) = descriptors::lookup(fd) else {
        return Ok(None);
    };
    let Some(socket) = file.socket().filter(|socket| !socket.is_datagram()) else {
        return Ok(None);
    };
    socket.shed();
    socket.take_unnamed();
    socket.pay_options(fd);
    options::note_v6_only(fd, socket);
    if let Some(stream) = socket.stream() {
        // A second listen changes the backlog; a connection cannot listen.
        if stream.phase() != Phase::Listening {
            return Err(Errno::INVAL);
        }
        stream.set_backlog(sys::borrow(fd)?, backlog)?;
        return Ok(None);
    }
    let decided = match attached::all() {
        Some(engines) => {
            let device = socket.device(fd, &engines.stream_networks());
            let local = socket.bound().into();
            switch::listen::decide(local, device, policy().is_engine_only(), engines)?
        }
        None => None,
    };
    let Some(listener) = decided else {
        socket.leave_to_kernel();
        descriptors::forget(fd);
        return Ok(None);
    };
    let (owner, place) = (listener.owner, listener.place);
    let backing = sys::borrow(fd)?;
    // On loopback, where somebody may know the port already, the engine knows of the listener before the kernel hears, so that
    // nobody is heard there who would be heard here a moment later.
    let uses_loopback = attached::has_loopback() && !policy().is_engine_only();
    let is_bound = uses_loopback && backing::local_of(backing)?.port() != 0;
    let prepared = is_bound.then(|| prepare(fd, socket, place));
    if is_bound && owner == Owner::Any {
        std::thread::sleep(GRACE);
    }
    backing::listen(backing, backlog)?;
    let prepared = prepared.unwrap_or_else(|| prepare(fd, socket, place));
    let started =
        prepared.and_then(|stream| start(fd, socket, stream, (backlog, listener.is_on_all)));
    let started = match started {
        Err(Errno::ADDRINUSE) => join(fd, backlog)?.ok_or(Errno::ADDRINUSE),
        started => started,
    };
    match (started, owner) {
        (Ok(stream), Owner::Engine) => socket.decide(stream),
        (Ok(stream), Owner::Any) => {
            socket.set_kernel_listens(fd, &stream)?;
            socket.decide(stream);
        }
        (Err(error), owner) if owner == Owner::Engine || policy().is_engine_only() => {
            return Err(error);
        }
        (Err(error), _) => {
            report::line(&format!(
                "a listener on ANY is served by the kernel alone: {error}"
            ));
            socket.leave_to_kernel();
            descriptors::forget(fd);
        }
    }
    Ok(Some(0))
}

/// Makes the socket that is to listen on an engine.
fn prepare(fd: RawFd, socket: &Socket, place: EngineIndex) -> Result<Arc<Stream>, Errno> {
    let backing = sys::borrow(fd)?;
    let stream = Stream::open(place, backing)?;
    // Before it listens, so that the first connection has them; after, for the engine's other cores.
    socket.log.apply(&stream);
    sigio::apply(fd, socket, &stream);
    stream.prepare_to_listen(backing, backing::local_of(backing)?)?;
    Ok(stream)
}

/// A new listener of an engine.
fn start(
    fd: RawFd,
    socket: &Socket,
    stream: Arc<Stream>,
    (backlog, is_on_all): (i32, bool),
) -> Result<Arc<Stream>, Errno> {
    let backing = sys::borrow(fd)?;
    stream.listen(backing, backlog, is_on_all)?;
    socket.log.apply(&stream);
    sigio::apply(fd, socket, &stream);
    Ok(stream)
}

/// The listener that another program has made meanwhile of the same socket, which one of them has from a message; `None`: there
/// is none. As in Linux a second listen changes the backlog.
fn join(fd: RawFd, backlog: i32) -> Result<Option<Arc<Stream>>, Errno> {
    match inherited::adopt(fd, true)? {
        Found::Stream(stream) if stream.takes_part_in_listening() => {
            stream.set_backlog(sys::borrow(fd)?, backlog)?;
            Ok(Some(stream))
        }
        _ => Ok(None),
    }
}

/// accept4(2): the new descriptor and the peer.
pub fn accept(fd: RawFd, flags: i32) -> Switched<(RawFd, Emitted)> {
    let Some(file) = descriptors::lookup(fd) else {
        return Ok(None);
    };
    let Some(socket) = file.socket().filter(|socket| !socket.is_datagram()) else {
        return Ok(None);
    };
    let Some(stream) = socket.stream() else {
        return Ok(None);
    };
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0
        || stream.phase() != Phase::Listening
    {
        return Err(Errno::INVAL);
    }
    let listener = Listener {
        fd,
        file: &file,
        socket,
        stream: &stream,
        flags,
    };
    let accepted = listener.accept();
    sigio::settle(socket, &stream);
    accepted.map(Some)
}

struct Listener<'a> {
    fd: RawFd,
    file: &'a Arc<File>,
    socket: &'a Socket,
    stream: &'a Arc<Stream>,
    flags: i32,
}

impl Listener<'_> {
    fn accept(&self) -> Result<(RawFd, Emitted), Errno> {
        let mut deadline = None;
        loop {
            lost_engines::look();
            if self.has_stopped() {
                return Err(Errno::INVAL);
            }
            let kernel_first = self.socket.kernel_accepts_first();
            if kernel_first && let Some(accepted) = self.accept_in_kernel()? {
                return Ok(accepted);
            }
            if let Some(accepted) = self.stream.try_accept(self.flags())? {
                return Ok(self.adopt(accepted));
            }
            if !kernel_first && let Some(accepted) = self.accept_in_kernel()? {
                return Ok(accepted);
            }
            if deadline.is_none() {
                self.has_free_number()?;
            }
            let deadline = match deadline {
                Some(deadline) => deadline,
                None if self.socket.is_nonblocking(self.fd)? => return Err(Errno::AGAIN),
                None => *deadline.insert(Deadline::after_option(self.socket.receive_timeout())),
            };
            self.sleep(deadline)?;
        }
    }

    /// Those of the new descriptor.
    fn flags(&self) -> SocketFlags {
        SocketFlags::from_bits_retain(self.flags.cast_unsigned())
    }

    /// Whether shutdown(2) was called meanwhile: the stream is no longer the socket's then.
    fn has_stopped(&self) -> bool {
        let now = self.socket.borrow_stream();
        !now.as_ref()
            .is_some_and(|now| Arc::ptr_eq(now, self.stream))
    }

    /// Whether the process may have another descriptor: EMFILE or ENFILE, as Linux says before it looks at the queue.
    fn has_free_number(&self) -> Result<(), Errno> {
        // The kernel has just said so.
        if self.socket.kernel_listens() {
            return Ok(());
        }
        static NO_SOCKET: OnceLock<PrivateFd> = OnceLock::new();
        let no_socket = match NO_SOCKET.get() {
            Some(no_socket) => no_socket,
            None => {
                let made = PrivateFd::new(doorbell::create()?);
                NO_SOCKET.get_or_init(|| made)
            }
        };
        // Before it looks at the descriptor the kernel reserves a number.
        with_spared_descriptors(|| match sys::accept_nothing(no_socket.as_fd()) {
            error @ (Errno::MFILE | Errno::NFILE) => Err(error),
            _ => Ok(()),
        })
    }

    fn sleep(&self, deadline: Deadline) -> Result<(), Errno> {
        if deadline.is_over() {
            return Err(Errno::AGAIN);
        }
        let _open = self.file.sleeper();
        let mut backing = [sys::poll_in(self.fd)];
        let kernel = if self.socket.kernel_listens() {
            &mut backing[..]
        } else {
            &mut []
        };
        let mut news = || {
            // Or its engine is gone.
            let is_over = self.has_stopped() || self.stream.phase() != Phase::Listening;
            is_over || self.stream.has_connection()
        };
        match sleeping::sleep(&[self.stream.as_ref()], kernel, None, deadline, &mut news) {
            Err(Errno::INTR) => Err(after_interruption(deadline)),
            result => result,
        }
    }

    /// A connection of the kernel's own; it is the kernel's from then on.
    fn accept_in_kernel(&self) -> Result<Option<(RawFd, Emitted)>, Errno> {
        if !self.socket.kernel_listens() {
            return Ok(None);
        }
        match rustix::net::acceptfrom_with(sys::borrow(self.fd)?, self.flags()) {
            Ok((fd, peer)) => {
                let peer = SocketAddr::try_from(peer.ok_or(Errno::CONNABORTED)?)?;
                let peer = address::emit_scoped(peer, self.socket.family());
                let fd = fd.into_raw_fd();
                descriptors::forget(fd);
                Ok(Some((fd, peer)))
            }
            // Another process or thread was faster.
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives an engine's connection a descriptor: its backing socket at the lowest free number, with
    /// the flags asked for and the options that a connection inherits from its listener.
    fn adopt(&self, accepted: Accepted) -> (RawFd, Emitted) {
        let Accepted {
            stream,
            backing,
            is_placed,
            peer,
        } = accepted;
        let placed = match is_placed {
            true => backing,
            false => self.place(backing),
        };
        let fd = placed.into_raw_fd();
        self.socket.log.apply(&stream);
        let place = stream.place();
        let socket = Socket::accepted(self.socket, stream);
        socket.set_made_nonblocking(self.flags & libc::SOCK_NONBLOCK != 0);
        descriptors::forget(fd);
        descriptors::insert(fd, File::new(Kind::Socket(socket)));
        (fd, name::shown(peer, self.socket.family(), place))
    }

    /// At the limit of open files the number that the backing socket has is the lowest that is left: nothing
    /// fails here, for the connection has left the queue.
    fn place(&self, backing: OwnedFd) -> OwnedFd {
        let closes = self.flags & libc::SOCK_CLOEXEC != 0;
        let lowest = match sys::lowest_copy(backing.as_fd(), closes) {
            Ok(lower) if lower.as_raw_fd() < backing.as_raw_fd() => lower,
            _ => {
                if !closes {
                    let _ = rustix::io::fcntl_setfd(&backing, FdFlags::empty());
                }
                backing
            }
        };
        // It was made to block, as any socket.
        if self.flags & libc::SOCK_NONBLOCK != 0 {
            let _ = rustix::fs::fcntl_setfl(&lowest, OFlags::NONBLOCK);
        }
        lowest
    }
}
