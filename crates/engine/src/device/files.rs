//! Ranges of a stream whose bytes are in files: mapped piece by piece, so that the device copies them
//! straight from the page cache. See docs/decisions/0007-sendfile-by-reference.md.
//!
//! Nothing here reads a mapping; what does not fit a frame's two spans is read into the window, where
//! the program has left free space for it.

use super::extents::{ExtentRows, SocketUse};
use super::sys::{self, Mapping};
use crate::programs::users::ProgramFd;
use hostif::Window;
use nic::SharedSlice;
use rustix::fd::{AsFd as _, OwnedFd};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Files are mapped in aligned pieces of this size: large enough that mapping costs little beside the
/// copy, small enough that an idle mapping holds little.
const PIECE_BYTES: u64 = 2 * 1024 * 1024;
/// Extents of one socket at most; further bytes are read into the window.
const EXTENTS_MAX: usize = 64;
/// Pieces mapped at a time, of all sockets: a process may have 65530 mappings (vm.max_map_count).
const PIECES_MAX: usize = 16_384;
/// Pieces that stay mapped for the next who asks, so that a file that is sent again and again is mapped
/// once. Mapped pages count as the engine's memory where the system looks for somebody to kill.
const KEPT_MAX: usize = 512;

/// Bytes of a stream that are in one piece of a file.
struct Extent {
    /// Stream offsets.
    start: u64,
    end: u64,
    /// Where in the file `start` is.
    offset: u64,
    piece: Arc<Piece>,
    file: Arc<SourceFile>,
    /// Where in the rows it is.
    place: u32,
}

/// A file that a program has shared, and the pieces of it that stay mapped.
pub struct SourceFile {
    kept: Mutex<HashMap<u64, Kept>>,
    /// After the pieces: whoever closes it last is its user's thread.
    file: ProgramFd,
}

impl SourceFile {
    /// Of a file that `crate::programs::files::check` has let pass.
    pub fn new(file: ProgramFd) -> Self {
        Self {
            file,
            kept: Mutex::default(),
        }
    }

    /// The file.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Lets go of up to `count` pieces that were kept; `true`: none is left.
    pub fn let_go(&self, count: usize) -> bool {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let some: Vec<u64> = kept.keys().copied().take(count).collect();
        for offset in some {
            kept.remove(&offset);
        }
        kept.is_empty()
    }

    /// The piece that begins at `offset`; `None`: no more can be mapped.
    fn piece(&self, tickets: &Tickets, offset: u64) -> Option<Arc<Piece>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = kept.get(&offset) {
            return Some(Arc::clone(&kept.piece));
        }
        if tickets.count() >= PIECES_MAX {
            return None;
        }
        let piece = Arc::new(Piece {
            offset,
            mapping: Mapping::new(self.file.as_fd(), offset, length(0, PIECE_BYTES))?,
            _ticket: Arc::clone(&tickets.mapped),
        });
        if Arc::strong_count(&tickets.kept) <= KEPT_MAX {
            let one = Kept {
                piece: Arc::clone(&piece),
                _ticket: Arc::clone(&tickets.kept),
            };
            kept.insert(offset, one);
        }
        Some(piece)
    }
}

struct Kept {
    piece: Arc<Piece>,
    _ticket: Arc<()>,
}

struct Piece {
    /// Where in the file it begins.
    offset: u64,
    mapping: Mapping,
    _ticket: Arc<()>,
}

/// Counts the pieces that are mapped, and those that stay so.
#[derive(Default)]
pub struct Tickets {
    mapped: Arc<()>,
    kept: Arc<()>,
}

impl Tickets {
    /// Pieces mapped now.
    pub fn count(&self) -> usize {
        Arc::strong_count(&self.mapped) - 1
    }
}

/// The ranges of one socket, in the order of the stream, without overlap.
#[derive(Default)]
pub struct FileRanges {
    extents: VecDeque<Extent>,
}

