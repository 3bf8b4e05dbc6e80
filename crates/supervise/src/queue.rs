//! A listener: its connections wait where they arrived, in the engine's queue and in the kernel's, and are taken
//! alternately when the program accepts.
//!
//! The program's descriptor is an end of a pair that can never be written to, and holds bytes while a connection
//! waits: so poll and epoll say of it what they say of a listening socket, in every process that shares it.
//! Each connection that arrives brings another byte, as each is news to whoever wants to hear of edges.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use client::{Socket, State, TcpSocket};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, acceptfrom_with, recv, send};

use crate::bell::NewsBell;
use crate::caller::Caller;
use crate::options::Settings;
use crate::pair::Pair;
use crate::stopped_call::Waiting;
use crate::sys;

/// Bytes in the pair at most: more connections than these that wait at once are no news of their own.
const MARKS_MAX: usize = 64;
/// Bytes of what the pair is stuffed with that are taken out at once.
const BUFFER_BYTES: usize = 32 * 1024;
/// Threads that wait in accept on one listener; more are told to try again.
const WAITING_MAX: usize = 1024;

/// A connection that waits.
pub enum Ready {
    /// The engine's.
    Engine(client::Accepted),
    /// The kernel's.
    Kernel(OwnedFd, SocketAddr),
}

/// See the file's head.
pub struct Queue {
    /// The engine's listener.
    pub socket: Arc<TcpSocket>,
    /// The kernel's socket that holds port and options, and listens.
    pub backing: OwnedFd,
    /// Options that its connections inherit.
    pub settings: Settings,
    /// Connections of the kernel are the program's too.
    pub kernel_too: bool,
    /// It was shut down: an accept is EINVAL.
    pub is_shut: bool,
    /// Rung where it has to be served again.
    pub bell: Arc<NewsBell>,
    /// Where the program's end was seen last.
    pub place: (Caller, RawFd),
    /// The program's end, as long as it has not got it: a signal took its call back.
    pub undelivered: Option<OwnedFd>,
    ours: OwnedFd,
    /// Bytes in the pair.
    marks: usize,
    /// Connections that could not be handed to a call; rarely any.
    returned: VecDeque<Ready>,
    kernel_first: bool,
    waiting: VecDeque<Waiting>,
}

impl Queue {
    /// A listener over a stuffed pair, and the program's end.
    pub fn new(
        (socket, backing): (Arc<TcpSocket>, OwnedFd),
        settings: Settings,
        kernel_too: bool,
        pair: Pair,
        bell: Arc<NewsBell>,
        place: (Caller, RawFd),
    ) -> (Queue, OwnedFd) {
        pair.name_after(backing.as_fd());
        let queue = Queue {
            socket,
            backing,
            settings,
            kernel_too,
            is_shut: false,
            bell,
            place,
            undelivered: None,
            ours: pair.ours,
            marks: 0,
            returned: VecDeque::new(),
            kernel_first: false,
            waiting: VecDeque::new(),
        };
        (queue, pair.programs)
    }

    /// Whether a connection waits.
    pub fn has_connection(&self) -> bool {
        let engines = self.socket.state() == State::Listening && self.socket.has_connection();
        let kernels =
            || self.kernel_too && sys::poll_now(self.backing.as_raw_fd()) & libc::POLLIN != 0;
        !self.returned.is_empty() || engines || kernels()
    }

    /// Whether an engine is gone on which it listened.
    pub fn misses_engine(&self) -> bool {
        !self.is_shut && self.socket.misses_engine()
    }

    /// Listens on those that came in their place; whether none is missing any more.
    pub fn listen_again(&self) -> bool {
        let is_whole = self.socket.listen_again(self.backing.as_fd());
        self.settings.tell(&self.socket);
        self.bell.listen_again(&*self.socket);
        is_whole
    }

    /// A connection, if one waits. ENFILE: it goes on waiting, for the supervisor has no descriptor for it.
    pub fn take(&mut self) -> Result<Option<Ready>, Errno> {
        if let Some(returned) = self.returned.pop_front() {
            return Ok(Some(returned));
        }
        self.kernel_first = !self.kernel_first;
        let first = if self.kernel_first {
            self.take_from_kernel()?
        } else {
            self.take_from_engine()?
        };
        match first {
            Some(ready) => Ok(Some(ready)),
            None if self.kernel_first => self.take_from_engine(),
            None => self.take_from_kernel(),
        }
    }

