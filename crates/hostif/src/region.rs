//! The region: a sealed memory file that the engine makes and both sides map. See memfd_create(2).
//!
//! Sealed against shrinking and growing, with 4 KiB pages: whatever a program does to the file, the
//! engine's accesses never fault (a punched hole reads zeros). Pages are allocated when first touched,
//! so the default region of 16 GiB of windows costs what is used. This file gives out checked views;
//! what they mean is in `ring`, `header` and `window`.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::NonNull;
use std::sync::Arc;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::cursor::{Cells, SharedBytes};
use crate::descriptor::{Command, Completion, Consumed, Written, high, join, low};
use crate::doorbell::SleepWord;
use crate::header::{RawHeader, SocketHeader};
use crate::layout::{
    ANSWER_OFFSET, ANSWER_WORDS, Layout, LayoutError, RingEntries, RingKind, SLEEP_BLOCK_BYTES,
};
use crate::ring::{Consumer, Producer, words_for};
use crate::sync::{AtomicU64, Ordering};
use crate::window::{Window, WindowSpan};
use crate::{MAX_VERSION, MIN_VERSION};

/// "SHUNTRG1", the first eight bytes of a region.
const MAGIC: u64 = u64::from_le_bytes(*b"SHUNTRG1");
const HEADER_WORDS: usize = 8;

/// Why there is no region.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The numbers make no layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A system call failed.
    #[error("{0} of the shared region failed: {1}")]
    System(&'static str, Errno),
    /// The file is no region of a version that this code speaks, or not as large as it says.
    #[error("the file is no region of a known version")]
    Foreign,
}

pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain shared memory; all access goes through atomics and raw copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// What keeps a file as long as it is, for good.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

impl Mapping {
    fn new(file: BorrowedFd<'_>, bytes: u64) -> Result<Mapping, RegionError> {
        let len = usize::try_from(bytes).map_err(|_| LayoutError::TooLarge)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base =
            unsafe { rustix::mm::mmap(core::ptr::null_mut(), len, protection, flags, file, 0) }
                .map_err(|errno| RegionError::System("mapping", errno))?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(RegionError::Foreign)?;
        // A core dump of a program need not hold gigabytes of windows; if it does, nothing is broken.
        // SAFETY: the mapping is ours, and the advice changes nothing of its contents.
        let _ = unsafe {
            rustix::mm::madvise(base.as_ptr().cast::<c_void>(), len, Advice::LinuxDontDump)
        };
        Ok(Mapping { base, len })
    }

    /// Makes, seals and maps a memory file.
    pub(crate) fn create(
        name: &core::ffi::CStr,
        bytes: u64,
    ) -> Result<(Arc<Mapping>, OwnedFd), RegionError> {
        let system = |what| move |errno| RegionError::System(what, errno);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags).map_err(system("creation"))?;
        rustix::fs::ftruncate(&file, bytes).map_err(system("sizing"))?;
        rustix::fs::fcntl_add_seals(&file, SEALS).map_err(system("sealing"))?;
        let file = crate::home::settle(file);
        let mapping = Arc::new(Mapping::new(file.as_fd(), bytes)?);
        Ok((mapping, file))
    }

    /// Maps a file that somebody else has made: of this length, and it stays so.
    pub(crate) fn adopt(file: BorrowedFd<'_>, bytes: u64) -> Result<Arc<Mapping>, RegionError> {
        let system = |what| move |errno| RegionError::System(what, errno);
        let seals = rustix::fs::fcntl_get_seals(file).map_err(system("inspection"))?;
        let status = rustix::fs::fstat(file).map_err(system("inspection"))?;
        if !seals.contains(SEALS) || u64::try_from(status.st_size) != Ok(bytes) {
            return Err(RegionError::Foreign);
        }
        Ok(Arc::new(Mapping::new(file, bytes)?))
    }

    /// The address of `bytes` at an offset, if all of them are there.
    fn at(&self, offset: u64, bytes: u64, align: u64) -> Option<NonNull<u8>> {
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

/// Where a socket's header lies; keeps it mapped.
#[derive(Clone)]
pub struct HeaderPlace {
    raw: NonNull<RawHeader>,
    _mapping: Arc<Mapping>,
}

// SAFETY: the header consists of atomics, and the mapping is Send and Sync.
unsafe impl Send for HeaderPlace {}
// SAFETY: as above.
unsafe impl Sync for HeaderPlace {}

impl HeaderPlace {
    /// The header.
    #[must_use]
    pub fn header(&self) -> SocketHeader<'_> {
        // SAFETY: it came from a reference into the mapping, which this value keeps.
        SocketHeader::new(unsafe { self.raw.as_ref() })
    }
}

/// A mapped region. Clones share the mapping.
#[derive(Clone)]
pub struct Region {
    mapping: Arc<Mapping>,
    file: Option<Arc<OwnedFd>>,
    layout: Layout,
    /// Where headers and windows begin: asked for with every packet and call.
    headers_at: u64,
    windows_at: u64,
    id: u32,
    session: u32,
}

