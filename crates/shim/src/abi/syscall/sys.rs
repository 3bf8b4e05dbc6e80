//! syscall(2): programs and libraries that make their own wrappers (libuv, for batches of datagrams) reach the switch by
//! the numbers of the calls that it serves (those that wait for several are in `waits`); every other number, and every other descriptor, goes to the system as it is.
//! clone(2) without shared memory is a fork here too (vsftpd makes its processes so), execve(2) and execveat(2) are libc's functions of that name, and an io_uring is not to be had: libuv
//! would change epoll sets through it, and its calls pass every switch. And preadv2(2) with pwritev2(2), which
//! say that there is no position.
//!
//! libc's function `syscall` is not asked for: the standard library in this one calls it too, from
//! places where looking up a symbol could lock.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_long};

use libc::{iovec, msghdr, off_t, off64_t, ssize_t};
use rustix::io::Errno;

use crate::abi::exports::{
    accept, accept4, bind, close, connect, dup, dup2, dup3, fcntl, getpeername, getsockname,
    getsockopt, ioctl, listen, read, readv, recvfrom, sendfile, sendto, setsockopt, shutdown,
    write, writev,
};
use crate::abi::exports::{counted, receive_message, send_message, switched};
use crate::abi::symbol::{Symbol, real};
use crate::calls::messages::sys::{recvmmsg, recvmsg, sendmmsg, sendmsg};
use crate::fd_table::descriptors::is_tracked;
use crate::outcome::{Failure, try_at_a_cancellation_point};
use crate::policy::policy;
use crate::process::exit::{execve, execveat};
use crate::process::{self, fork};
use crate::sys::{self, Inside, call};

use super::waits::waited;

