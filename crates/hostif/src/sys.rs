//! Memory files and where they are mapped. See memfd_create(2), mmap(2), mlockall(2).
//!
//! Nothing is mapped readable at once: mmap(2) of accessible memory touches every page where the program has asked that
//! its future memory be locked (`mlockall(MCL_FUTURE)`), while making a shared mapping accessible afterwards touches none.
//! And windows are mapped in groups, when the first of a group is used, so that a region costs a program under a limit of
//! address space (RLIMIT_AS) what it uses and not what its engine could serve.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::cursor::{Cells, SharedBytes};
use crate::layout::{Layout, LayoutError};
use crate::region::RegionError;
use crate::sync::AtomicU64;
use crate::window::{Window, WindowSpan};

/// Windows are mapped in groups of so many bytes, or more where there would be too many groups.
const GROUP_BYTES: u64 = 8 * 1024 * 1024;
/// A process may have 65530 mappings (vm.max_map_count), and has others.
const GROUPS_MAX: u64 = 8192;

/// What keeps a file as long as it is, for good.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// A descriptor of a region's memory file, kept for as long as the region.
pub trait MemoryFile: AsFd + Send + Sync {}

impl<T: AsFd + Send + Sync> MemoryFile for T {}

/// What keeps a file as it is for all but those who have mapped it already.
const SHOWN: SealFlags = SEALS.union(SealFlags::FUTURE_WRITE);

