//! epoll(7): the kernel's epoll file stays what the program holds, and keeps what the kernel can
//! watch; interests in accelerated sockets live in a [`Set`] of this library.
//!
//! The library's own descriptors are never put into the program's epoll: after fork(2) parent and
//! child share that epoll, and the child would be woken by what is the parent's.

mod change;
mod edges;
mod instance;
mod kick;
pub mod set;
pub mod wait;
mod watchers;

use rustix::io::Errno;

use crate::fd_table::descriptors;
use crate::fd_table::file::{File, Kind};
pub use change::control;
pub use edges::observe;
pub use instance::{Instance, SETS, Sets};
use set::Refused;
pub use watchers::Watchers;

/// The kernel has made an epoll file for the program: follow it.
pub fn created(fd: i32) {
    if fd >= 0 && crate::policy::policy().may_accelerate() {
        descriptors::forget(fd);
        let instance = Instance::new();
        instance.set().set_descriptor(fd);
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
