//! One large file on its way: which blocks are still to be sent.

use std::sync::Mutex;

use crate::checksum::{self, Algorithm, Digest};
use crate::lock::lock;
use crate::protocol::{Block, Entry, blocks_of};
use crate::source::Source;

/// A file whose blocks are being sent.
#[derive(Debug)]
pub struct Job {
    /// What the receiver was told.
    pub entry: Entry,
    /// The open file.
    pub source: Source,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The first block that nobody has taken.
    next: u64,
    /// To be sent once more.
    again: Vec<u64>,
    digests: Vec<Option<Digest>>,
    missing: u64,
    is_given_up: bool,
}

/// What a thread that has sent a block is to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// Go on.
    Going,
    /// It was the last: the receiver is to be told the size and hash of the whole.
    Complete(Digest),
}

impl Job {
    /// Of a file of which nothing was sent.
    pub fn new(entry: Entry, source: Source) -> Self {
        let blocks = blocks_of(source.size(), entry.block_bytes);
        let state = State {
            next: 0,
            again: Vec::new(),
            digests: vec![None; usize::try_from(blocks).unwrap_or(0)],
            missing: blocks,
            is_given_up: false,
        };
        Self {
            entry,
            source,
            state: Mutex::new(state),
        }
    }

    fn algorithm(&self) -> Algorithm {
        self.entry.algorithm
    }

    /// Where a block begins.
    pub fn offset(&self, block: &Block) -> u64 {
        block.index * u64::from(self.entry.block_bytes)
    }

    /// The receiver has these from an earlier try; `None`: it claims what cannot be.
    pub fn keep(&self, first: u64, digests: &[Digest]) -> Option<u64> {
        let mut state = lock(&self.state);
        let start = usize::try_from(first).ok()?;
        let blocks = state
            .digests
            .get_mut(start..start.checked_add(digests.len())?)?;
        if blocks.iter().any(Option::is_some) {
            return None;
        }
        for (block, digest) in blocks.iter_mut().zip(digests) {
            *block = Some(*digest);
        }
        state.missing -= digests.len() as u64;
        // The last block is shorter.
        let until = |block: u64| {
            self.source
                .size()
                .min(block * u64::from(self.entry.block_bytes))
        };
        Some(until(first + digests.len() as u64) - until(first))
    }

    /// Complete without sending anything: all of it was there.
    pub fn progress(&self) -> Progress {
        self.complete(&lock(&self.state))
    }

    /// The next block for a thread that has none; `None`: all are taken.
    pub fn take(&self) -> Option<Block> {
        let mut state = lock(&self.state);
        if state.is_given_up {
            return None;
        }
        if let Some(index) = state.again.pop() {
            return Some(self.block(index));
        }
        let left = &state.digests[usize::try_from(state.next)
            .unwrap_or(usize::MAX)
            .min(state.digests.len())..];
        let skip = left.iter().position(Option::is_none)?;
        let index = state.next + skip as u64;
        state.next = index + 1;
        Some(self.block(index))
    }

    fn block(&self, index: u64) -> Block {
        let block_bytes = u64::from(self.entry.block_bytes);
        let offset = index * block_bytes;
        let len = (self.source.size() - offset).min(block_bytes);
        Block {
            file: self.entry.file,
            index,
            len: u32::try_from(len).expect("invariant: blocks are small"),
            is_only: self.source.size() <= block_bytes,
            is_hole: self.entry.is_sparse && self.source.is_hole(offset, len),
            packed: None,
        }
    }

    pub fn sent(&self, block: &Block, digest: Digest) -> Progress {
        let mut state = lock(&self.state);
        let at = usize::try_from(block.index).unwrap_or(usize::MAX);
        if state.digests[at].replace(digest).is_none() {
            state.missing -= 1;
        }
        self.complete(&state)
    }

    fn complete(&self, state: &State) -> Progress {
        if state.missing > 0 || !state.again.is_empty() || state.is_given_up {
            return Progress::Going;
        }
        let blocks: Vec<Digest> = state.digests.iter().filter_map(|digest| *digest).collect();
        Progress::Complete(checksum::whole(self.algorithm(), &blocks))
    }

    /// The receiver wants a block once more; `false`: there is no such block.
    pub fn send_again(&self, index: u64) -> bool {
        let mut state = lock(&self.state);
        let exists = index < state.digests.len() as u64 && state.again.len() < state.digests.len();
        if exists {
            state.again.push(index);
        }
        exists
    }

    /// Nothing more of it is to be sent.
    pub fn give_up(&self) {
        lock(&self.state).is_given_up = true;
    }
}