/// Maps part of a memory file without touching a page of it.
fn map(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<NonNull<u8>, Errno> {
    map_for(
        MprotectFlags::READ | MprotectFlags::WRITE,
        file,
        offset,
        len,
    )
}

/// As `map`, to do no more than that with it.
fn map_for(
    access: MprotectFlags,
    file: BorrowedFd<'_>,
    offset: u64,
    len: usize,
) -> Result<NonNull<u8>, Errno> {
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    let nothing = ProtFlags::empty();
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    let base =
        unsafe { rustix::mm::mmap(core::ptr::null_mut(), len, nothing, flags, file, offset) }?;
    let made = Mapping {
        base: NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?,
        len,
    };
    // SAFETY: the mapping is ours and nobody knows of it yet.
    unsafe { rustix::mm::mprotect(base, len, access) }?;
    // A core dump of a program need not hold gigabytes of windows; if it does, nothing is broken.
    // SAFETY: the mapping is ours, and the advice changes nothing of its contents.
    let _ = unsafe { rustix::mm::madvise(base, len, Advice::LinuxDontDump) };
    let base = made.base;
    core::mem::forget(made);
    Ok(base)
}

/// Makes and seals a memory file.
pub(crate) fn create(name: &core::ffi::CStr, bytes: u64) -> Result<OwnedFd, RegionError> {
    let file = create_open(name, bytes)?;
    seal(&file, SEALS)?;
    Ok(crate::host_hooks::relocate_fd(file))
}

/// Makes and seals a memory file that others can only read, and maps it.
pub(crate) fn create_to_show(
    name: &core::ffi::CStr,
    bytes: u64,
) -> Result<(OwnedFd, Mapping), RegionError> {
    let file = create_open(name, bytes)?;
    let memory = Mapping::new(file.as_fd(), bytes)?;
    seal(&file, SHOWN)?;
    Ok((crate::host_hooks::relocate_fd(file), memory))
}

fn create_open(name: &core::ffi::CStr, bytes: u64) -> Result<OwnedFd, RegionError> {
    let system = |what| move |errno| RegionError::System(what, errno);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(name, flags).map_err(system("creation"))?;
    rustix::fs::ftruncate(&file, bytes).map_err(system("sizing"))?;
    Ok(file)
}

fn seal(file: &OwnedFd, seals: SealFlags) -> Result<(), RegionError> {
    rustix::fs::fcntl_add_seals(file, seals).map_err(|errno| RegionError::System("sealing", errno))
}

/// Whether a file has that length, and stays as these seals say.
fn check(file: BorrowedFd<'_>, bytes: u64, seals: SealFlags) -> Result<(), RegionError> {
    let system = |what| move |errno| RegionError::System(what, errno);
    let has = rustix::fs::fcntl_get_seals(file).map_err(system("inspection"))?;
    let status = rustix::fs::fstat(file).map_err(system("inspection"))?;
    if has.contains(seals) && u64::try_from(status.st_size) == Ok(bytes) {
        Ok(())
    } else {
        Err(RegionError::Foreign)
    }
}

/// The beginning of a memory file, mapped as one.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain shared memory; all access goes through atomics and raw copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of a file.
    pub(crate) fn new(file: BorrowedFd<'_>, bytes: u64) -> Result<Mapping, RegionError> {
        let len = usize::try_from(bytes).map_err(|_| LayoutError::TooLarge)?;
        let base = map(file, 0, len).map_err(|errno| RegionError::System("mapping", errno))?;
        Ok(Mapping { base, len })
    }

    /// Maps a file that somebody else has made: of this length, and it stays so.
    pub(crate) fn adopt(file: BorrowedFd<'_>, bytes: u64) -> Result<Arc<Mapping>, RegionError> {
        check(file, bytes, SEALS)?;
        Ok(Arc::new(Mapping::new(file, bytes)?))
    }

    /// Maps a file that somebody else has made to be read: words of it are only to be loaded.
    pub(crate) fn to_read(file: BorrowedFd<'_>, bytes: u64) -> Result<Mapping, RegionError> {
        check(file, bytes, SHOWN)?;
        let len = usize::try_from(bytes).map_err(|_| LayoutError::TooLarge)?;
        let base = map_for(MprotectFlags::READ, file, 0, len)
            .map_err(|errno| RegionError::System("mapping", errno))?;
        Ok(Mapping { base, len })
    }

    /// The address of `bytes` at an offset, if all of them are there.
    pub(crate) fn at(&self, offset: u64, bytes: u64, align: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(bytes)?;
        if !offset.is_multiple_of(align) || end > self.len as u64 {
            return None;
        }
        let offset = usize::try_from(offset).ok()?;
        // SAFETY: `offset` is within the mapping.
        Some(unsafe { self.base.add(offset) })
    }

    /// Words at an offset, which are used as nothing else.
    pub(crate) fn cells(self: &Arc<Self>, offset: u64, words: usize) -> Option<Cells> {
        let first = self.at(offset, words as u64 * 8, 8)?;
        let owner: Arc<Mapping> = Arc::clone(self);
        // SAFETY: checked above: aligned, inside the mapping, which the owner keeps; the parts that
        // are words are accessed as atomics only.
        Some(unsafe { Cells::from_raw(owner, first.cast::<AtomicU64>(), words) })
    }

    /// Bytes at an offset, which are used as nothing else; `None` unless they are a power of two.
    pub(crate) fn window(&self, offset: u64, size: u32) -> Option<Window<'_>> {
        if !size.is_power_of_two() {
            return None;
        }
        let first = self.at(offset, u64::from(size), 1)?;
        let len = usize::try_from(size).ok()?;
        // SAFETY: inside the mapping, which the borrow of `self` keeps; no reference covers windows.
        Some(Window::new(unsafe { SharedBytes::from_raw(first, len) }))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and every view of it borrows or holds this value.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

/// The windows of a region, of which those that were used are mapped.
pub(crate) struct Windows {
    file: Box<dyn MemoryFile>,
    /// Where in the file the first one is.
    start: u64,
    /// Bytes of all of them.
    bytes: u64,
    /// Binary logarithm of the bytes of a group.
    group_shift: u32,
    /// Where each group is mapped; null: it is not.
    groups: Box<[AtomicPtr<u8>]>,
}

impl Windows {
    /// Of a checked layout. Maps nothing yet.
    pub(crate) fn new(file: Box<dyn MemoryFile>, layout: &Layout) -> Windows {
        let start = layout.windows_start();
        let bytes = layout.region_bytes() - start;
        let group = GROUP_BYTES
            .max(layout.pair_stride())
            .max(bytes.div_ceil(GROUPS_MAX).next_power_of_two());
        let count = usize::try_from(bytes.div_ceil(group)).unwrap_or(0);
        Windows {
            file,
            start,
            bytes,
            group_shift: group.trailing_zeros(),
            groups: (0..count).map(|_| AtomicPtr::default()).collect(),
        }
    }

    /// The memory file.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A window, mapped if it was not.
    pub(crate) fn window(&self, span: WindowSpan) -> Result<Window<'_>, RegionError> {
        let (start, len) = self.find(span)?;
        // SAFETY: every byte of it is mapped until `self` is dropped; no reference covers windows.
        Ok(Window::new(unsafe { SharedBytes::from_raw(start, len) }))
    }

    /// Where a window is mapped, until `self` is dropped, and its length.
    fn find(&self, span: WindowSpan) -> Result<(NonNull<u8>, usize), RegionError> {
        let size = u64::from(span.size);
        let at = span
            .offset
            .checked_sub(self.start)
            .filter(|at| span.size.is_power_of_two() && at.saturating_add(size) <= self.bytes)
            .ok_or(RegionError::Outside)?;
        let within = at & ((1 << self.group_shift) - 1);
        if within + size > 1 << self.group_shift {
            return Err(RegionError::Outside);
        }
        let group = usize::try_from(at >> self.group_shift).map_err(|_| RegionError::Outside)?;
        let base = match NonNull::new(self.groups[group].load(Ordering::Acquire)) {
            Some(base) => base,
            None => self.map_group(group)?,
        };
        let too_large = |_| RegionError::Outside;
        let within = usize::try_from(within).map_err(too_large)?;
        let len = usize::try_from(size).map_err(too_large)?;
        // SAFETY: inside the group, of which every byte of the file is mapped until `self` is dropped.
        Ok((unsafe { base.add(within) }, len))
    }

    fn group_len(&self, group: usize) -> usize {
        let at = (group as u64) << self.group_shift;
        let len = (self.bytes - at).min(1 << self.group_shift);
        usize::try_from(len).expect("invariant: a group is smaller than the address space")
    }

    /// Of two threads that map a group at once, the one that is later takes the other's. No lock is held: a handler
    /// of a signal may come here meanwhile.
    #[cold]
    fn map_group(&self, group: usize) -> Result<NonNull<u8>, RegionError> {
        let offset = self.start + ((group as u64) << self.group_shift);
        let len = self.group_len(group);
        let made = map(self.file.as_fd(), offset, len)
            .map_err(|errno| RegionError::System("mapping", errno))?;
        let place = &self.groups[group];
        let null = core::ptr::null_mut();
        match place.compare_exchange(null, made.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(made),
            Err(other) => {
                // SAFETY: mapped above, and nobody else knows of it.
                let _ = unsafe { rustix::mm::munmap(made.as_ptr().cast::<c_void>(), len) };
                NonNull::new(other).ok_or(RegionError::Outside)
            }
        }
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        for group in 0..self.groups.len() {
            let base = *self.groups[group].get_mut();
            if !base.is_null() {
                // SAFETY: mapped by `map_group` with this length, and every view of it borrows `self`.
                let _ = unsafe { rustix::mm::munmap(base.cast::<c_void>(), self.group_len(group)) };
            }
        }
    }
}

/// A window that was looked up, for whoever uses it again and again; keeps it mapped.
pub struct WindowPlace {
    window: Window<'static>,
    _windows: Arc<Windows>,
}

impl WindowPlace {
    pub(crate) fn find(windows: &Arc<Windows>, span: WindowSpan) -> Result<Self, RegionError> {
        let (start, len) = windows.find(span)?;
        Ok(Self {
            // SAFETY: it stays mapped until the windows are dropped, which this value keeps, and is lent for no longer than
            // this value lives; no reference covers windows.
            window: Window::new(unsafe { SharedBytes::from_raw(start, len) }),
            _windows: Arc::clone(windows),
        })
    }

    /// The window.
    #[inline(always)]
    #[must_use]
    pub fn window(&self) -> Window<'_> {
        self.window
    }
}
