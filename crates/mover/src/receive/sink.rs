//! One file that is being received: which of its blocks are on the disk, and when it is whole.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use crate::checksum::{self, Digest};
use crate::error::Error;
use crate::lock::lock;
use crate::name::Name;
use crate::protocol::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, BLOCKS_MAX, Block, Entry, blocks_of};
use crate::store::Storage;
use crate::sys;
use crate::target::{PartFile, Target};
use crate::view;

/// How often a block may arrive damaged.
const TRIES_MAX: u32 = 8;

/// A file that is being received.
#[derive(Debug)]
pub struct Sink {
    entry: Entry,
    size: Option<u64>,
    path: PathBuf,
    part: Option<PartFile>,
    direct: Option<File>,
    /// Through the page cache, and how.
    cached: Storage,
    /// See [`view::number`].
    serial: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By block; `None`: it is not there.
    digests: Vec<Option<Digest>>,
    count: u64,
    /// Blocks of which some pieces are being written, or whose hash is not checked yet.
    open: HashMap<u64, OpenBlock>,
    /// On the disk and not in the journal.
    unnoted: Vec<(u64, Digest)>,
    tries: HashMap<u64, u32>,
    end: Option<(u64, Digest)>,
    failure: Option<String>,
    is_concluded: bool,
}

#[derive(Debug, Default)]
struct OpenBlock {
    pieces: u32,
    digest: Option<Digest>,
}

/// What became of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not yet known, or told already.
    Pending,
    /// Every block is there: its size and hash as the sender says.
    Whole(u64, Digest),
    /// It will not be.
    Failed(String),
}

impl Sink {
    /// Makes ready for a file; what is there of an earlier try counts.
    pub fn open(
        target: &Target,
        name: &Name,
        entry: Entry,
        size: Option<u64>,
        wanted: Storage,
        patience: Duration,
    ) -> Result<Self, Error> {
        let block_bytes = entry.block_bytes;
        let is_block_fit = (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes)
            && block_bytes.is_power_of_two();
        if !is_block_fit || size.is_some_and(|size| blocks_of(size, block_bytes) > BLOCKS_MAX) {
            return Err(Error::Protocol("a file has too many blocks"));
        }
        let mut part = match wanted {
            Storage::Memory => None,
            Storage::Direct | Storage::Buffered | Storage::Splice | Storage::Mapped => {
                Some(target.open_part(name, &entry, size, patience)?)
            }
        };
        let kept = part.as_mut().map(PartFile::take_kept).unwrap_or_default();
        let direct = match wanted {
            Storage::Direct => part.as_ref().and_then(PartFile::direct),
            Storage::Buffered | Storage::Splice | Storage::Mapped | Storage::Memory => None,
        };
        let cached = match wanted {
            Storage::Splice | Storage::Mapped => wanted,
            Storage::Direct | Storage::Buffered | Storage::Memory => Storage::Buffered,
        };
        let mut state = State::default();
        let blocks = size.map_or(0, |size| blocks_of(size, block_bytes));
        for (index, digest) in kept.into_iter().filter(|(index, _)| *index < blocks) {
            state.put(index, digest);
        }
        Ok(Self {
            path: target.path_of(name),
            entry,
            size,
            part,
            direct,
            cached,
            serial: view::number(),
            state: Mutex::new(state),
        })
    }

    pub fn number(&self) -> u64 {
        self.entry.file
    }

