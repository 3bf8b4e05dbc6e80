//! Who gets signals for events of a descriptor, read from one descriptor and set on another (fcntl(2)).

#![allow(unsafe_code)]

use std::ffi::{c_int, c_long, c_void};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;

use rustix::io::Errno;

use crate::sys::enter;

/// linux/fcntl.h.
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;
const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;
/// What the child that sets a number needs: two system calls deep.
const STACK_BYTES: usize = 16 * 1_024;

/// `struct f_owner_ex`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Owner {
    kind: c_int,
    pid: c_int,
}

/// All that fcntl(2) says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    owner: Owner,
    signal: c_int,
    is_async: bool,
}

impl Settings {
    /// The settings of a descriptor.
    pub fn of(fd: RawFd) -> Result<Settings, Errno> {
        let mut owner = Owner::default();
        control(fd, F_GETOWN_EX, address(&raw mut owner))?;
        Ok(Settings {
            owner,
            signal: control(fd, F_GETSIG, 0)?,
            is_async: control(fd, libc::F_GETFL, 0)? & libc::O_ASYNC != 0,
        })
    }

    /// Whether signals could be sent to anybody.
    pub fn is_any(&self) -> bool {
        self.owner.pid != 0 || self.is_async || self.signal != 0
    }

    /// Sets the same on `end`, whose signals name the number `shown`.
    pub fn set(&self, end: RawFd, shown: RawFd) -> Result<(), Errno> {
        let mut owner = self.owner;
        control(end, F_SETOWN_EX, address(&raw mut owner))?;
        control(end, F_SETSIG, c_long::from(self.signal))?;
        let flags = control(end, libc::F_GETFL, 0)?;
        if self.is_async == (flags & libc::O_ASYNC != 0) {
            return Ok(());
        }
        if self.is_async && set_async_as(end, shown, flags | libc::O_ASYNC).is_ok() {
            return Ok(());
        }
        let flags = (flags & !libc::O_ASYNC) | if self.is_async { libc::O_ASYNC } else { 0 };
        control(end, libc::F_SETFL, c_long::from(flags)).map(drop)
    }
}

fn address(owner: *mut Owner) -> c_long {
    owner.expose_provenance().cast_signed() as c_long
}

fn control(fd: RawFd, command: c_int, argument: c_long) -> Result<c_int, Errno> {
    let arguments = [fd.into(), command.into(), argument, 0, 0, 0];
    // SAFETY: fcntl(2); the commands above read or write an `Owner`, whose address is given, or nothing.
    let result = unsafe { enter(libc::SYS_fcntl, arguments) };
    outcome(result)
}

fn outcome(result: c_long) -> Result<c_int, Errno> {
    match c_int::try_from(result) {
        Ok(result @ 0..) => Ok(result),
        Ok(error) => Err(Errno::from_raw_os_error(-error)),
        Err(_) => Err(Errno::INVAL),
    }
}

/// What the child does, and what came of it.
struct Task {
    end: RawFd,
    shown: RawFd,
    flags: c_int,
    result: c_long,
}

/// Sets O_ASYNC on `end` as if its number were `shown`: the kernel tells in each signal the number by which that was
/// done (`fasync_insert_entry`). A child does it, which shares the memory and has a table of descriptors of its own.
fn set_async_as(end: RawFd, shown: RawFd, flags: c_int) -> Result<(), Errno> {
    let mut task = Task {
        end,
        shown,
        flags,
        result: -c_long::from(libc::EIO),
    };
    let mut stack = MaybeUninit::<[u8; STACK_BYTES]>::uninit();
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the sets are valid places. The child runs on a stack of its own while this thread waits (CLONE_VFORK), so
    // what it is given lives; no handler runs in it; it makes system calls only. It sends no signal when it ends.
    let ended = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let top = stack.as_mut_ptr().cast::<u8>().add(STACK_BYTES);
        let top = top.sub(top.addr() % 16);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK;
        let child = libc::clone(set_in_child, top.cast(), flags, (&raw mut task).cast());
        let ended = if child < 0 {
            Err(Errno::from_raw_os_error(*libc::__errno_location()))
        } else {
            let arguments = [child.into(), 0, libc::__WCLONE.into(), 0, 0, 0];
            outcome(enter(libc::SYS_wait4, arguments)).map(drop)
        };
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        ended
    };
    match ended {
        // Somebody else's wait may have found it first.
        Ok(()) | Err(Errno::CHILD) => {
            // SAFETY: plain data that the child, which has ended, wrote.
            let result = unsafe { (&raw const task.result).read_volatile() };
            outcome(result).map(drop)
        }
        Err(error) => Err(error),
    }
}

extern "C" fn set_in_child(task: *mut c_void) -> c_int {
    let task = task.cast::<Task>();
    // SAFETY: the parent's, which waits; the numbers are the child's own.
    unsafe {
        let (end, shown) = (c_long::from((*task).end), c_long::from((*task).shown));
        let moved = enter(libc::SYS_dup3, [end, shown, 0, 0, 0, 0]);
        let flags = c_long::from((*task).flags);
        let set = [shown, libc::F_SETFL.into(), flags, 0, 0, 0];
        (*task).result = if moved < 0 {
            moved
        } else {
            enter(libc::SYS_fcntl, set)
        };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn what_is_set_on_one_descriptor_is_set_on_another() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let nothing = Settings::of(one.as_raw_fd()).unwrap();
        assert!(!nothing.is_any());
        let wanted = Settings {
            owner: Owner {
                kind: 1, // F_OWNER_PID
                pid: std::process::id().cast_signed(),
            },
            signal: libc::SIGURG,
            is_async: true,
        };
        let shown = one.as_raw_fd();
        wanted.set(other.as_raw_fd(), shown).unwrap();
        assert_eq!(Settings::of(other.as_raw_fd()), Ok(wanted));
        assert_eq!(Settings::of(shown), Ok(nothing), "it kept its number");
        nothing.set(other.as_raw_fd(), shown).unwrap();
        assert_eq!(Settings::of(other.as_raw_fd()), Ok(nothing));
    }
}
