//! Memory as the driver wants it: spans of a send window, pieces of mapped files; and pread(2) into a
//! window. See mmap(2). The engine itself never touches what it maps here: a file that is cut short
//! would kill it (SIGBUS), while the kernel, sending from there, says EFAULT.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use hostif::Span;
use nic::SharedSlice;
use rustix::fd::BorrowedFd;
use rustix::mm::{MapFlags, ProtFlags};

/// Bytes of a window for the driver.
pub fn shared(span: Span<'_>) -> SharedSlice<'_> {
    // SAFETY: a span is mapped for its lifetime, which is the slice's; others may write there meanwhile, which
    // `SharedSlice` allows.
    unsafe { SharedSlice::from_raw(span.start(), span.len()) }
}

/// Reads from a file into bytes of a window; `false` if it has not that many.
pub fn read_exactly(file: BorrowedFd<'_>, offset: u64, span: Span<'_>) -> bool {
    let mut done = 0;
    while done < span.len() {
        // SAFETY: a span is mapped and writable for its lifetime, and `done` is less than its length. The bytes
        // are treated as uninitialised and written by the kernel only; the program may write there
        // too, which changes what is sent and nothing else.
        let target = unsafe {
            core::slice::from_raw_parts_mut(
                span.start().add(done).cast::<MaybeUninit<u8>>(),
                span.len() - done,
            )
        };
        match rustix::io::pread(file, target, offset + done as u64) {
            Ok((read, _)) if !read.is_empty() => done += read.len(),
            Err(rustix::io::Errno::INTR) => {}
            _ => return false,
        }
    }
    true
}

/// A piece of a file in memory, for addresses only.
pub struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: the mapping is the process's; nothing is read or written through it here.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes at `offset`, a multiple of the page size; the file may end before.
    pub fn new(file: BorrowedFd<'_>, offset: u64, len: usize) -> Option<Self> {
        // SAFETY: the kernel chooses a free place.
        let mapped = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                offset,
            )
        };
        let start = mapped.ok()?.cast();
        Some(Self { start, len })
    }

    /// `len` bytes from `at` on, for the kernel alone: see the file's head.
    pub fn span(&self, at: usize, len: usize) -> SharedSlice<'_> {
        assert!(
            at <= self.len && len <= self.len - at,
            "invariant: an extent lies in its mapping"
        );
        // SAFETY: inside the mapping, which the borrow of `self` keeps; where the file has no such bytes, only the
        // kernel finds out, since nobody else reads a slice that is for it.
        unsafe { SharedSlice::from_raw(self.start.wrapping_add(at), len) }.for_kernel()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; spans of it are handed out for one call each.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.len) };
    }
}