impl FileRanges {
    /// Whether all bytes are in the window.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// The bytes of the stream from `start` to `end`, which follows all that was added before, are in
    /// the file from `offset` on. Returns how far they could be mapped.
    pub fn add(
        &mut self,
        (tickets, rows): (&Tickets, &mut ExtentRows),
        of: SocketUse,
        file: &Arc<SourceFile>,
        mut offset: u64,
        mut start: u64,
        end: u64,
    ) -> u64 {
        while start < end {
            let piece_offset = offset - offset % PIECE_BYTES;
            let len = (end - start).min(piece_offset + PIECE_BYTES - offset);
            let last = self.extents.back_mut();
            let near = last
                .filter(|last| Arc::ptr_eq(&last.file, file) && last.piece.offset == piece_offset);
            let piece = match near {
                Some(last)
                    if last.end == start && last.offset + (last.end - last.start) == offset =>
                {
                    last.end += len;
                    rows.extend(last.place, last.end);
                    (start, offset) = (start + len, offset + len);
                    continue;
                }
                Some(last) => Arc::clone(&last.piece),
                None => match file.piece(tickets, piece_offset) {
                    Some(piece) => piece,
                    None => return start,
                },
            };
            if self.extents.len() == EXTENTS_MAX {
                return start;
            }
            let Some(place) = rows.put(of, file.file(), (start, start + len), offset) else {
                return start;
            };
            self.extents.push_back(Extent {
                start,
                end: start + len,
                offset,
                file: Arc::clone(file),
                piece,
                place,
            });
            (start, offset) = (start + len, offset + len);
        }
        end
    }

    /// The peer has everything up to `acknowledged`.
    pub fn release(&mut self, rows: &mut ExtentRows, acknowledged: u64) {
        while let Some(extent) = self
            .extents
            .pop_front_if(|extent| extent.end <= acknowledged)
        {
            // Before its file may be closed: a row names one that is open.
            rows.remove(extent.place);
        }
    }

    /// Where `len` bytes at a stream offset are; `None`: the file does not have them any more.
    pub fn spans<'a>(
        &'a self,
        window: &Window<'a>,
        offset: u64,
        len: usize,
    ) -> Option<[SharedSlice<'a>; 2]> {
        let end = offset + len as u64;
        let mut spans = Spans::default();
        let mut at = offset;
        let first = self.extents.partition_point(|extent| extent.end <= offset);
        for extent in self.extents.range(first..) {
            if extent.start >= end {
                break;
            }
            if at < extent.start {
                spans.add_window(window, at, extent.start);
            }
            let from = extent.start.max(offset);
            at = extent.end.min(end);
            spans.add(extent.span(from, at));
        }
        if at < end {
            spans.add_window(window, at, end);
        }
        if spans.count <= 2 {
            return Some(spans.list);
        }
        self.read_into(window, offset, end)
            .then(|| window.spans(offset, len).map(sys::shared))
    }

    /// Reads what lies in files between two stream offsets into the window.
    fn read_into(&self, window: &Window<'_>, offset: u64, end: u64) -> bool {
        self.extents.iter().all(|extent| {
            let (from, to) = (extent.start.max(offset), extent.end.min(end));
            from >= to
                || read(
                    extent.file.file(),
                    extent.offset + (from - extent.start),
                    window,
                    from,
                    to,
                )
        })
    }
}

/// Reads the bytes of the stream from `start` to `end` from a file into the window; `false`: the file
/// does not have them.
pub fn read(file: &OwnedFd, offset: u64, window: &Window<'_>, start: u64, end: u64) -> bool {
    let [first, second] = window.spans(start, length(start, end));
    let file = file.as_fd();
    sys::read_exactly(file, offset, first)
        && sys::read_exactly(file, offset + first.len() as u64, second)
}

fn length(start: u64, end: u64) -> usize {
    usize::try_from(end - start).expect("invariant: ranges are no longer than a window or a piece")
}

impl Extent {
    fn span(&self, from: u64, to: u64) -> SharedSlice<'_> {
        let at = self.offset + (from - self.start) - self.piece.offset;
        self.piece.mapping.span(length(0, at), length(from, to))
    }
}

/// The first two spans of a range, and how many there are.
#[derive(Default)]
struct Spans<'a> {
    list: [SharedSlice<'a>; 2],
    count: usize,
}

impl<'a> Spans<'a> {
    fn add(&mut self, span: SharedSlice<'a>) {
        if span.is_empty() {
            return;
        }
        if let Some(slot) = self.list.get_mut(self.count) {
            *slot = span;
        }
        self.count += 1;
    }

    fn add_window(&mut self, window: &Window<'a>, from: u64, to: u64) {
        for span in window.spans(from, length(from, to)) {
            self.add(sys::shared(span).for_kernel());
        }
    }
}

#[cfg(test)]
mod tests;
