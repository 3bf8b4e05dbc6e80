//! One open file description that the switch follows: a socket or an epoll instance, shared by
//! all the numbers that dup(2) made for it.
//!
//! The kernel releases a file with its last reference, and a thread that sleeps in a call on it holds
//! one. The same is counted here by hand rather than by dropping an `Arc`, because fork(2) leaves the
//! references of the parent's other threads behind in the child, where nobody would ever drop them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::addresses::Dump;
use crate::epoll::Instance;
use crate::socket::Socket;

/// How often this process is a fork's child, counting its ancestors' forks.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// In a forked child, before [`File::forget_references`]: calls that slept in the parent count no more.
pub fn forget_sleepers() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// An open file description with its references.
pub struct File {
    /// Descriptor numbers plus sleeping calls.
    references: AtomicU32,
    /// What it is.
    pub kind: Kind,
}

/// What an open file description can be.
pub enum Kind {
    /// A TCP or UDP socket for which the switch decides which stack has it.
    Socket(Socket),
    /// An epoll instance.
    Epoll(Instance),
    /// A netlink socket for routes, to which addresses of engines are named.
    Dump(Dump),
}

impl File {
    /// A new file without descriptors; `descriptors::insert` gives it the first.
    pub fn new(kind: Kind) -> Arc<File> {
        Arc::new(File {
            references: AtomicU32::new(0),
            kind,
        })
    }

    /// The socket, unless it is an epoll instance or was left to the kernel.
    pub fn socket(&self) -> Option<&Socket> {
        match &self.kind {
            Kind::Socket(socket) if !socket.is_kernel() => Some(socket),
            _ => None,
        }
    }

    /// The epoll instance, if it is one.
    pub fn epoll(&self) -> Option<&Instance> {
        match &self.kind {
            Kind::Epoll(instance) => Some(instance),
            Kind::Socket(_) | Kind::Dump(_) => None,
        }
    }

    /// A number refers to it.
    pub fn add_descriptor(&self) {
        self.references.fetch_add(1, Ordering::Relaxed);
    }

    /// A number does not refer to it any more.
    pub fn drop_descriptor(&self) {
        // Release and acquire as in Arc: what the other holders did comes before the end.
        if self.references.fetch_sub(1, Ordering::AcqRel) == 1 {
            match &self.kind {
                Kind::Socket(socket) => socket.release(),
                Kind::Epoll(instance) => instance.release(),
                Kind::Dump(_) => {}
            }
        }
    }

    /// Keeps the file open while a call sleeps on it, even if its numbers are closed meanwhile.
    pub fn sleeper(self: &Arc<Self>) -> Sleeper {
        self.add_descriptor();
        Sleeper {
            file: Arc::clone(self),
            generation: GENERATION.load(Ordering::Relaxed),
        }
    }

    /// Whether exactly one reference is left, so that closing it will release the file.
    pub fn is_last_reference(&self) -> bool {
        self.references.load(Ordering::Acquire) == 1
    }

    /// In a forked child: only descriptor numbers count, the parent's sleeping threads are not here.
    pub fn forget_references(&self) {
        self.references.store(0, Ordering::Relaxed);
    }
}

/// A call that sleeps on a file.
pub struct Sleeper {
    file: Arc<File>,
    generation: u32,
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // A handler may have forked while the call slept: in the child it is not among the references.
        if self.generation == GENERATION.load(Ordering::Relaxed) {
            self.file.drop_descriptor();
        }
    }
}
