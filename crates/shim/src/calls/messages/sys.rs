//! The exported functions. Where nothing is followed and no control message is given they are libc's own.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint};

use libc::{mmsghdr, msghdr, ssize_t, timespec};

use crate::abi::exports::{receive_message, receive_messages, send_message, send_messages};
use crate::abi::symbol::{Symbol, real};
use crate::fd_table::descriptors::is_tracked;
use crate::fd_table::inherited::{self, each_right, has_control};
use crate::outcome::beside;
use crate::outcome::{Failure, at_a_cancellation_point, count};
use crate::sys;

/// As libc's function of this name.
///
/// # Safety
/// As libc's: the message is valid for what the call does with it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if is_tracked(fd) {
        let served = at_a_cancellation_point(|| {
            // SAFETY: the caller's contract.
            Ok(unsafe { receive_message(fd, message, flags) }?.map(count))
        });
        if let Some(result) = served {
            return result;
        }
    }
    let result = real!(recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t);
    if result >= 0 {
        // SAFETY: the kernel has filled the message in.
        unsafe { brought(message) };
    }
    result
}

/// As libc's function of this name.
///
/// # Safety
/// As libc's: the message is valid for what the call does with it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    if is_tracked(fd) {
        // SAFETY: the caller's contract.
        let served =
            at_a_cancellation_point(|| Ok(unsafe { send_message(fd, message, flags) }?.map(count)));
        if let Some(result) = served {
            return result;
        }
    }
    // SAFETY: as above.
    unsafe { take_along(message) };
    real!(sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t)
}

/// As libc's function of this name.
///
/// # Safety
/// As libc's: the messages are valid for what the call does with them.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    len: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if is_tracked(fd) {
        // SAFETY: the caller's contract.
        let serve = || unsafe { receive_messages(fd, messages, len, flags, timeout) };
        if let Some(result) = at_a_cancellation_point(serve) {
            return result;
        }
    }
    let result = real!(recvmmsg(fd: c_int, messages: *mut mmsghdr, len: c_uint, flags: c_int,
        timeout: *mut timespec) -> c_int);
    let done = usize::try_from(result).unwrap_or(0);
    // SAFETY: the kernel has filled in that many.
    for one in unsafe { array(messages, len) }.iter().take(done) {
        // SAFETY: as above.
        unsafe { brought(&raw const one.msg_hdr) };
    }
    result
}

/// As libc's function of this name.
///
/// # Safety
/// As libc's: the messages are valid for what the call does with them.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    len: c_uint,
    flags: c_int,
) -> c_int {
    if is_tracked(fd) {
        // SAFETY: the caller's contract.
        let serve = || unsafe { send_messages(fd, messages, len, flags) };
        if let Some(result) = at_a_cancellation_point(serve) {
            return result;
        }
    }
    // SAFETY: as above.
    for one in unsafe { array(messages, len) } {
        // SAFETY: as above.
        unsafe { take_along(&raw const one.msg_hdr) };
    }
    real!(sendmmsg(fd: c_int, messages: *mut mmsghdr, len: c_uint, flags: c_int) -> c_int)
}

/// # Safety
/// The array is the caller's, or null.
unsafe fn array<'a>(messages: *mut mmsghdr, len: c_uint) -> &'a [mmsghdr] {
    // SAFETY: the caller's contract.
    unsafe { sys::array_mut(messages, usize::try_from(len).unwrap_or(0)) }
}

/// The message that a call is about to send may carry descriptors.
///
/// # Safety
/// The message is null or valid.
unsafe fn take_along(message: *const msghdr) {
    // SAFETY: the caller's contract.
    if unsafe { has_control(message) } && !sys::Inside::is_active() {
        beside(|| {
            // SAFETY: as above.
            unsafe { each_right(message, &mut |fd| inherited::leave(fd)) };
        });
    }
}

/// A message that was received may have brought descriptors.
///
/// # Safety
/// The message is valid.
unsafe fn brought(message: *const msghdr) {
    // SAFETY: the caller's contract.
    if unsafe { has_control(message) } && !sys::Inside::is_active() {
        beside(|| {
            // SAFETY: as above.
            unsafe { each_right(message, &mut |fd| inherited::arrive(fd)) };
        });
    }
}
