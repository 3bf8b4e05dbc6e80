//! The words of a *byte channel*: one direction of a connection between two programs of one host, with engines inside or on one
//! engine, whose bytes pass through memory that both map. Layout: `byte_channel/region.rs`; why:
//! docs/decisions/0039-bytes-between-neighbours.md and 0085-programs-of-one-engine.md.
//!
//! A byte channel is a ring of bytes with one filling and one emptying side. Each side keeps its own position elsewhere
//! (`header/byte_channels.rs`), where the other cannot reach, and only tells it here; what the other tells is read once
//! and checked. Positions count the byte channel's bytes, from 0.
//!
//! The sender may *open* a byte channel once the receiver has said that it looks there: it notes how much of the connection's
//! stream has gone, or will go, by segments before. It may *end* it at any byte: what follows goes by segments again.
//! So the receiver reads its window up to that position, then the byte channel, then the window.
//!
//! A side that sleeps on a channel says so by a word, which the side that acts takes back (one wake-up for each): the sleeper
//! writes it, fences and looks once more; the other writes its position, fences and looks at the word (Dekker).

#[cfg(not(loom))]
pub mod region;

use crate::cursor::Cells;
use crate::sync::{Ordering, fence};

/// Words of a byte channel; each group of sixteen is written by one side, or seldom.
pub const BYTE_CHANNEL_WORDS: usize = 64;
/// Bytes that a byte channel holds.
pub const BYTE_CHANNEL_BYTES: u32 = 256 * 1024;

// The sender's.
const HEAD: usize = 0;
/// Position of the stream at which the byte channel begins, plus one; 0: it is not open.
const ORIGIN: usize = 1;
const ENDED: usize = 2;
// The receiver's.
const TAIL: usize = 16;
// Each side's, seldom: the sender looks here each time.
const BYTES_WANTED: usize = 32;
const READER: usize = 33;
const ROOM_WANTED: usize = 48;

const READS: u64 = 1;
const GONE: u64 = 2;

/// A receiver that found less than this in a byte channel does not look whether the sender waits: one that does had more to
/// be read, and what it does not hear of is less than what a TCP keeps to itself (RFC 9293 §3.8.6.2.2).
const WORTHWHILE: u64 = 4096;

/// Whether anybody reads a byte channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Nobody yet.
    Nobody,
    /// The receiver looks here.
    Reads,
    /// The receiver has closed.
    Gone,
}

/// The other side has written a position that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other side of a byte channel wrote a position that cannot be")]
pub struct Nonsense;

/// A view of a byte channel's words.
#[derive(Clone)]
pub struct ByteChannel {
    words: Cells,
}

impl ByteChannel {
    /// Over [`BYTE_CHANNEL_WORDS`] words.
    pub(crate) fn new(words: Cells) -> ByteChannel {
        ByteChannel { words }
    }

    /// Makes it a new byte channel, which nobody else looks at yet. The first bytes shall be told of.
    pub fn reset(&self) {
        for word in self.words.iter() {
            word.store(0, Ordering::Relaxed);
        }
        self.words[BYTES_WANTED].store(1, Ordering::Release);
    }
}

/// For reports.
impl ByteChannel {
    /// Bytes that the sender has told of since the channel was new, as it says itself.
    #[must_use]
    pub fn told(&self) -> u64 {
        self.words[HEAD].load(Ordering::Relaxed)
    }
}

/// The sender's side.
impl ByteChannel {
    /// Whether anybody reads.
    #[must_use]
    pub fn reader(&self) -> Reader {
        match self.words[READER].load(Ordering::Acquire) {
            0 => Reader::Nobody,
            READS => Reader::Reads,
            _ => Reader::Gone,
        }
    }

    /// Begins to send here what follows position `origin` of the stream.
    pub fn open(&self, origin: u64) {
        self.words[ORIGIN].store(origin.wrapping_add(1), Ordering::Release);
    }

    /// What follows goes by segments. Before any of it is told of.
    pub fn end(&self) {
        self.words[ENDED].store(1, Ordering::Release);
    }

    /// Bytes before `written` that have not been consumed, of the byte channel's [`BYTE_CHANNEL_BYTES`].
    ///
    /// # Errors
    /// [`Nonsense`].
    pub fn used(&self, written: u64) -> Result<u64, Nonsense> {
        let used = written.wrapping_sub(self.words[TAIL].load(Ordering::Acquire));
        (used <= u64::from(BYTE_CHANNEL_BYTES))
            .then_some(used)
            .ok_or(Nonsense)
    }

    /// Tells of the bytes up to `written`. Whether the receiver waits, and is to be told by other means.
    #[must_use]
    pub fn publish(&self, written: u64) -> bool {
        self.words[HEAD].store(written, Ordering::Release);
        fence(Ordering::SeqCst);
        let word = &self.words[BYTES_WANTED];
        word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::AcqRel) != 0
    }

    /// Takes back what was told last, up to `written`: nobody reads it any more.
    pub fn withdraw(&self, written: u64) {
        self.words[HEAD].store(written, Ordering::Release);
    }

    /// The sender is about to sleep until no more than `used` bytes are used. Ask [`ByteChannel::used`] once more after this.
    pub fn want_capacity(&self, used: u64) {
        self.words[ROOM_WANTED].store(used.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

/// The receiver's side.
impl ByteChannel {
    /// Says that the receiver looks here.
    pub fn begin(&self) {
        let word = &self.words[READER];
        if word.load(Ordering::Relaxed) == 0 {
            // Several processes may hold the socket, and one of them may have closed it for all.
            let _ = word.compare_exchange(0, READS, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Nobody will read any more. What has come nevertheless is seen by [`ByteChannel::available`] after this, or the
    /// sender sees that nobody reads.
    pub fn leave(&self) {
        self.words[READER].store(GONE, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Position of the stream at which the byte channel begins, once it is open.
    #[must_use]
    pub fn origin(&self) -> Option<u64> {
        self.words[ORIGIN].load(Ordering::Acquire).checked_sub(1)
    }

    /// Whether no more comes here than is there; to be asked before [`ByteChannel::available`].
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.words[ENDED].load(Ordering::Acquire) != 0
    }

    /// Bytes behind `consumed` that can be read.
    ///
    /// # Errors
    /// [`Nonsense`].
    pub fn available(&self, consumed: u64) -> Result<u64, Nonsense> {
        let there = self.words[HEAD]
            .load(Ordering::Acquire)
            .wrapping_sub(consumed);
        (there <= u64::from(BYTE_CHANNEL_BYTES))
            .then_some(there)
            .ok_or(Nonsense)
    }

    /// Frees the bytes up to `consumed`; `available` were there before, and `left` are now. Whether the sender waits,
    /// and is to be told by other means.
    #[must_use]
    pub fn free(&self, consumed: u64, available: u64, left: u64) -> bool {
        self.words[TAIL].store(consumed, Ordering::Release);
        if available < WORTHWHILE {
            return false;
        }
        fence(Ordering::SeqCst);
        let word = &self.words[ROOM_WANTED];
        let wanted = word.load(Ordering::Relaxed);
        wanted > left && word.swap(0, Ordering::AcqRel) != 0
    }

    /// The receiver is about to sleep. Ask [`ByteChannel::available`] once more after this.
    pub fn want_bytes(&self) {
        let word = &self.words[BYTES_WANTED];
        // It says so most of the time, and the line is then in both sides' caches.
        if word.load(Ordering::Relaxed) == 0 {
            word.store(1, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
