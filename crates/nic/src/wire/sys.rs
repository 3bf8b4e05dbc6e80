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

use crate::pool::SharedSlice;

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
        let len = usize::try_from(rustix::fs::fstat(fd)?.st_size)
            .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
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

    /// Copies `source` into the region.
    pub(super) fn copy_in(&self, offset: usize, source: SharedSlice<'_>) {
        let target = self.span(offset, source.len());
        // SAFETY: the target is inside the mapping, the source readable (SharedSlice). They are
        // different memory: a program's window is never in a wire's region, which only drivers map.
        // Another process may write the target meanwhile; that spoils frames, and nothing here
        // decides anything on these bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(source.as_ptr(), target.as_ptr(), source.len());
        }
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

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, and every borrow has ended.
        // Failure leaks address space and nothing else.
        let _ = unsafe { rustix::mm::munmap(self.memory.as_ptr().cast(), self.len) };
    }
}
