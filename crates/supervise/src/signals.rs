//! Who gets signals for a descriptor's events (fcntl(2): F_SETOWN, F_SETSIG, O_ASYNC): that belongs to the file, so what the
//! program has set on its own socket is set on the end of the pair again, with the rights that the program had.

mod sys;

use rustix::fd::{BorrowedFd, RawFd};
use rustix::io::Errno;

use crate::sys::at_number;

/// linux/fcntl.h.
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;

/// The settings of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signals {
    owner: sys::Owner,
    /// Whose rights to signal count: the real and the effective user.
    users: (u32, u32),
    signal: i32,
    is_async: bool,
}

impl Signals {
    /// Reads those of a descriptor; `None`: no signals are sent.
    pub fn of(fd: BorrowedFd<'_>) -> Option<Signals> {
        let (owner, users) = sys::owner(fd).ok()?;
        let signal = sys::control(fd, F_GETSIG, 0).ok()?;
        let is_async = sys::control(fd, libc::F_GETFL, 0).ok()? & libc::O_ASYNC != 0;
        let is_any = owner != sys::Owner::default() || signal != 0 || is_async;
        is_any.then_some(Signals {
            owner,
            users,
            signal,
            is_async,
        })
    }

    /// Whether signals are sent for what can be read and written, not only of urgent data.
    pub fn is_async(&self) -> bool {
        self.is_async
    }

    /// Sets the same on another file, which is at `number` in the program: the number that a signal names.
    pub fn set_on(&self, file: BorrowedFd<'_>, number: RawFd) -> Result<(), Errno> {
        if self.owner.pid != 0 {
            sys::as_users(self.users, || sys::set_owner(file, self.owner))?;
        }
        sys::control(file, F_SETSIG, self.signal)?;
        if !self.is_async {
            return Ok(());
        }
        let flags = sys::control(file, libc::F_GETFL, 0)? | libc::O_ASYNC;
        at_number(number, file, || sys::set_flags(number, flags))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::fd::{AsFd, AsRawFd};

    use super::*;

    #[test]
    fn what_was_said_of_one_descriptor_is_said_of_another() {
        let (one, other) = UnixStream::pair().unwrap();
        assert_eq!(Signals::of(one.as_fd()), None);
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let owner = sys::Owner { kind: 0, pid: own };
        sys::set_owner(one.as_fd(), owner).unwrap();
        sys::control(one.as_fd(), F_SETSIG, libc::SIGUSR1).unwrap();
        let flags = sys::control(one.as_fd(), libc::F_GETFL, 0).unwrap();
        sys::control(one.as_fd(), libc::F_SETFL, flags | libc::O_ASYNC).unwrap();
        let said = Signals::of(one.as_fd()).unwrap();
        assert!(said.is_async());
        said.set_on(other.as_fd(), other.as_raw_fd()).unwrap();
        assert_eq!(Signals::of(other.as_fd()), Some(said));
        // No signal shall be sent when they are closed.
        for end in [&one, &other] {
            sys::control(end.as_fd(), libc::F_SETFL, flags).unwrap();
        }
    }
}
