//! Which programs have a listener's socket other than as the end of its pair: programs that got the socket before it
//! listened (a duplicate, a fork, a message), and those whose listener was shut down.
//!
//! A descriptor can be exchanged only in the program that is calling. So the former get the end of the pair with their first
//! call on the socket that is stopped: they listen, accept, ask for options. The latter get the kernel's socket back, which
//! then answers as one that was shut down, and may listen again; whoever else has that end of the pair finds it hung
//! up.

use std::collections::HashMap;

use client::address::{self, Name};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::pair::{is_nonblocking, set_nonblocking};
use crate::stopped_call::{Call, Outcome, low_half};
use crate::supervisor::{Served, Supervisor};
use crate::sys;
use switch::backing::{family_of, local_of};

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

    /// Puts the listener's end of its pair in place of its backing socket, if it is still here or somebody is known to have it.
    fn join(&mut self, call: &Call, backing: BorrowedFd<'_>, key: u64) -> Option<OwnedFd> {
        let Some(Served::Queue(queue)) = self.served.get(&key) else {
            return None;
        };
        let (caller, number) = queue.place;
        let programs = match &queue.undelivered {
            Some(programs) => rustix::io::fcntl_dupfd_cloexec(programs, 0).ok()?,
            None => caller.same_socket(number, key)?,
        };
        let place = (call.caller, call.fd);
        self.exchange(call.id, place, backing, programs.as_fd())
            .ok()?;
        if let Some(Served::Queue(queue)) = self.served.get_mut(&key) {
            queue.undelivered = None;
            queue.place = place;
        }
        Some(programs)
    }

    /// shutdown(2) of a listener.
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
        Ok(Outcome::Return(0))
    }

    /// Ends a listener and puts the kernel's socket back where the caller has it. That does not listen any more either, before
    /// anybody sees it: another thread that waits for the listener in poll or select looks once at what stands there, and a socket
    /// that is quiet then would never wake it.
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
        // It fails where a call that a signal took back has done it.
        let _ = rustix::net::shutdown(&queue.backing, Shutdown::Read);
        self.exchange_back(call, programs, backing.as_fd())?;
        self.shut_queue(key);
        if let Some(Served::Queue(queue)) = self.served.remove(&key) {
            queue.hang_up();
        }
        self.holders.note_shut(key);
        Ok(())
    }

    /// Ends a connection, or its attempt, and puts the kernel's socket back where the caller has it: as before connect.
    pub fn undo_connection(
        &mut self,
        call: &Call,
        programs: BorrowedFd<'_>,
        key: u64,
    ) -> Result<(), Errno> {
        let Some(Served::Relay(relay)) = self.served.get(&key) else {
            return Ok(());
        };
        if relay.programs.is_none() {
            let backing = rustix::io::fcntl_dupfd_cloexec(&relay.backing, 0)?;
            self.exchange_back(call, programs, backing.as_fd())?;
        }
        self.undelivered
            .retain(|_, undelivered| *undelivered != key);
        if let Some(Served::Relay(relay)) = self.served.remove(&key) {
            relay.socket.abort();
            for waiting in &relay.waiting {
                self.reply(waiting.id, Some(Err(Errno::CONNABORTED)));
            }
            for blocked in &relay.blocked {
                self.reply(blocked.call.id, Some(Err(Errno::CONNRESET)));
            }
        }
        Ok(())
    }

    /// Puts a kernel's socket in place of an end of a pair.
    pub fn exchange_back(
        &mut self,
        call: &Call,
        programs: BorrowedFd<'_>,
        backing: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        set_nonblocking(backing, is_nonblocking(programs))?;
        self.exchange(call.id, (call.caller, call.fd), programs, backing)
    }

    /// Whether a name is one of an engine's own addresses, which the kernel would call foreign.
    fn is_engines_name(&self, name: &[u8], backing: BorrowedFd<'_>) -> bool {
        let parsed = family_of(backing).and_then(|family| address::parse(name, family));
        let (Ok(Name::Ip(address)), Some(networks)) = (parsed, self.engine_access.networks())
        else {
            return false;
        };
        let mut interfaces = networks.iter().flat_map(|one| &one.interfaces);
        interfaces.any(|own| own.address == address.ip())
    }

    /// bind(2) of what is served: the kernel says what is wrong with it, as the backing socket is bound. `None`: it is not
    /// served.
    pub fn bind_again(&mut self, call: &Call) -> Option<Result<Outcome, Errno>> {
        let (_, key) = self.socket_of(call)?;
        let backing = match self.served.get(&key)? {
            Served::Relay(relay) => relay.backing.as_fd(),
            Served::Queue(queue) => queue.backing.as_fd(),
            Served::Datagrams(datagrams) => datagrams.backing.as_fd(),
        };
        if local_of(backing).map(|local| local.port()) == Ok(0) {
            return Some(Err(Errno::INVAL));
        }
        let len = usize::try_from(i32::from_ne_bytes(low_half(call.arguments[2]))).ok();
        let name = len
            .filter(|len| *len <= size_of::<libc::sockaddr_storage>())
            .ok_or(Errno::INVAL)
            .and_then(|len| call.caller.read(call.arguments[1], len));
        let bound = name.and_then(|name| match self.is_engines_name(&name, backing) {
            true => Ok(()),
            false => sys::bind(backing, &name),
        });
        Some(bound.and(Err(Errno::INVAL)))
    }
}
