//! The region: a sealed memory file that the engine makes and both sides map (`sys.rs`). See memfd_create(2).
//!
//! Sealed against shrinking and growing, with 4 KiB pages: whatever a program does to the file, the
//! engine's accesses never fault (a punched hole reads zeros). Pages are allocated when first touched,
//! so the default region of 16 GiB of windows costs what is used. This file gives out checked views;
//! what they mean is in `ring`, `header` and `window`.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use std::sync::Arc;

use rustix::fd::{AsFd as _, BorrowedFd};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::cursor::Cells;
#[cfg(any(test, fuzzing, feature = "fuzzing"))]
use crate::cursor::SharedBytes;
use crate::descriptor::{Command, Completion, Consumed, Written, high, join, low};
use crate::header::{RawHeader, SocketHeader};
use crate::layout::{
    ANSWER_OFFSET, ANSWER_WORDS, Layout, LayoutError, MAX_REGION_BYTES, PAGE_BYTES, RingEntries,
    RingKind, SLEEP_BLOCK_BYTES,
};
use crate::ring::{Consumer, Producer, words_for};
use crate::sync::Ordering;
use crate::sync::doorbell::SleepWord;
pub use crate::sys::MemoryFile;
use crate::sys::{self, Mapping, WindowPlace, Windows};
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
    /// No window of the region lies there.
    #[error("no window of the region lies there")]
    Outside,
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

/// The rings of a region, as an engine goes on with them that another has used.
pub struct Resumed {
    /// Commands.
    pub commands: Consumer<Command>,
    /// Notes of bytes written.
    pub written: Consumer<Written>,
    /// Notes of bytes consumed.
    pub consumed: Consumer<Consumed>,
    /// Completions and events.
    pub completions: Producer<Completion>,
}

/// A mapped region. Clones share the mapping.
#[derive(Clone)]
pub struct Region {
    /// All before the windows.
    mapping: Arc<Mapping>,
    windows: Arc<Windows>,
    layout: Layout,
    /// Where headers begin: asked for with every packet and call.
    headers_at: u64,
    id: u32,
    session: u32,
}

impl Region {
    /// Engine: makes, seals and maps a region for `session`. Both numbers go into its header page.
    pub fn create(layout: Layout, id: u32, session: u32) -> Result<Region, RegionError> {
        layout.check()?;
        let file = sys::create(c"shunt-region", layout.region_bytes())?;
        let region = Region {
            mapping: Arc::new(Mapping::new(file.as_fd(), layout.windows_start())?),
            windows: Arc::new(Windows::new(Box::new(file), &layout)),
            layout,
            headers_at: layout.headers_start(),
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

    /// Program: maps a region that the engine handed over. The file is kept, since windows are mapped when they are
    /// used.
    pub fn map(file: impl MemoryFile + 'static) -> Result<Region, RegionError> {
        let status = rustix::fs::fstat(file.as_fd())
            .map_err(|errno| RegionError::System("inspection", errno))?;
        let bytes = u64::try_from(status.st_size).map_err(|_| RegionError::Foreign)?;
        if !(PAGE_BYTES..=MAX_REGION_BYTES).contains(&bytes) {
            return Err(RegionError::Foreign);
        }
        let page = Arc::new(Mapping::new(file.as_fd(), PAGE_BYTES)?);
        let cells = page.cells(0, HEADER_WORDS).ok_or(RegionError::Foreign)?;
        let words: [u64; HEADER_WORDS] =
            core::array::from_fn(|index| cells[index].load(Ordering::Acquire));
        let version = u16::try_from(words[1]).map_err(|_| RegionError::Foreign)?;
        if words[0] != MAGIC || !(MIN_VERSION..=MAX_VERSION).contains(&version) {
            return Err(RegionError::Foreign);
        }
        let layout = layout_of(&words);
        layout.check()?;
        if layout.region_bytes() != bytes {
            return Err(RegionError::Foreign);
        }
        Ok(Region {
            mapping: Arc::new(Mapping::new(file.as_fd(), layout.windows_start())?),
            windows: Arc::new(Windows::new(Box::new(file), &layout)),
            headers_at: layout.headers_start(),
            layout,
            id: low(words[2]),
            session: high(words[2]),
        })
    }

    /// Engine: maps the region that an engine before it has made with the same layout and these numbers. What its header
    /// page says is not asked: its program can write there.
    pub fn adopt(
        file: impl MemoryFile + 'static,
        layout: Layout,
        id: u32,
        session: u32,
    ) -> Result<Region, RegionError> {
        layout.check()?;
        let status = rustix::fs::fstat(file.as_fd())
            .map_err(|errno| RegionError::System("inspection", errno))?;
        if u64::try_from(status.st_size) != Ok(layout.region_bytes()) {
            return Err(RegionError::Foreign);
        }
        Ok(Region {
            mapping: Arc::new(Mapping::new(file.as_fd(), layout.windows_start())?),
            windows: Arc::new(Windows::new(Box::new(file), &layout)),
            headers_at: layout.headers_start(),
            layout,
            id,
            session,
        })
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

    /// The memory file.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.windows.file()
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

    /// Engine: the four ends of an engine that goes on where the one before stopped.
    #[must_use]
    pub fn resume(&self) -> Resumed {
        Resumed {
            commands: Consumer::resume(self.ring_cells(RingKind::Command)),
            written: Consumer::resume(self.ring_cells(RingKind::Send)),
            consumed: Consumer::resume(self.ring_cells(RingKind::Receive)),
            completions: Producer::resume(self.ring_cells(RingKind::Completion)),
        }
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

    /// A window; `None` unless the span is a power of two of bytes of one pair of windows and can be mapped.
    #[must_use]
    pub fn window(&self, span: WindowSpan) -> Option<Window<'_>> {
        self.windows.window(span).ok()
    }

    /// As [`Region::window`], for whoever uses it first.
    ///
    /// # Errors
    /// There is no such window, or it cannot be mapped.
    pub fn try_window(&self, span: WindowSpan) -> Result<Window<'_>, RegionError> {
        self.windows.window(span)
    }

    /// As [`Region::try_window`], to be looked at again and again without another check.
    ///
    /// # Errors
    /// As there.
    pub fn window_place(&self, span: WindowSpan) -> Result<WindowPlace, RegionError> {
        WindowPlace::find(&self.windows, span)
    }

    /// Engine: memory that the region takes now, in bytes.
    pub fn allocated_bytes(&self) -> Result<u64, Errno> {
        // POSIX counts in units of 512 bytes (stat(2)).
        Ok(u64::try_from(rustix::fs::fstat(self.file())?.st_blocks).unwrap_or(0) * 512)
    }

    /// Engine: gives the pages of a window back to the system; it reads zeros afterwards.
    pub fn punch_hole(&self, span: WindowSpan) -> Result<(), Errno> {
        self.window(span).ok_or(Errno::INVAL)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(self.file(), flags, span.offset, u64::from(span.size))
    }
}

/// The layout that a header page tells of, unchecked.
fn layout_of(words: &[u64; HEADER_WORDS]) -> Layout {
    Layout {
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