impl Region {
    /// Engine: makes, seals and maps a region for `session`. Both numbers go into its header page.
    pub fn create(layout: Layout, id: u32, session: u32) -> Result<Region, RegionError> {
        layout.check()?;
        let (mapping, file) = Mapping::create(c"shunt-region", layout.region_bytes())?;
        let region = Region {
            mapping,
            file: Some(Arc::new(file)),
            layout,
            headers_at: layout.headers_start(),
            windows_at: layout.windows_start(),
            id,
            session,
        };
        let entries = layout.ring_entries;
        let words = [
            u64::from(MAX_VERSION),
            join(id, session),
            u64::from(entries.command),
            join(entries.send, entries.receive),
            join(entries.completion, layout.socket_headers),
            join(layout.window_pairs, layout.send_window_bytes),
            u64::from(layout.receive_window_bytes),
        ];
        let cells = region.cells(0, HEADER_WORDS);
        for (cell, word) in cells[1..].iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
        cells[0].store(MAGIC, Ordering::Release);
        Ok(region)
    }

    /// Program: maps a region that the engine handed over. The file may be closed afterwards.
    pub fn map(file: BorrowedFd<'_>) -> Result<Region, RegionError> {
        let status =
            rustix::fs::fstat(file).map_err(|errno| RegionError::System("inspection", errno))?;
        let bytes = u64::try_from(status.st_size).map_err(|_| RegionError::Foreign)?;
        if !(crate::layout::PAGE_BYTES..=crate::layout::MAX_REGION_BYTES).contains(&bytes) {
            return Err(RegionError::Foreign);
        }
        let mapping = Arc::new(Mapping::new(file, bytes)?);
        let placeholder = Layout::default();
        let mut region = Region {
            mapping,
            file: None,
            layout: placeholder,
            headers_at: 0,
            windows_at: 0,
            id: 0,
            session: 0,
        };
        let words: [u64; HEADER_WORDS] = {
            let cells = region.cells(0, HEADER_WORDS);
            core::array::from_fn(|index| cells[index].load(Ordering::Acquire))
        };
        let version = u16::try_from(words[1]).map_err(|_| RegionError::Foreign)?;
        if words[0] != MAGIC || !(MIN_VERSION..=MAX_VERSION).contains(&version) {
            return Err(RegionError::Foreign);
        }
        region.id = low(words[2]);
        region.session = high(words[2]);
        region.layout = Layout {
            ring_entries: RingEntries {
                command: low(words[3]),
                send: low(words[4]),
                receive: high(words[4]),
                completion: low(words[5]),
            },
            socket_headers: high(words[5]),
            window_pairs: low(words[6]),
            send_window_bytes: high(words[6]),
            receive_window_bytes: low(words[7]),
        };
        region.layout.check()?;
        region.headers_at = region.layout.headers_start();
        region.windows_at = region.layout.windows_start();
        if region.layout.region_bytes() == bytes {
            Ok(region)
        } else {
            Err(RegionError::Foreign)
        }
    }

    /// The numbers behind the layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The region's number, unique in its engine.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The session it was made for.
    #[must_use]
    pub fn session(&self) -> u32 {
        self.session
    }

