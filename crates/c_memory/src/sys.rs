//! Reading and writing there.

#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::ptr;

use rustix::io::Errno;

use super::{END, FIRST, Targets, is_in_user_space, is_memory, is_near, pages};

/// Bytes a C caller gave to read from.
///
/// # Safety
/// `start..start + len` is readable for `'a`, as every sending call of POSIX demands.
pub unsafe fn bytes<'a>(start: *const c_void, len: usize) -> &'a [u8] {
    if start.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's contract; lengths above isize::MAX cannot be mapped, so they are cut.
    unsafe { std::slice::from_raw_parts(start.cast(), len.min(MAX_TRANSFER)) }
}

/// Bytes a C caller gave to write to.
///
/// # Safety
/// `start..start + len` is writable for `'a` and not used otherwise meanwhile.
pub unsafe fn bytes_mut<'a>(start: *mut c_void, len: usize) -> &'a mut [u8] {
    if start.is_null() || len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's contract; the bytes may be uninitialised, and are only written.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), len.min(MAX_TRANSFER)) }
}

/// [`bytes`] of a buffer as nearly all are: not empty, no longer than what moves in one call, and where a program can have memory.
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn usual_bytes<'a>(start: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller's contract.
    is_usual(start, len).then(|| unsafe { std::slice::from_raw_parts(start.cast(), len) })
}

/// As [`usual_bytes`], of [`bytes_mut`].
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn usual_bytes_mut<'a>(start: *mut c_void, len: usize) -> Option<&'a mut [u8]> {
    // SAFETY: the caller's contract.
    is_usual(start, len).then(|| unsafe { std::slice::from_raw_parts_mut(start.cast(), len) })
}

#[inline(always)]
fn is_usual(start: *const c_void, len: usize) -> bool {
    len.wrapping_sub(1) < MAX_TRANSFER && start.addr() >= FIRST && start.addr() <= END - len
}

/// Linux moves at most this much in one call (MAX_RW_COUNT, read(2)).
const MAX_TRANSFER: usize = 0x7fff_f000;

/// The iovec array of a sending call; `None` for a count that POSIX forbids (EINVAL).
///
/// # Safety
/// `start` points at `count` valid iovecs over readable memory.
pub unsafe fn io_slices<'a>(
    start: *const libc::iovec,
    count: usize,
) -> Option<Cow<'a, [IoSlice<'a>]>> {
    // SAFETY: the caller's contract.
    let raw = unsafe { iovecs(start, count)? };
    if raw.iter().any(|one| one.iov_base.is_null()) {
        // SAFETY: as above.
        return Some(
            raw.iter()
                .map(|one| IoSlice::new(unsafe { bytes(one.iov_base, one.iov_len) }))
                .collect(),
        );
    }
    // SAFETY: IoSlice is documented to be ABI compatible with iovec; none of these is null.
    Some(Cow::Borrowed(unsafe {
        std::slice::from_raw_parts(raw.as_ptr().cast(), raw.len())
    }))
}

/// The iovecs themselves: null bases are allowed where the length is 0, and no Rust slice has one.
unsafe fn iovecs<'a>(start: *const libc::iovec, count: usize) -> Option<&'a [libc::iovec]> {
    match count {
        0 => Some(&[]),
        // SAFETY: the caller's contract.
        1..=MAX_IOVECS => Some(unsafe { std::slice::from_raw_parts(start, count) }),
        _ => None,
    }
}

/// The iovec array of a receiving call; `None` for a count that POSIX forbids (EINVAL).
///
/// # Safety
/// `start` points at `count` valid iovecs over writable memory; the array itself is not written.
pub unsafe fn io_slices_mut<'a>(start: *const libc::iovec, count: usize) -> Option<Targets<'a>> {
    // SAFETY: the caller's contract.
    let raw = unsafe { iovecs(start, count)? };
    if raw.iter().any(|one| one.iov_base.is_null()) {
        // SAFETY: as above.
        let slice = |one: &libc::iovec| unsafe { bytes_mut(one.iov_base, one.iov_len) };
        return Some(Targets::Copied(
            raw.iter().map(|one| IoSliceMut::new(slice(one))).collect(),
        ));
    }
    // SAFETY: IoSliceMut is documented to be ABI compatible with iovec; no code here advances the
    // slices in place, so the program's array stays as it is.
    Some(Targets::Given(unsafe {
        std::slice::from_raw_parts_mut(raw.as_ptr().cast_mut().cast(), raw.len())
    }))
}

/// UIO_MAXIOV.
const MAX_IOVECS: usize = 1024;

/// `count` values of a C array, or nothing where the pointer is null or no program's.
///
/// # Safety
/// A non-null `start` points at `count` valid values that nobody else uses meanwhile.
pub unsafe fn array_mut<'a, T>(start: *mut T, count: usize) -> &'a mut [T] {
    let len = count.saturating_mul(size_of::<T>());
    if count == 0 || !is_in_user_space(start.cast(), len) {
        return &mut [];
    }
    // SAFETY: the caller's contract.
    unsafe { std::slice::from_raw_parts_mut(start, count) }
}

