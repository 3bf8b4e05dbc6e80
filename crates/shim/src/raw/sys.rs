//! syscall(2): programs and libraries that make their own wrappers for batches of datagrams (libuv) reach
//! the switch by these two numbers; every other number goes to the system as it is.
//!
//! libc's function of this name is not asked for: the standard library in this one calls it too, from
//! places where looking up a symbol could lock.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_long, c_uint};

use crate::abi::{recvmmsg, sendmmsg};
use crate::descriptors::is_tracked;
use crate::sys;

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
    if (number == libc::SYS_sendmmsg || number == libc::SYS_recvmmsg)
        && let (Ok(fd), Ok(len)) = (c_int::try_from(a), c_uint::try_from(c))
        && let Ok(flags) = c_int::try_from(d)
        && is_tracked(fd)
    {
        // SAFETY: the caller vouches for the arguments, as it does to the system.
        let done = unsafe {
            if number == libc::SYS_sendmmsg {
                sendmmsg(fd, pointer(b), len, flags)
            } else {
                recvmmsg(fd, pointer(b), len, flags, pointer(e))
            }
        };
        return done.into();
    }
    // SAFETY: as above.
    let result = unsafe { enter(number, [a, b, c, d, e, f]) };
    match c_int::try_from(-result) {
        Ok(error @ 1..=4_095) => {
            sys::set_errno(error);
            -1
        }
        _ => result,
    }
}

/// A pointer that came as a number.
fn pointer<T>(number: c_long) -> *mut T {
    std::ptr::with_exposed_provenance_mut(usize::from_ne_bytes(number.to_ne_bytes()))
}

#[cfg(target_arch = "x86_64")]
unsafe fn enter(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> c_long {
    let result;
    // SAFETY: the system's calling convention; what the call does is the caller's wish.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
unsafe fn enter(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> c_long {
    let result;
    // SAFETY: the system's calling convention; what the call does is the caller's wish.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    result
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
}