    /// What the sender said of it.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn storage(&self) -> Storage {
        match (&self.part, &self.direct) {
            (None, _) => Storage::Memory,
            (Some(_), Some(_)) => Storage::Direct,
            (Some(_), None) => self.cached,
        }
    }

    /// Tells its part file from every other one.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The file, through the page cache.
    pub fn file(&self) -> Option<&File> {
        self.part.as_ref().map(PartFile::file)
    }

    /// The file, past it.
    pub fn direct_file(&self) -> Option<&File> {
        self.direct.as_ref()
    }

    /// Writes through the page cache.
    pub fn write_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        let Some(file) = self.file() else {
            return Ok(());
        };
        let retry = sys::Retry::new();
        while !bytes.is_empty() {
            match file.write_at(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    offset += count as u64;
                }
                Err(error) if retry.again(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Blocks of an earlier try, as runs of neighbours of at most so many.
    pub fn kept(&self, most: usize) -> Vec<(u64, Vec<Digest>)> {
        let state = lock(&self.state);
        let mut runs: Vec<(u64, Vec<Digest>)> = Vec::new();
        for (index, digest) in (0..).zip(&state.digests) {
            let Some(digest) = digest else {
                continue;
            };
            match runs.last_mut() {
                Some((first, run)) if *first + run.len() as u64 == index && run.len() < most => {
                    run.push(*digest)
                }
                _ => runs.push((index, vec![*digest])),
            }
        }
        runs
    }

    pub fn kept_bytes(&self) -> u64 {
        let block_bytes = u64::from(self.entry.block_bytes);
        let state = lock(&self.state);
        let whole = state.count * block_bytes;
        let Some(size) = self.size else {
            return whole;
        };
        let blocks = size.div_ceil(block_bytes);
        let last = blocks
            .checked_sub(1)
            .and_then(|last| usize::try_from(last).ok());
        let has_last = last
            .and_then(|last| state.digests.get(last))
            .is_some_and(Option::is_some);
        // The last block is shorter.
        whole
            - if has_last {
                blocks * block_bytes - size
            } else {
                0
            }
    }

    /// Checks where a block claims to be; its offset.
    pub fn place(&self, block: &Block) -> Result<u64, Error> {
        let block_bytes = u64::from(self.entry.block_bytes);
        let offset = block.index.checked_mul(block_bytes);
        let offset = offset
            .filter(|_| block.index < BLOCKS_MAX)
            .ok_or(Error::Protocol("a block lies too far"))?;
        let expected = match self.size {
            Some(size) if offset < size => (size - offset).min(block_bytes),
            Some(_) => return Err(Error::Protocol("a block lies beyond its file")),
            None => u64::from(block.len),
        };
        let is_only = self.size.is_some_and(|size| size <= block_bytes);
        if u64::from(block.len) != expected
            || block.len == 0
            || u64::from(block.len) > block_bytes
            || (self.size.is_some() && block.is_only != is_only)
            || block
                .packed
                .is_some_and(|packed| packed >= block.len || block.is_hole)
        {
            return Err(Error::Protocol("a block has the wrong size"));
        }
        Ok(offset)
    }

    /// Whether its bytes are worth storing.
    pub fn has_failed(&self) -> bool {
        lock(&self.state).failure.is_some()
    }

    /// It will not be; the first reason counts.
    pub fn fail(&self, error: &Error) {
        let mut state = lock(&self.state);
        if state.failure.is_none() {
            state.failure = Some(error.to_string());
        }
    }

    /// As `fail`, and everybody has been told.
    pub fn give_up(&self, reason: &str) {
        let mut state = lock(&self.state);
        state.failure.get_or_insert_with(|| reason.to_owned());
        state.is_concluded = true;
    }

    /// A piece is about to be written.
    pub fn piece_begun(&self, block: u64) {
        lock(&self.state).open.entry(block).or_default().pieces += 1;
    }

    pub fn piece_stored(&self, block: u64) {
        let mut state = lock(&self.state);
        if let Some(open) = state.open.get_mut(&block) {
            open.pieces = open.pieces.saturating_sub(1);
        }
        state.close(block);
    }

    /// All pieces of a block have arrived, with the hash that the sender has.
    pub fn block_matches(&self, block: u64, digest: Digest) {
        let mut state = lock(&self.state);
        state.open.entry(block).or_default().digest = Some(digest);
        state.close(block);
    }

    /// A block is none but zeros.
    pub fn leave_hole(&self, block: &Block, offset: u64) {
        if let Some(part) = &self.part
            && let Err(error) = part.punch(offset, u64::from(block.len))
        {
            self.fail(&error);
        }
    }

    /// A block differs from what was sent. Nothing of it is being written any more.
    pub fn block_differs(&self, block: u64) {
        let mut state = lock(&self.state);
        state.open.remove(&block);
        let tries = state.tries.entry(block).or_default();
        *tries += 1;
        let tries = *tries;
        if tries >= TRIES_MAX && state.failure.is_none() {
            let path = self.path.clone();
            state.failure = Some(Error::Damaged { path, block, tries }.to_string());
        }
    }

    /// The sender says what the whole is.
    pub fn ends(&self, size: u64, digest: Digest) -> Result<(), Error> {
        if self.size.is_some_and(|known| known != size)
            || blocks_of(size, self.entry.block_bytes) > BLOCKS_MAX
        {
            return Err(Error::Protocol("a file ends elsewhere"));
        }
        lock(&self.state).end = Some((size, digest));
        Ok(())
    }

    /// What became of it; each answer but the first is given once.
    pub fn verdict(&self) -> Verdict {
        let mut state = lock(&self.state);
        if state.is_concluded {
            return Verdict::Pending;
        }
        if let Some(reason) = state.failure.clone() {
            state.is_concluded = true;
            return Verdict::Failed(reason);
        }
        match state.end {
            Some((size, digest)) if state.count == blocks_of(size, self.entry.block_bytes) => {
                state.is_concluded = true;
                let blocks: Option<Vec<Digest>> = state.digests.iter().copied().collect();
                match blocks {
                    Some(blocks) if checksum::whole(self.entry.algorithm, &blocks) == digest => {
                        Verdict::Whole(size, digest)
                    }
                    _ => Verdict::Failed(Error::Differs(self.path.clone()).to_string()),
                }
            }
            _ => Verdict::Pending,
        }
    }

    /// Gives the whole file its name.
    pub fn finish(&self, size: u64) -> Result<(), Error> {
        match &self.part {
            Some(part) => part.finish(&self.entry, size),
            None => Ok(()),
        }
    }

    /// Notes what is on the disk, for the next try.
    pub fn checkpoint(&self) -> Result<(), Error> {
        let blocks = {
            let mut state = lock(&self.state);
            if state.is_concluded {
                return Ok(());
            }
            std::mem::take(&mut state.unnoted)
        };
        match &self.part {
            Some(part) if !blocks.is_empty() => part.checkpoint(&blocks),
            _ => Ok(()),
        }
    }

    /// The source is another one now: what is here is worth nothing.
    pub fn discard(&self) {
        if let Some(part) = &self.part {
            part.discard();
        }
    }
}

impl State {
    fn put(&mut self, index: u64, digest: Digest) -> bool {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        if self.digests.len() <= at {
            self.digests.resize(at + 1, None);
        }
        let was_there = self.digests[at].replace(digest).is_some();
        self.count += u64::from(!was_there);
        !was_there
    }

    fn close(&mut self, block: u64) {
        if let Some(OpenBlock {
            pieces: 0,
            digest: Some(digest),
        }) = self.open.get(&block)
        {
            let digest = *digest;
            self.open.remove(&block);
            self.put(block, digest);
            self.unnoted.push((block, digest));
        }
    }
}