/// The messages of sendmmsg(2), which takes no more at once than an array has slices; the rest is left to another call.
///
/// # Safety
/// As [`array_mut`].
pub unsafe fn messages_to_send<'a>(
    start: *mut libc::mmsghdr,
    count: std::ffi::c_uint,
) -> &'a mut [libc::mmsghdr] {
    let count = usize::try_from(count).unwrap_or(MAX_IOVECS);
    // SAFETY: the caller's contract.
    unsafe { array_mut(start, count.min(MAX_IOVECS)) }
}

/// A copy of bytes that a C caller gave; `None` where it has no memory there, of which the kernel then says EFAULT.
pub fn copied(start: *const c_void, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0_u8; len];
    if len > 0 {
        check_readable(start, len).ok()?;
        // SAFETY: the kernel has just read there; the target is ours.
        unsafe { ptr::copy_nonoverlapping(start.cast(), bytes.as_mut_ptr(), len) };
    }
    Some(bytes)
}

/// Copies to where a C caller has asked for it; EFAULT where it has no memory.
pub fn copy_out(target: *mut c_void, bytes: &[u8]) -> Result<(), Errno> {
    if !bytes.is_empty() {
        check_writable(target, bytes.len())?;
        // SAFETY: the kernel has just written there; the source is ours.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target.cast(), bytes.len()) };
    }
    Ok(())
}

/// EFAULT where the program has no memory, without a SIGSEGV: rt_sigprocmask(2) reads a mask there before it says that it
/// does not know what to do with it. Filters of system calls that end a program for process_vm_readv(2) allow this one.
fn check_readable(start: *const c_void, len: usize) -> Result<(), Errno> {
    const MASK: usize = 8;
    const NO_SUCH_WAY: c_int = -1;
    if !is_in_user_space(start, len) {
        return Err(Errno::FAULT);
    }
    if is_near(start, len) {
        return Ok(());
    }
    for at in pages(start.addr(), len) {
        // Aligned, it lies in one page.
        let at = at & !(MASK - 1);
        // SAFETY: the kernel looks at the memory itself, and changes nothing.
        let result =
            unsafe { libc::syscall(libc::SYS_rt_sigprocmask, NO_SUCH_WAY, at, 0_usize, MASK) };
        if is_fault(result) {
            return Err(Errno::FAULT);
        }
    }
    Ok(())
}

/// Whether a system call has found no memory where it was to look.
fn is_fault(result: libc::c_long) -> bool {
    result < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

/// As `check_readable`, for memory that is about to be written: getrandom(2) writes a byte of each page before.
fn check_writable(start: *mut c_void, len: usize) -> Result<(), Errno> {
    if !is_in_user_space(start, len) {
        return Err(Errno::FAULT);
    }
    if is_near(start, len) {
        return Ok(());
    }
    for at in pages(start.addr(), len) {
        // SAFETY: a byte of the caller's memory, if there is any; its content is about to be replaced.
        let result =
            unsafe { libc::syscall(libc::SYS_getrandom, at, 1_usize, libc::GRND_NONBLOCK) };
        if is_fault(result) {
            return Err(Errno::FAULT);
        }
    }
    Ok(())
}

/// EFAULT where an array of iovecs, or what one of them names, cannot be memory; EINVAL before that where a length is none
/// (`copy_iovec_from_user`). Of a count that is too large each call has its own to say.
///
/// # Safety
/// `start` points at `count` valid iovecs, if it is a program's at all.
pub unsafe fn check_parts(start: *const libc::iovec, count: usize) -> Result<(), Errno> {
    if count > MAX_IOVECS {
        return Ok(());
    }
    if !is_memory(start.cast(), count * size_of::<libc::iovec>())? {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller's contract.
    let parts = unsafe { iovecs(start, count) }.unwrap_or_default();
    if parts
        .iter()
        .any(|part| isize::try_from(part.iov_len).is_err())
    {
        return Err(Errno::INVAL);
    }
    for part in parts {
        if !is_memory(part.iov_base, part.iov_len)? {
            return Err(Errno::FAULT);
        }
    }
    Ok(())
}

/// As [`optional`]; EFAULT where the pointer is no program's.
///
/// # Safety
/// As [`optional`].
pub unsafe fn given<T: Copy>(pointer: *const T) -> Result<Option<T>, Errno> {
    if !pointer.is_null() && !is_in_user_space(pointer.cast(), size_of::<T>()) {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller's contract.
    Ok(unsafe { optional(pointer) })
}

/// Reads a C value if the pointer is not null.
///
/// # Safety
/// A non-null pointer is valid for reading.
pub unsafe fn optional<T: Copy>(pointer: *const T) -> Option<T> {
    // SAFETY: the caller's contract.
    (!pointer.is_null()).then(|| unsafe { pointer.read_unaligned() })
}
