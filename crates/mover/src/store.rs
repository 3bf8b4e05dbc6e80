//! Ways for received bytes to the disk, one value for each thread that receives.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use serde::Serialize;

use crate::direct::DirectWriter;
use crate::error::Error;
use crate::meter::{Clock, Stage};
use crate::receive::sink::Sink;
use crate::sys::{self, Memory};

/// How bytes get to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// Past the page cache, from aligned memory through io_uring.
    Direct,
    /// Through the page cache, written behind.
    Buffered,
    /// The same, but from the socket by splice(2).
    Splice,
    /// The same, but out of pages that the kernel maps (TCP_ZEROCOPY_RECEIVE).
    Mapped,
    /// Nowhere: checked and dropped, for measurements.
    Memory,
}

impl Storage {
    /// As the flag has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Buffered => "buffered",
            Self::Splice => "splice",
            Self::Mapped => "mapped",
            Self::Memory => "memory",
        }
    }
}

/// Bytes that are received and written at a time.
pub const PIECE_BYTES: usize = 1 << 20;
/// Pieces that are being written at once.
pub const DIRECT_DEPTH: u16 = 12;
/// What direct writes must be multiples of.
const ALIGN_BYTES: usize = 4_096;
/// Bytes that buffered writing leaves to the kernel before it waits for the disk.
const BEHIND_BYTES: u64 = 32 << 20;

/// A piece of a block on its way to the disk.
#[derive(Debug)]
pub struct Piece {
    /// Of which file.
    pub sink: Arc<Sink>,
    pub block: u64,
    /// Where in the file.
    pub offset: u64,
    pub len: usize,
}

/// A thread's buffers.
#[derive(Debug)]
pub struct Writer {
    direct: Option<(DirectWriter, Vec<Option<Piece>>)>,
    buffer: Memory,
    /// Whether the piece that is being filled lies in a buffer of `direct`.
    filling: Option<usize>,
    /// Given to the kernel and not waited for.
    behind: VecDeque<Piece>,
    behind_bytes: u64,
    touched: Vec<Arc<Sink>>,
    /// Written since somebody asked.
    written_bytes: u64,
}

impl Writer {
    /// With direct writing if that is wanted and the system has it.
    pub fn new(wanted: Storage) -> Result<Self, Error> {
        let direct = match wanted {
            Storage::Direct => DirectWriter::new(DIRECT_DEPTH, PIECE_BYTES).ok(),
            Storage::Buffered | Storage::Splice | Storage::Mapped | Storage::Memory => None,
        };
        let slots = || (0..DIRECT_DEPTH).map(|_| None).collect();
        Ok(Self {
            direct: direct.map(|direct| (direct, slots())),
            buffer: Memory::new(PIECE_BYTES).map_err(Error::network("taking memory"))?,
            filling: None,
            behind: VecDeque::new(),
            behind_bytes: 0,
            touched: Vec::new(),
            written_bytes: 0,
        })
    }

    /// How a file's bytes are stored by this writer.
    pub fn storage_of(&self, sink: &Sink) -> Storage {
        match sink.storage() {
            Storage::Direct if self.direct.is_none() => Storage::Buffered,
            storage => storage,
        }
    }

    /// Waits until there is room for the next piece of a file.
    pub fn make_space(&mut self, sink: &Sink, clock: &mut Clock) -> Result<(), Error> {
        self.filling = None;
        if self.storage_of(sink) == Storage::Direct {
            self.reap(false)?;
            while self
                .direct
                .as_ref()
                .is_some_and(|(direct, _)| direct.free().is_none())
            {
                self.reap(true)?;
            }
            clock.lap(Stage::Disk);
            self.filling = self.direct.as_ref().and_then(|(direct, _)| direct.free());
        }
        Ok(())
    }

    /// Memory for a part of this piece, until [`Self::keep`]. What is written directly is copied once more from there: it
    /// is always the same, which stays in the processor's cache.
    pub fn part(&mut self, part: Range<usize>) -> &mut [u8] {
        match self.filling {
            Some(_) => &mut self.buffer.bytes()[..part.len()],
            None => &mut self.buffer.bytes()[part],
        }
    }

    pub fn keep(&mut self, part: Range<usize>) {
        if let (Some(slot), Some((direct, _))) = (self.filling, &mut self.direct) {
            direct.fill(slot, part.start, &self.buffer.bytes()[..part.len()]);
        }
    }

    /// Takes the piece whose parts were kept since [`Self::make_space`].
    pub fn store(&mut self, piece: Piece, clock: &mut Clock) {
        match (self.filling.take(), self.storage_of(&piece.sink)) {
            (_, Storage::Memory) => {
                piece.sink.piece_stored(piece.block);
                self.written_bytes += piece.len as u64;
                self.touched.push(piece.sink);
            }
            (Some(slot), _) => self.store_direct(slot, piece),
            (None, _) => self.store_buffered(piece),
        }
        clock.lap(Stage::Disk);
    }

