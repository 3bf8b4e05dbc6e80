//! Calls on a backing socket with bytes as a program gave them. Under a supervisor, which would answer them otherwise, they
//! pass: their sixth argument says whose they are.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use client::address::Emitted;
use hostif::supervision::UNSUPERVISED;
use rustix::io::Errno;

/// setsockopt(2), with whatever bytes the program gave.
pub fn set_option(fd: impl AsRawFd, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    let len = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::INVAL)?;
    let (fd, value) = (fd.as_raw_fd(), value.as_ptr());
    // SAFETY: the value lives through the call; the kernel only reads it.
    done(unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            fd,
            level,
            name,
            value,
            len,
            UNSUPERVISED,
        )
    })
}

/// getsockopt(2); the length of the value.
///
/// # Errors
/// ENOPROTOOPT also for SO_GET_FILTER where there is one: its length counts instructions, and the kernel writes eight
/// bytes for each.
pub fn option(fd: impl AsRawFd, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno> {
    let is_filter = (level, name) == (libc::SOL_SOCKET, libc::SO_GET_FILTER);
    // Asked with no room it only tells how many instructions there are.
    let value = if is_filter { &mut [] } else { value };
    let mut len = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: of every option but the one above the kernel writes at most `len` bytes of the value, and the new length.
    done(unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            fd.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr(),
            &raw mut len,
            UNSUPERVISED,
        )
    })?;
    match usize::try_from(len) {
        Ok(1..) if is_filter => Err(Errno::NOPROTOOPT),
        told => told.map_err(|_| Errno::INVAL),
    }
}

/// bind(2).
pub fn bind(backing: BorrowedFd<'_>, address: &Emitted) -> Result<(), Errno> {
    let (fd, bytes) = (backing.as_raw_fd(), address.as_bytes());
    let (at, len) = (bytes.as_ptr(), bytes.len());
    // SAFETY: the kernel reads that many bytes of the address, which lives through the call.
    done(unsafe { libc::syscall(libc::SYS_bind, fd, at, len, 0, 0, UNSUPERVISED) })
}

/// listen(2).
pub fn listen(backing: BorrowedFd<'_>, backlog: i32) -> Result<(), Errno> {
    let fd = backing.as_raw_fd();
    // SAFETY: the call takes numbers.
    done(unsafe { libc::syscall(libc::SYS_listen, fd, backlog, 0, 0, 0, UNSUPERVISED) })
}

fn done(result: libc::c_long) -> Result<(), Errno> {
    if result < 0 {
        // SAFETY: the location is valid for the life of the thread.
        return Err(Errno::from_raw_os_error(unsafe {
            *libc::__errno_location()
        }));
    }
    Ok(())
}
