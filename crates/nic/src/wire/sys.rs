//! The shared memory under a wire: a sealed memfd, mapped, and touched only through atomics and
//! bounds-checked copies, so that all code above it is safe.
//!
//! Read first: memfd_create(2), fcntl(2) ("File Sealing"). What the bytes mean is `ring.rs`.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::shared_slice::SharedSlice;
use crate::sys::invalid;

/// With these the memory can no longer shrink under us, so that touching it never faults.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// Memory that another process may be writing at any time.
pub(super) struct Region {
    memory: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is not tied to a thread; words are atomics, and copies move opaque bytes.
unsafe impl Send for Region {}

impl Region {
    /// New memory of `len` bytes, all zero, and the descriptor to pass on.
    pub(super) fn create(len: usize) -> io::Result<(OwnedFd, Self)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("shunt-wire", flags)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SEALS)?;
        let region = Self::map(&fd, len)?;
        Ok((fd, region))
    }

    /// Maps memory made by [`Region::create`], perhaps in another process.
    pub(super) fn adopt(fd: &OwnedFd) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(fd)?;
        if !seals.contains(SEALS) {
            let text = "the memory of a wire must be sealed against resizing";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let len = usize::try_from(rustix::fs::fstat(fd)?.st_size).map_err(invalid)?;
        Self::map(fd, len)
    }

    fn map(fd: impl AsFd, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let memory = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        let memory = NonNull::new(memory.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { memory, len })
    }

    /// Bytes mapped.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// `len` bytes at `offset`, checked.
    fn span(&self, offset: usize, len: usize) -> NonNull<u8> {
        let end = offset
            .checked_add(len)
            .expect("invariant: offsets are below the region's size");
        assert!(end <= self.len, "invariant: spans lie inside the region");
        // SAFETY: just checked to lie inside the mapping.
        unsafe { self.memory.add(offset) }
    }

    /// The word at `offset`, which is a multiple of eight.
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        let place = self.span(offset, 8);
        assert!(offset.is_multiple_of(8), "invariant: words are aligned");
        // SAFETY: inside the mapping, aligned as just checked (mappings start on a page), valid
        // for any bits, and lent no longer than the mapping lives.
        unsafe { place.cast::<AtomicU64>().as_ref() }
    }

    /// Copies `source` into the region; false: it is not there any more.
    pub(super) fn copy_in(&self, offset: usize, source: SharedSlice<'_>) -> bool {
        let target = self.span(offset, source.len());
        if source.is_for_kernel() {
            return copy_by_kernel(source, target);
        }
        // SAFETY: the target is inside the mapping, the source readable (SharedSlice). They are
        // different memory: a program's window is never in a wire's region, which only drivers map.
        // Another process may write the target meanwhile; that spoils frames, and nothing here
        // decides anything on these bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(source.as_ptr(), target.as_ptr(), source.len());
        }
        true
    }

    /// Copies bytes of the region into private memory.
    pub(super) fn copy_out(&self, offset: usize, target: &mut [u8]) {
        let source = self.span(offset, target.len());
        // SAFETY: as in `copy_in`, the other way; the target is a unique borrow of private memory.
        unsafe {
            std::ptr::copy_nonoverlapping(source.as_ptr(), target.as_mut_ptr(), target.len());
        }
    }
}

/// Copies what may lie in a file that somebody has cut short: the kernel says so (EFAULT) where a load of ours
/// would end the process. See process_vm_readv(2); a process may always read itself.
fn copy_by_kernel(source: SharedSlice<'_>, target: NonNull<u8>) -> bool {
    let local = libc::iovec {
        iov_base: target.as_ptr().cast(),
        iov_len: source.len(),
    };
    let remote = source.as_iovec();
    // SAFETY: `local` is a span of the mapping, checked by the caller, and only the kernel writes through
    // it; what `remote` names is only read, and may be anything.
    let copied = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    usize::try_from(copied) == Ok(source.len())
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, and every borrow has ended.
        // Failure leaks address space and nothing else.
        let _ = unsafe { rustix::mm::munmap(self.memory.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_a_file_that_was_cut_short_is_refused_and_harms_nobody() {
        let file = rustix::fs::memfd_create("file", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&file, b"content").unwrap();
        let (_fd, region) = Region::create(4096).unwrap();
        // SAFETY: a new mapping of a file of this test; it is never unmapped.
        let mapped = unsafe {
            let (read, shared) = (ProtFlags::READ, MapFlags::SHARED);
            rustix::mm::mmap(std::ptr::null_mut(), 4096, read, shared, &file, 0).unwrap()
        };
        // SAFETY: mapped for ever, and only the kernel reads it.
        let span = unsafe { SharedSlice::from_raw(mapped.cast(), 7) }.for_kernel();
        assert!(region.copy_in(64, span));
        let mut copied = [0; 7];
        region.copy_out(64, &mut copied);
        assert_eq!(&copied, b"content");
        rustix::fs::ftruncate(&file, 0).unwrap();
        assert!(!region.copy_in(64, span));
    }
}