    fn store_direct(&mut self, slot: usize, piece: Piece) {
        let Some((direct, pieces)) = &mut self.direct else {
            return;
        };
        let padded = piece.len.next_multiple_of(ALIGN_BYTES);
        direct.buffer(slot)[piece.len..padded].fill(0);
        let begun = match piece.sink.direct_file() {
            Some(file) => direct.write(slot, file.as_fd(), piece.offset, padded),
            None => Err(io::ErrorKind::Unsupported.into()),
        };
        match begun {
            Ok(()) => pieces[slot] = Some(piece),
            Err(error) => piece
                .sink
                .fail(&Error::file("writing", piece.sink.path())(error)),
        }
    }

    fn store_buffered(&mut self, piece: Piece) {
        let bytes = &self.buffer.bytes()[..piece.len];
        let written = piece.sink.write_at(bytes, piece.offset);
        self.follow(piece, written);
    }

    /// Sees to what is in the page cache, or failed to get there: so many bytes may be there that are not on the disk.
    pub fn follow(&mut self, piece: Piece, written: io::Result<()>) {
        let (offset, len) = (piece.offset, piece.len as u64);
        self.written_bytes += written.as_ref().map_or(0, |()| len);
        ended(&piece, written);
        let Some(file) = piece.sink.file() else {
            return;
        };
        sys::begin_write_back(file.as_fd(), offset, len);
        self.touched.push(Arc::clone(&piece.sink));
        self.behind.push_back(piece);
        self.behind_bytes += len;
        while self.behind_bytes > BEHIND_BYTES
            && let Some(piece) = self.behind.pop_front()
        {
            self.behind_bytes -= piece.len as u64;
            if let Some(file) = piece.sink.file() {
                sys::finish_write_back(file.as_fd(), piece.offset, piece.len as u64);
                // Nobody here reads them again; a wish.
                let len = NonZeroU64::new(piece.len as u64);
                let _ = rustix::fs::fadvise(file, piece.offset, len, rustix::fs::Advice::DontNeed);
            }
        }
    }

    /// Notes writes that have ended; with `wait`, at least one.
    pub fn reap(&mut self, mut wait: bool) -> Result<(), Error> {
        while let Some((direct, pieces)) = &mut self.direct
            && let Some(written) = direct
                .ended(wait)
                .map_err(Error::network("waiting for the disk"))?
        {
            wait = false;
            let Some(piece) = pieces[written.buffer].take() else {
                continue;
            };
            let done = match written.result {
                Ok(count) => Ok(count.min(piece.len)),
                Err(error) if sys::Retry::new().again(&error) => Ok(0),
                Err(error) => Err(error),
            };
            // What is left goes the ordinary way, which says what is wrong.
            let result = done.and_then(|done| {
                let rest = &direct.buffer(written.buffer)[done..piece.len];
                piece.sink.write_at(rest, piece.offset + done as u64)
            });
            self.written_bytes += result.as_ref().map_or(0, |()| piece.len as u64);
            ended(&piece, result);
            self.touched.push(piece.sink);
        }
        Ok(())
    }

    /// Waits until every write has ended.
    pub fn drain(&mut self) -> Result<(), Error> {
        while self.is_busy() {
            self.reap(true)?;
        }
        Ok(())
    }

    /// Whether a write is under way.
    pub fn is_busy(&self) -> bool {
        self.direct
            .as_ref()
            .is_some_and(|(direct, _)| direct.is_busy())
    }

    /// Waits until the connection has something to read, and notes writes that end meanwhile.
    pub fn await_readable(&mut self, connection: BorrowedFd<'_>) -> Result<bool, Error> {
        let Some((direct, _)) = &self.direct else {
            return Ok(true);
        };
        let (readable, is_ended) = sys::poll_two(connection, direct.as_fd())
            .map_err(Error::network("waiting for the peer"))?;
        if is_ended {
            self.reap(false)?;
        }
        Ok(readable)
    }

    /// Bytes that were written since this was asked last.
    pub fn take_written(&mut self) -> u64 {
        std::mem::take(&mut self.written_bytes)
    }

    /// A file that got bytes, to be looked at; several times the same, perhaps.
    pub fn next_touched(&mut self) -> Option<Arc<Sink>> {
        self.touched.pop()
    }
}

/// A piece is on the disk, or will not be.
fn ended(piece: &Piece, result: io::Result<()>) {
    match result {
        Ok(()) => piece.sink.piece_stored(piece.block),
        Err(error) => piece
            .sink
            .fail(&Error::file("writing", piece.sink.path())(error)),
    }
}
