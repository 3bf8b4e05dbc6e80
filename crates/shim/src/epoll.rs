//! epoll(7): the kernel's epoll file stays what the program holds, and keeps what the kernel can
//! watch; interests in accelerated sockets live in a [`Set`] beside it.
//!
//! The library's own descriptors are never put into the program's epoll: after fork(2) parent and
//! child share that epoll, and the child would be woken by what is the parent's.

mod change;
pub mod set;
pub mod wait;
mod watchers;

use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use crate::descriptors;
use crate::file::{File, Kind};
pub use change::control;
use set::{Refused, Set};
pub use watchers::Watchers;

/// An epoll instance of the program.
pub struct Instance {
    set: &'static Set,
}

/// Every set there is; used by fork handlers, and to use the free ones again.
pub static SETS: Mutex<Sets> = Mutex::new(Sets {
    all: Vec::new(),
    free: Vec::new(),
});

/// All sets, and those that no instance uses.
pub struct Sets {
    /// Never shrinks.
    pub all: Vec<&'static Set>,
    free: Vec<&'static Set>,
}

impl Instance {
    fn new() -> Instance {
        let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
        let set = sets.free.pop().unwrap_or_else(|| {
            let set: &'static Set = Box::leak(Box::default());
            sets.all.push(set);
            set
        });
        Instance { set }
    }

    /// Its interests.
    pub fn set(&self) -> &'static Set {
        self.set
    }

    /// The last reference to the epoll file is gone.
    pub fn release(&self) {
        self.set.clear();
        self.set.outer.clear();
        SETS.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .free
            .push(self.set);
    }
}

/// The kernel has made an epoll file for the program: follow it.
pub fn created(fd: i32) {
    if fd >= 0 && crate::policy::policy().may_accelerate() {
        descriptors::forget(fd);
        let instance = Instance::new();
        instance.set.set_descriptor(fd);
        descriptors::insert(fd, File::new(Kind::Epoll(instance)));
    }
}

impl From<Refused> for Errno {
    fn from(refused: Refused) -> Errno {
        match refused {
            Refused::AlreadyThere => Errno::EXIST,
            Refused::NotThere => Errno::NOENT,
            Refused::Invalid => Errno::INVAL,
        }
    }
}

#[cfg(test)]
mod tests;
