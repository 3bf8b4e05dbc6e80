//! Memory that cannot be read any more.
#![allow(unsafe_code)]

use nic::SharedSlice;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// `len` bytes of a mapped file that has been cut short: reading them is SIGBUS here and EFAULT in the
/// kernel.
pub fn cut_short(len: usize) -> SharedSlice<'static> {
    let file = rustix::fs::memfd_create(c"cut short", MemfdFlags::CLOEXEC).unwrap();
    // SAFETY: the kernel chooses a free place; the mapping stays until the process ends, and the span
    // is given to the kernel only.
    unsafe {
        let start = rustix::mm::mmap(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ,
            MapFlags::SHARED,
            &file,
            0,
        );
        SharedSlice::from_raw(start.unwrap().cast(), len)
    }
}
