//! Attaching a program to a socket: socket(7), SO_ATTACH_FILTER, and packet(7), PACKET_FANOUT_DATA.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::Instruction;

/// Makes a program the filter of a socket, in the place of the one that it has.
///
/// # Errors
/// The kernel refuses: the program is too long, or a filter is locked.
pub fn attach(socket: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    set_program(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}

/// Takes a socket's filter away, if it has one.
///
/// # Errors
/// It is no socket, or its filter is locked.
pub fn detach(socket: BorrowedFd<'_>) -> io::Result<()> {
    match set(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32) {
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        _ => Ok(()),
    }
}

/// Has a program choose among the sockets of a packet socket's fanout group.
///
/// # Errors
/// The socket is in no group that takes a program.
pub fn attach_fanout(socket: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    set_program(socket, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, program)
}

fn set_program(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    program: &[Instruction],
) -> io::Result<()> {
    let len = u16::try_from(program.len());
    let program = libc::sock_fprog {
        len: len.map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?,
        filter: program.as_ptr().cast_mut(),
    };
    // The instructions live through the call, which copies them.
    set(socket, level, option, &program)
}

fn set<T>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<T>()).expect("invariant: an option is small");
    // Not libc's setsockopt, which may be the symbol of a library around this code.
    // SAFETY: pointer and length describe `value`, which outlives the call; the kernel only reads it, and what a
    // `sock_fprog` of this file names.
    let result = unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value),
            len,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
