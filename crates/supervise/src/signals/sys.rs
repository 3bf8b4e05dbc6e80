//! fcntl(2) about signals, and in whose name they are sent.
#![allow(unsafe_code)]

use rustix::fd::{AsRawFd, BorrowedFd, RawFd};
use rustix::io::Errno;

use crate::sys::check;

/// `struct f_owner_ex` of fcntl(2): who gets the signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Owner {
    /// A thread, a process or a group.
    pub kind: libc::c_int,
    /// Which.
    pub pid: libc::c_int,
}

/// linux/fcntl.h.
const F_SETOWN_EX: libc::c_int = 15;
const F_GETOWN_EX: libc::c_int = 16;
const F_GETOWNER_UIDS: libc::c_int = 17;

/// Who gets signals for a descriptor's events, and the users, real and effective, in whose name.
pub fn owner(fd: BorrowedFd<'_>) -> Result<(Owner, (u32, u32)), Errno> {
    let mut owner = Owner::default();
    let mut users = [0_u32; 2];
    // SAFETY: the kernel fills in the structure, and the two numbers, which live through the calls.
    unsafe {
        check(libc::fcntl(fd.as_raw_fd(), F_GETOWN_EX, &raw mut owner))?;
        check(libc::fcntl(
            fd.as_raw_fd(),
            F_GETOWNER_UIDS,
            users.as_mut_ptr(),
        ))?;
    }
    Ok((owner, (users[0], users[1])))
}

/// Sets who gets signals; in the name of this process's users.
pub fn set_owner(fd: BorrowedFd<'_>, owner: Owner) -> Result<(), Errno> {
    // SAFETY: the kernel reads the structure, which lives through the call.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), F_SETOWN_EX, &raw const owner) }).map(drop)
}

/// A command of fcntl(2) whose argument and answer are numbers.
pub fn control(
    fd: BorrowedFd<'_>,
    command: libc::c_int,
    argument: libc::c_int,
) -> Result<libc::c_int, Errno> {
    // SAFETY: such a command touches no memory.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), command, argument) })
}

/// F_SETFL by the number of a descriptor, which the kernel notes with O_ASYNC.
pub fn set_flags(number: RawFd, flags: libc::c_int) -> Result<(), Errno> {
    // SAFETY: the command touches no memory; of a number that is none it fails.
    check(unsafe { libc::fcntl(number, libc::F_SETFL, flags) }).map(drop)
}

/// Does something in the name of these users, real and effective; this process must have one thread.
pub fn as_users<T>(
    (real, effective): (u32, u32),
    task: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let (mut own, mut saved) = ([0_u32; 2], 0_u32);
    // SAFETY: the kernel fills in three numbers that live through the call.
    check(unsafe { libc::getresuid(&raw mut own[0], &raw mut own[1], &raw mut saved) })?;
    if own == [real, effective] {
        return task();
    }
    // What was effective stays the saved one, so that there is a way back.
    // SAFETY: the call takes numbers. The system call and not libc's function: that one signals threads, of which
    // there are none.
    check(unsafe { libc::syscall(libc::SYS_setresuid, real, effective, own[1]) })?;
    let done = task();
    // SAFETY: as above.
    let back = unsafe { libc::syscall(libc::SYS_setresuid, own[0], own[1], saved) };
    check(back).map(drop).and(done)
}
