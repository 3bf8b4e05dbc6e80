//! Memory that the caller of a C function vouches for: buffers, arrays of iovecs and messages, and places for results. What
//! the kernel would look at before it acts is looked at here too, and EFAULT said of it. The preloaded library's own memory comes
//! from `allocator`, which whatever links this crate allocates with.
//!
//! Read first: what POSIX demands of a caller's pointers; signal-safety(7). Nothing here decides what a call does.

pub mod allocator;
mod sys;

use std::ffi::c_void;
use std::io::IoSliceMut;

use rustix::io::Errno;

pub use sys::{
    array_mut, bytes, bytes_mut, check_parts, copied, copy_out, given, io_slices, io_slices_mut,
    messages_to_send, optional, usual_bytes, usual_bytes_mut,
};

/// Where a receiving call puts its bytes: the program's own array, or a copy of it without null bases.
pub enum Targets<'a> {
    /// The program's array.
    Given(&'a mut [IoSliceMut<'a>]),
    /// A copy, for the rare array with a null base.
    Copied(Vec<IoSliceMut<'a>>),
}

impl<'a> std::ops::Deref for Targets<'a> {
    type Target = [IoSliceMut<'a>];

    fn deref(&self) -> &[IoSliceMut<'a>] {
        match self {
            Targets::Given(slices) => slices,
            Targets::Copied(slices) => slices,
        }
    }
}

impl std::ops::DerefMut for Targets<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Targets::Given(slices) => slices,
            Targets::Copied(slices) => slices,
        }
    }
}

/// An address in each page: the first, and where the others begin.
fn pages(start: usize, len: usize) -> impl Iterator<Item = usize> {
    const PAGE: usize = 4096;
    let begins = (start & !(PAGE - 1)..start + len).step_by(PAGE);
    core::iter::once(start).chain(begins.skip(1))
}

/// Whether it is the calling thread's stack, near above this frame: the kernel need not be asked about that.
fn is_near(start: *const c_void, len: usize) -> bool {
    const NEAR: usize = 16 * 1024;
    let above = start.addr().checked_sub((&raw const start).addr());
    above.is_some_and(|above| above.saturating_add(len) <= NEAR)
}

/// Whether a program can have memory there at all: not in the first page, nor in the kernel's half.
fn is_in_user_space(start: *const c_void, len: usize) -> bool {
    is_memory(start, len) == Ok(true)
}

/// Where a program can have memory.
const FIRST: usize = 4096;
const END: usize = (1 << 47) - FIRST;

/// Whether there can be data in a buffer. EFAULT in the kernel's half, which Linux says before it looks at anything else;
/// in the first page it finds out when it copies.
pub fn is_memory(start: *const c_void, len: usize) -> Result<bool, Errno> {
    match start.addr().checked_add(len) {
        Some(end) if end <= END => Ok(start.addr() >= FIRST || len == 0),
        _ => Err(Errno::FAULT),
    }
}

/// EINVAL for the length of a name that no address has, as sendto(2) says it (`move_addr_to_kernel`).
pub fn check_name(len: libc::socklen_t) -> Result<(), Errno> {
    const NAME_MAX: libc::socklen_t = 128;
    (len <= NAME_MAX).then_some(()).ok_or(Errno::INVAL)
}

/// The same of sendmsg(2), which cuts a name that is too long (`__copy_msghdr`).
pub fn check_message_name(message: &libc::msghdr) -> Result<(), Errno> {
    let is_right = message.msg_name.is_null() || message.msg_namelen.cast_signed() >= 0;
    is_right.then_some(()).ok_or(Errno::INVAL)
}

/// Copies `bytes` to a result buffer as `getsockname`, `accept` and `getsockopt` do: cut to `*len`
/// of the caller. `*len` becomes the full length for an address, the copied length for an option.
pub fn give_result(
    bytes: &[u8],
    target: *mut c_void,
    len: *mut libc::socklen_t,
    report_full_length: bool,
) -> Result<(), Errno> {
    let space = copied(len.cast_const().cast(), size_of::<libc::socklen_t>());
    let space = space.as_ref().and_then(|bytes| bytes.first_chunk());
    let space = i32::from_ne_bytes(*space.ok_or(Errno::FAULT)?);
    let space = usize::try_from(space).map_err(|_| Errno::INVAL)?;
    let given = &bytes[..space.min(bytes.len())];
    copy_out(target, given)?;
    let reported = if report_full_length {
        bytes.len()
    } else {
        given.len()
    };
    let reported = libc::socklen_t::try_from(reported).unwrap_or(libc::socklen_t::MAX);
    copy_out(len.cast(), &reported.to_ne_bytes())
}
