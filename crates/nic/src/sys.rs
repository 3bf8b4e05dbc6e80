//! What the drivers' system calls have in common: socket options, and what a result says.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// What a system call has returned; negative: why it failed is in `errno`.
pub(crate) fn done<T: Default + PartialOrd>(result: T) -> io::Result<()> {
    if result < T::default() {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// For a number that the kernel's interface has no room for.
pub(crate) fn invalid<E>(_: E) -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// The machine's memory, where that may be asked.
pub(crate) fn memory_bytes() -> Option<u64> {
    // SAFETY: All zeroes are a valid `sysinfo`, an integer each.
    let mut machine: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: sysinfo(2) fills in what it is given, which lives.
    let status = unsafe { libc::sysinfo(&raw mut machine) };
    (status == 0).then(|| machine.totalram.saturating_mul(machine.mem_unit.into()))
}

/// setsockopt(2).
pub(crate) fn set_option<T>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<T>()).map_err(invalid)?;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: pointer and length describe the value, which outlives the call; the kernel only reads it.
    done(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) })
}

/// getsockopt(2).
///
/// # Safety
/// `T` is the structure of plain numbers that the kernel writes for `option`.
pub(crate) unsafe fn option<T>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<T> {
    let mut len = libc::socklen_t::try_from(size_of::<T>()).map_err(invalid)?;
    // SAFETY: all zeros is a valid `T` by the caller's word; pointer and length describe `value`.
    unsafe {
        let mut value: T = std::mem::zeroed();
        let target = (&raw mut value).cast();
        done(libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            target,
            &raw mut len,
        ))?;
        Ok(value)
    }
}

/// bind(2) to an address of the kernel's own form.
///
/// # Safety
/// `T` is a structure of plain numbers that begins with the address's family.
pub(crate) unsafe fn bind<T>(socket: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<T>()).map_err(invalid)?;
    let address = std::ptr::from_ref(address).cast();
    // SAFETY: pointer and length describe the address, which outlives the call; the kernel only reads it.
    done(unsafe { libc::bind(socket.as_raw_fd(), address, len) })
}