    /// The memory file, to be passed to a program; only the creator has it.
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|file| file.as_fd())
    }

    fn check(&self, offset: u64, bytes: u64, align: u64) -> Option<NonNull<u8>> {
        self.mapping.at(offset, bytes, align)
    }

    fn cells(&self, offset: u64, words: usize) -> Cells {
        self.mapping
            .cells(offset, words)
            .expect("invariant: a checked layout lies within its region")
    }

    fn ring_cells(&self, kind: RingKind) -> Cells {
        self.cells(self.layout.ring(kind), words_for(self.layout.entries(kind)))
    }

    /// Engine: the emptying end of the command ring. Once per region, as all of these.
    #[must_use]
    pub fn command_consumer(&self) -> Consumer<Command> {
        Consumer::new(self.ring_cells(RingKind::Command))
    }

    /// Engine: the emptying end of the ring of `Written`.
    #[must_use]
    pub fn send_consumer(&self) -> Consumer<Written> {
        Consumer::new(self.ring_cells(RingKind::Send))
    }

    /// Engine: the emptying end of the ring of `Consumed`.
    #[must_use]
    pub fn receive_consumer(&self) -> Consumer<Consumed> {
        Consumer::new(self.ring_cells(RingKind::Receive))
    }

    /// Engine: the filling end of the completion ring.
    #[must_use]
    pub fn completion_producer(&self) -> Producer<Completion> {
        Producer::new(self.ring_cells(RingKind::Completion))
    }

    /// Program: the filling end of the command ring.
    #[must_use]
    pub fn command_producer(&self) -> Producer<Command> {
        Producer::new(self.ring_cells(RingKind::Command))
    }

    /// Program: the filling end of the ring of `Written`.
    #[must_use]
    pub fn send_producer(&self) -> Producer<Written> {
        Producer::new(self.ring_cells(RingKind::Send))
    }

    /// Program: the filling end of the ring of `Consumed`.
    #[must_use]
    pub fn receive_producer(&self) -> Producer<Consumed> {
        Producer::new(self.ring_cells(RingKind::Receive))
    }

    /// Program: the emptying end of the completion ring.
    #[must_use]
    pub fn completion_consumer(&self) -> Consumer<Completion> {
        Consumer::new(self.ring_cells(RingKind::Completion))
    }

    /// Engine: places the answer to a query; what does not fit is left out.
    pub fn engine_set_answer(&self, words: &[u64]) {
        let cells = self.cells(ANSWER_OFFSET, ANSWER_WORDS);
        for (cell, word) in cells.iter().zip(words) {
            cell.store(*word, Ordering::Release);
        }
    }

    /// Program: the last answer, after its completion.
    #[must_use]
    pub fn answer(&self) -> [u64; ANSWER_WORDS] {
        let cells = self.cells(ANSWER_OFFSET, ANSWER_WORDS);
        core::array::from_fn(|index| cells[index].load(Ordering::Acquire))
    }

    /// The word by which the engine says that it sleeps.
    #[must_use]
    pub fn engine_sleep_word(&self) -> SleepWord {
        SleepWord::new(self.cells(self.layout.sleep_block(), 1))
    }

    /// The word by which the program says that it sleeps.
    #[must_use]
    pub fn program_sleep_word(&self) -> SleepWord {
        SleepWord::new(self.cells(self.layout.sleep_block() + SLEEP_BLOCK_BYTES / 2, 1))
    }

    /// A socket's header; `None` when there is none with that index.
    #[must_use]
    pub fn socket_header(&self, index: u32) -> Option<SocketHeader<'_>> {
        if index >= self.layout.socket_headers {
            return None;
        }
        let offset = self.headers_at + u64::from(index) * crate::layout::SOCKET_HEADER_BYTES;
        let first = self.check(offset, crate::layout::SOCKET_HEADER_BYTES, 64)?;
        // SAFETY: aligned and inside the mapping, which `self` keeps; the header consists of atomics
        // and of padding that nobody accesses, so any bytes are a valid one.
        Some(SocketHeader::new(unsafe {
            first.cast::<RawHeader>().as_ref()
        }))
    }

    /// As [`Region::socket_header`], to be looked at again and again without another check.
    #[must_use]
    pub fn header_place(&self, index: u32) -> Option<HeaderPlace> {
        let header = self.socket_header(index)?;
        Some(HeaderPlace {
            raw: NonNull::from(header.raw()),
            _mapping: Arc::clone(&self.mapping),
        })
    }

    /// The send and receive windows of a pair, at their full size.
    #[must_use]
    pub fn window_pair(&self, index: u32) -> Option<(WindowSpan, WindowSpan)> {
        let (send, receive) = self.layout.window_pair(index)?;
        Some((
            WindowSpan {
                offset: send,
                size: self.layout.send_window_bytes,
            },
            WindowSpan {
                offset: receive,
                size: self.layout.receive_window_bytes,
            },
        ))
    }

    /// A window; `None` unless the span is a power of two of bytes within the windows' part.
    #[must_use]
    pub fn window(&self, span: WindowSpan) -> Option<Window<'_>> {
        if span.offset < self.windows_at {
            return None;
        }
        self.mapping.window(span.offset, span.size)
    }

    /// Engine: memory that the region takes now, in bytes.
    pub fn allocated_bytes(&self) -> Result<u64, Errno> {
        let file = self.file.as_ref().ok_or(Errno::BADF)?;
        // POSIX counts in units of 512 bytes (stat(2)).
        Ok(u64::try_from(rustix::fs::fstat(file)?.st_blocks).unwrap_or(0) * 512)
    }

    /// Engine: gives the pages of a window back to the system; it reads zeros afterwards.
    pub fn punch_hole(&self, span: WindowSpan) -> Result<(), Errno> {
        let file = self.file.as_ref().ok_or(Errno::BADF)?;
        self.window(span).ok_or(Errno::INVAL)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(file, flags, span.offset, u64::from(span.size))
    }
}

#[cfg(any(test, fuzzing, feature = "fuzzing"))]
impl Region {
    /// What a hostile program does: bytes anywhere before the windows.
    pub(crate) fn scribble(&self, offset: u64, data: &[u8]) {
        let end = self.layout.windows_start();
        let at = offset % end;
        let len = data.len().min(usize::try_from(end - at).unwrap_or(0));
        let first = self
            .check(at, len as u64, 1)
            .expect("invariant: reduced to the region");
        // SAFETY: `len` bytes inside the mapping.
        unsafe { SharedBytes::from_raw(first, len) }.copy_in(0, &data[..len]);
    }
}

#[cfg(test)]
mod tests;