/// Calls the functions of this library by number, for descriptors that are its business.
macro_rules! by_number {
    ($number:ident, $fd:ident, [$b:ident, $c:ident, $d:ident, $e:ident, $f:ident];
        $($(#[$when:meta])? $call:ident => $name:ident($($argument:expr),*);)*) => {
        match $number {
            $($(#[$when])? libc::$call => Some(c_long::from_result($name($fd $(, $argument)*))),)*
            _ => None,
        }
    };
}

/// What a call returns, as syscall(2) does.
trait FromResult<T> {
    fn from_result(result: T) -> Self;
}

impl FromResult<c_int> for c_long {
    fn from_result(result: c_int) -> Self {
        result.into()
    }
}

impl FromResult<ssize_t> for c_long {
    fn from_result(result: ssize_t) -> Self {
        Self::from_ne_bytes(result.to_ne_bytes())
    }
}

/// The calls on one descriptor that this library serves.
///
/// # Safety
/// As the system call's.
unsafe fn served(number: c_long, fd: c_int, [b, c, d, e, f]: [c_long; 5]) -> Option<c_long> {
    // SAFETY: the caller vouches for the arguments, as it does to the system.
    unsafe {
        by_number! { number, fd, [b, c, d, e, f];
            SYS_read => read(pointer(b), size(c));
            SYS_readv => readv(pointer(b), int(c));
            SYS_write => write(pointer(b), size(c));
            SYS_writev => writev(pointer(b), int(c));
            SYS_recvfrom => recvfrom(pointer(b), size(c), int(d), pointer(e), pointer(f));
            SYS_recvmsg => recvmsg(pointer(b), int(c));
            SYS_recvmmsg => recvmmsg(pointer(b), word(c), int(d), pointer(e));
            SYS_sendto => sendto(pointer(b), size(c), int(d), pointer(e), word(f));
            SYS_sendmsg => sendmsg(pointer(b), int(c));
            SYS_sendmmsg => sendmmsg(pointer(b), word(c), int(d));
            SYS_sendfile => sendfile(int(b), pointer(c), size(d));
            SYS_bind => bind(pointer(b), word(c));
            SYS_connect => connect(pointer(b), word(c));
            SYS_listen => listen(int(b));
            SYS_accept => accept(pointer(b), pointer(c));
            SYS_accept4 => accept4(pointer(b), pointer(c), int(d));
            SYS_getsockname => getsockname(pointer(b), pointer(c));
            SYS_getpeername => getpeername(pointer(b), pointer(c));
            SYS_getsockopt => getsockopt(int(b), int(c), pointer(d), pointer(e));
            SYS_setsockopt => setsockopt(int(b), int(c), pointer(d), word(e));
            SYS_shutdown => shutdown(int(b));
            SYS_ioctl => ioctl(unsigned(b), pointer(c));
            SYS_fcntl => fcntl(int(b), unsigned(c));
            SYS_dup => dup();
            #[cfg(target_arch = "x86_64")]
            SYS_dup2 => dup2(int(b));
            SYS_dup3 => dup3(int(b), int(c));
            SYS_close => close();
        }
    }
}

/// As libc's function of this name. It takes a varying number of arguments; like libc's own this one passes
/// on six, which the system ignores where there are fewer.
///
/// # Safety
/// As the system call's: pointers are valid for what it does with them.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    // The library itself asks for the backing socket in this way.
    if is_tracked(int(a)) && !Inside::is_active() {
        // SAFETY: the caller vouches for the arguments, as it does to the system.
        if let Some(result) = unsafe { served(number, int(a), [b, c, d, e, f]) } {
            return result;
        }
    }
    if !Inside::is_active() {
        if is_of_rings(number) && policy().may_accelerate() {
            sys::set_errno(libc::ENOSYS);
            return -1;
        }
        // SAFETY: as above.
        unsafe {
            match number {
                libc::SYS_execve => return execve(pointer(a), pointer(b), pointer(c)).into(),
                libc::SYS_execveat => {
                    return execveat(int(a), pointer(b), pointer(c), pointer(d), int(e)).into();
                }
                _ => {}
            }
            if let Some(result) = waited(number, [a, b, c, d, e, f]) {
                return result;
            }
        }
    }
    let forks = number == libc::SYS_clone && is_fork(a, b);
    if forks {
        fork::prepare();
    } else if may_lend_memory(number) {
        process::note_lending();
    }
    // SAFETY: as above.
    let result = unsafe { call(number, [a, b, c, d, e, f]) };
    if forks && result == 0 {
        fork::child();
    } else if forks {
        fork::parent();
    }
    result
}

/// Whether it is a call of io_uring(7). Without one programs use calls that the switch sees, as on a kernel that has none.
fn is_of_rings(number: c_long) -> bool {
    matches!(
        number,
        libc::SYS_io_uring_setup | libc::SYS_io_uring_enter | libc::SYS_io_uring_register
    )
}

/// Whether clone(2) makes a process with memory of its own that goes on where it was called.
fn is_fork(flags: c_long, stack: c_long) -> bool {
    let shared = libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_VFORK;
    flags & c_long::from(shared) == 0 && stack == 0
}

/// Whether the call may make a process that runs in this one's memory.
fn may_lend_memory(number: c_long) -> bool {
    #[cfg(target_arch = "x86_64")]
    if number == libc::SYS_vfork {
        return true;
    }
    matches!(number, libc::SYS_clone | libc::SYS_clone3)
}

/// A pointer that came as a number.
pub fn pointer<T>(number: c_long) -> *mut T {
    std::ptr::with_exposed_provenance_mut(size(number))
}

fn size(number: c_long) -> usize {
    usize::from_ne_bytes(number.to_ne_bytes())
}

/// The same bits.
pub fn unsigned(number: c_long) -> libc::c_ulong {
    number.cast_unsigned()
}

/// The lower half, which is all that the system looks at where it takes an int.
pub fn int(number: c_long) -> c_int {
    let [a, b, c, d, ..] = number.to_le_bytes();
    c_int::from_le_bytes([a, b, c, d])
}

fn word(number: c_long) -> u32 {
    int(number).cast_unsigned()
}

switched! { try_at_a_cancellation_point:
    fn preadv2(fd: c_int, iov: *const iovec, slices: c_int, offset: off_t, flags: c_int) -> ssize_t,
        if is_tracked(fd) => counted(receive_message(fd, &mut message(iov, slices, offset)?, without_position(flags)?));
    fn preadv64v2(fd: c_int, iov: *const iovec, slices: c_int, offset: off64_t, flags: c_int) -> ssize_t,
        if is_tracked(fd) => counted(receive_message(fd, &mut message(iov, slices, offset)?, without_position(flags)?));
    fn pwritev2(fd: c_int, iov: *const iovec, slices: c_int, offset: off_t, flags: c_int) -> ssize_t,
        if is_tracked(fd) => counted(send_message(fd, &message(iov, slices, offset)?, without_position(flags)?));
    fn pwritev64v2(fd: c_int, iov: *const iovec, slices: c_int, offset: off64_t, flags: c_int) -> ssize_t,
        if is_tracked(fd) => counted(send_message(fd, &message(iov, slices, offset)?, without_position(flags)?));
}

/// The same as a message. A socket has no position: ESPIPE, as pread(2) says, for one that is given.
fn message(iov: *const iovec, slices: c_int, offset: off64_t) -> Result<msghdr, Errno> {
    match offset {
        -1 => {}
        0.. => return Err(Errno::SPIPE),
        _ => return Err(Errno::INVAL),
    }
    // SAFETY: all zeros are a message without name, control data and slices.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = iov.cast_mut();
    message.msg_iovlen = usize::try_from(slices).map_err(|_| Errno::INVAL)?;
    Ok(message)
}

/// The flags of preadv2(2) as those of recvmsg(2): a socket knows RWF_NOWAIT, and those for files mean nothing to it.
fn without_position(flags: c_int) -> Result<c_int, Errno> {
    const FOR_FILES: c_int = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_APPEND;
    match flags & !FOR_FILES {
        0 => Ok(0),
        libc::RWF_NOWAIT => Ok(libc::MSG_DONTWAIT),
        _ => Err(Errno::OPNOTSUPP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_calls_reach_the_system_and_failures_are_in_errno() {
        let call = |number, a| {
            // SAFETY: neither call touches memory.
            unsafe { syscall(number, a, 0, 0, 0, 0, 0) }
        };
        let pid = c_long::from(std::process::id().cast_signed());
        assert_eq!(call(libc::SYS_getpid, 0), pid);
        assert_eq!(call(libc::SYS_close, -1), -1);
        assert_eq!(sys::errno(), libc::EBADF);
    }

    #[test]
    fn there_is_no_io_uring() {
        for number in 425..=427 {
            // SAFETY: without memory each of them is a question that fails.
            let result = unsafe { syscall(number, -1, 0, 0, 0, 0, 0) };
            assert_eq!((result, sys::errno()), (-1, libc::ENOSYS), "{number}");
        }
    }
}
