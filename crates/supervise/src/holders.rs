//! Who has a listener's socket otherwise than as the listener's end of its pair: programs that got the socket before it
//! listened (a duplicate, a fork, a message), and those whose listener was shut down.
//!
//! A descriptor can be exchanged only in the program that is calling. So the former get the end of the pair with their first
//! call on the socket that is stopped: they listen, accept, ask for options. The latter get the kernel's socket back, which
//! then answers as one that was shut down, and may listen again; whoever else has that end of the pair finds it hung
//! up.

use std::collections::HashMap;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use crate::pair::{is_nonblocking, set_nonblocking};
use crate::supervisor::{Call, Outcome, Served, Supervisor, low_half};
use crate::sys;

/// Ends of listeners that were shut down which are remembered.
const SHUT_MAX: usize = 1024;

/// See the file's head.
#[derive(Default)]
pub struct Holders {
    /// Listeners by the cookies of their backing sockets.
    listeners: HashMap<u64, u64>,
    /// Ends of pairs that stand for nothing any more, the oldest first.
    shut: Vec<u64>,
}

impl Holders {
    /// A socket listens.
    pub fn note(&mut self, backing: u64, key: u64) {
        self.listeners.insert(backing, key);
    }

    /// It does not any more.
    pub fn forget(&mut self, key: u64) {
        self.listeners.retain(|_, listener| *listener != key);
    }

    /// Whether an end is one of a listener that was shut down.
    pub fn is_shut(&self, key: u64) -> bool {
        self.shut.contains(&key)
    }

    fn note_shut(&mut self, key: u64) {
        self.forget(key);
        if self.shut.len() >= SHUT_MAX {
            self.shut.remove(0);
        }
        self.shut.push(key);
    }
}

impl Supervisor {
    /// The socket behind a call's descriptor, and its cookie; `None`: there is none, or we may not look.
    pub fn socket_of(&mut self, call: &Call) -> Option<(OwnedFd, u64)> {
        let fd = call.caller.descriptor(call.fd).ok()?;
        let cookie = sys::cookie(&fd).ok()?;
        if let Some(Served::Queue(queue)) = self.served.get_mut(&cookie) {
            queue.place = (call.caller, call.fd);
            return Some((fd, cookie));
        }
        match self.holders.listeners.get(&cookie) {
            Some(&key) => match self.join(call, fd.as_fd(), key) {
                Some(programs) => Some((programs, key)),
                None => Some((fd, cookie)),
            },
            None => Some((fd, cookie)),
        }
    }

    /// Puts the listener's end of its pair in place of its backing socket, if somebody is known to have that end.
    fn join(&mut self, call: &Call, backing: BorrowedFd<'_>, key: u64) -> Option<OwnedFd> {
        let Some(Served::Queue(queue)) = self.served.get(&key) else {
            return None;
        };
        let (caller, number) = queue.place;
        let programs = caller.same_socket(number, key)?;
        let place = (call.caller, call.fd);
        self.exchange(call.id, place, backing, programs.as_fd())
            .ok()?;
        Some(programs)
    }

    /// shutdown(2) of a listener: the call goes on with the kernel's socket.
    pub fn shut_listener(
        &mut self,
        call: &Call,
        programs: BorrowedFd<'_>,
        key: u64,
    ) -> Result<Outcome, Errno> {
        match i32::from_ne_bytes(low_half(call.arguments[1])) {
            libc::SHUT_RD | libc::SHUT_RDWR => self.give_back(call, programs, key)?,
            // Sending is nothing that a listener does.
            libc::SHUT_WR => return Ok(Outcome::Return(0)),
            _ => return Err(Errno::INVAL),
        }
        Ok(Outcome::Continue)
    }

    /// Ends a listener and puts the kernel's socket back where the caller has it.
    pub fn give_back(
        &mut self,
        call: &Call,
        programs: BorrowedFd<'_>,
        key: u64,
    ) -> Result<(), Errno> {
        let Some(Served::Queue(queue)) = self.served.get(&key) else {
            return Ok(());
        };
        let backing = rustix::io::fcntl_dupfd_cloexec(&queue.backing, 0)?;
        self.ignore_kernels(queue.backing.as_fd());
        set_nonblocking(backing.as_fd(), is_nonblocking(programs))?;
        self.exchange(call.id, (call.caller, call.fd), programs, backing.as_fd())?;
        self.shut_queue(key);
        if let Some(Served::Queue(queue)) = self.served.remove(&key) {
            queue.hang_up();
        }
        self.holders.note_shut(key);
        Ok(())
    }
}
