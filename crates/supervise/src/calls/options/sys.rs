//! Values of options that are none: the kernel says what is wrong with them.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;

use crate::sys::check;

/// Bytes that are enough for each option of IPv6: an extension header has 2,048 at most.
const ENOUGH: usize = 4096;

/// getsockopt(2) with a length of -1, which some options of IPv6 take for a large one; `asked`: what stands where the value is to be.
pub fn option_of_any_length(
    fd: BorrowedFd<'_>,
    (level, name): (i32, i32),
    asked: Vec<u8>,
) -> Result<Vec<u8>, Errno> {
    let mut value = asked;
    value.resize(ENOUGH, 0);
    let mut len: i32 = -1;
    // SAFETY: the kernel writes the value and its length; no option that takes such a length is as long as the buffer.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast::<c_void>(),
            (&raw mut len).cast(),
        )
    })?;
    value.truncate(usize::try_from(len).map_err(|_| Errno::INVAL)?);
    Ok(value)
}

/// What setsockopt(2) says to a value where no memory is: at address 0, or at another one.
pub fn set_unreadable(
    fd: BorrowedFd<'_>,
    (level, name): (i32, i32),
    is_null: bool,
    len: usize,
) -> Result<(), Errno> {
    let len = libc::socklen_t::try_from(len).map_err(|_| Errno::INVAL)?;
    // Nobody has memory in the first page.
    let nowhere = ptr::without_provenance::<c_void>(usize::from(!is_null));
    // SAFETY: the kernel reads from there, as far as it can.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, nowhere, len) }).map(drop)
}
