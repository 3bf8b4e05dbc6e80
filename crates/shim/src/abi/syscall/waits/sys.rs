//! syscall(2) with the numbers of the calls that wait for several descriptors (poll, select, epoll) or make a new one (a
//! socket, an epoll set). Those that wait and name no descriptor of ours go to the system as they are.
//!
//! What such a call writes back beside its result differs from libc's function: the system takes the time that has
//! passed off the timeout of ppoll, select and pselect6, which only select of this library does too.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_long};
use std::mem::MaybeUninit;

use libc::sigset_t;

use super::sys::{int, pointer, unsigned};
#[cfg(target_arch = "x86_64")]
use crate::abi::exports::{epoll_create, epoll_wait, select};
use crate::abi::exports::{
    epoll_create1, epoll_ctl, epoll_pwait, epoll_pwait2, poll, ppoll, pselect, socket,
};
use crate::abi::exports::{poll_concerns, select_concerns};
use crate::fd_table::descriptors::is_tracked;

/// The system's signal sets have eight bytes.
const MASK_BYTES: c_long = 8;

/// A signal mask as the system takes it, in the size of libc's. `Err`: no mask of that size exists.
unsafe fn mask(start: c_long, bytes: c_long) -> Result<Option<sigset_t>, ()> {
    if start == 0 {
        return Ok(None);
    }
    if bytes != MASK_BYTES {
        return Err(());
    }
    let mut mask = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: the caller vouches for eight bytes; libc's set begins with them, and all zeros is an empty one.
    unsafe {
        let given = pointer::<u64>(start).read_unaligned();
        mask.as_mut_ptr().cast::<u64>().write(given);
        Ok(Some(mask.assume_init()))
    }
}

/// Where a mask lies, for a call that takes it.
fn place(mask: Option<&sigset_t>) -> *const sigset_t {
    mask.map_or(std::ptr::null(), std::ptr::from_ref)
}

/// The result of such a call that concerns this library.
///
/// # Safety
/// As the system call's.
pub unsafe fn waited(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> Option<c_long> {
    // SAFETY: the caller vouches for the arguments, as it does to the system. What is wrong with a mask the system says.
    let result: c_int = unsafe {
        match number {
            libc::SYS_socket => socket(int(a), int(b), int(c)),
            libc::SYS_epoll_create1 => epoll_create1(int(a)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => epoll_create(int(a)),
            libc::SYS_epoll_ctl if is_tracked(int(a)) => {
                epoll_ctl(int(a), int(b), int(c), pointer(d))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait if is_tracked(int(a)) => {
                epoll_wait(int(a), pointer(b), int(c), int(d))
            }
            libc::SYS_epoll_pwait if is_tracked(int(a)) => {
                let mask = mask(e, f).ok()?;
                epoll_pwait(int(a), pointer(b), int(c), int(d), place(mask.as_ref()))
            }
            libc::SYS_epoll_pwait2 if is_tracked(int(a)) => {
                let mask = mask(e, f).ok()?;
                epoll_pwait2(int(a), pointer(b), int(c), pointer(d), place(mask.as_ref()))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll if poll_concerns(pointer(a), unsigned(b)) => {
                poll(pointer(a), unsigned(b), int(c))
            }
            libc::SYS_ppoll if poll_concerns(pointer(a), unsigned(b)) => {
                let mask = mask(d, e).ok()?;
                ppoll(pointer(a), unsigned(b), pointer(c), place(mask.as_ref()))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select if select_concerns(int(a), pointer(b), pointer(c), pointer(d)) => {
                select(int(a), pointer(b), pointer(c), pointer(d), pointer(e))
            }
            libc::SYS_pselect6 if select_concerns(int(a), pointer(b), pointer(c), pointer(d)) => {
                // The last argument points at the mask and its size.
                let [start, bytes] = match f {
                    0 => [0, 0],
                    there => pointer::<[c_long; 2]>(there).read_unaligned(),
                };
                let mask = mask(start, bytes).ok()?;
                let sets = (pointer(b), pointer(c), pointer(d));
                pselect(
                    int(a),
                    sets.0,
                    sets.1,
                    sets.2,
                    pointer(e),
                    place(mask.as_ref()),
                )
            }
            _ => return None,
        }
    };
    Some(result.into())
}