    fn take_from_engine(&self) -> Result<Option<Ready>, Errno> {
        if self.socket.state() != State::Listening {
            return Ok(None);
        }
        match self.socket.try_accept() {
            Err(Errno::MFILE | Errno::NFILE) => Err(Errno::NFILE),
            taken => Ok(taken.ok().flatten().map(Ready::Engine)),
        }
    }

    fn take_from_kernel(&self) -> Result<Option<Ready>, Errno> {
        if !self.kernel_too {
            return Ok(None);
        }
        let (fd, peer) = match acceptfrom_with(&self.backing, SocketFlags::CLOEXEC) {
            Err(Errno::MFILE | Errno::NFILE) => return Err(Errno::NFILE),
            // Another process was faster, or its peer.
            Err(_) => return Ok(None),
            Ok(accepted) => accepted,
        };
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        Ok(peer.map(|peer| Ready::Kernel(fd, client::address::canonical(peer))))
    }

    /// It could not be handed over: it is first again.
    pub fn put_back(&mut self, ready: Ready) {
        self.returned.push_front(ready);
        self.mark();
    }

    /// A connection has arrived: that is news.
    pub fn mark(&mut self) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if self.marks < MARKS_MAX && send(&self.ours, &[1], flags).is_ok() {
            self.marks += 1;
        }
    }

    /// A connection was taken: the program's end tells whether another one waits.
    pub fn update_mark(&mut self, programs: BorrowedFd<'_>) {
        if self.has_connection() {
            if self.marks == 0 {
                self.mark();
            }
            return;
        }
        let mut bytes = [0; MARKS_MAX];
        if self.marks > 0 {
            let _ = recv(programs, &mut bytes[..self.marks], RecvFlags::DONTWAIT);
            self.marks = 0;
        }
    }

    /// A thread waits in accept.
    pub fn wait(&mut self, waiting: Waiting) -> Result<(), Errno> {
        if self.waiting.len() >= WAITING_MAX {
            return Err(Errno::AGAIN);
        }
        self.waiting.push_back(waiting);
        Ok(())
    }

    /// Lets go of the pair: whoever still has the program's end finds it hung up, without an error.
    pub fn hang_up(self) {
        let mut bytes = vec![0; BUFFER_BYTES];
        while recv(&self.ours, &mut bytes[..], RecvFlags::DONTWAIT)
            .is_ok_and(|(taken, _)| taken > 0)
        {}
    }

    /// Whether any thread waits in accept, or the program has not got its end yet.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() || self.undelivered.is_some()
    }

    /// Whether the program has closed the socket for which it has not got its end yet.
    pub fn is_abandoned(&self) -> bool {
        let (caller, fd) = self.place;
        let has_it =
            || sys::cookie(&self.backing).is_ok_and(|own| caller.same_socket(fd, own).is_some());
        self.undelivered.is_some() && !has_it()
    }

    /// The thread that waits longest, if any.
    pub fn next_waiting(&mut self) -> Option<Waiting> {
        self.waiting.pop_front()
    }

    /// Which threads wait: none does any more.
    pub fn take_waiting(&mut self) -> Vec<u64> {
        self.waiting.drain(..).map(|waiting| waiting.id).collect()
    }

    /// Those whose time is over.
    pub fn expired(&mut self, now: std::time::Instant) -> Vec<Waiting> {
        let is_over = |waiting: &Waiting| waiting.deadline.is_some_and(|deadline| deadline <= now);
        let over = self.waiting.iter().copied().filter(is_over).collect();
        self.waiting.retain(|waiting| !is_over(waiting));
        over
    }

    /// Forgets threads that do not wait any more (`waits` says which still do).
    pub fn prune(&mut self, waits: impl Fn(u64) -> bool) {
        self.waiting.retain(|waiting| waits(waiting.id));
    }
}
