//! What can be seen of a session: while it runs, and at its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What somebody who waits for a transfer may look at and ask for.
#[derive(Debug, Default)]
pub struct Watch {
    /// Bytes of files that are through: sent, or received and checked.
    pub bytes: AtomicU64,
    /// Those that travelled packed, and as how many: see [`crate::SenderConfig::pack_level`].
    pub packed_bytes: AtomicU64,
    /// See there.
    pub frame_bytes: AtomicU64,
    /// Bytes that an earlier try had brought already.
    pub kept_bytes: AtomicU64,
    /// Bytes that the sender has read from its disk; a receiver does not know.
    pub read_bytes: AtomicU64,
    /// Bytes that the receiver has written, and written again where they had arrived damaged; a sender hears of it each
    /// second. Holes are none.
    pub stored_bytes: AtomicU64,
    /// Bytes to send, as far as known.
    pub total_bytes: AtomicU64,
    /// Files that are whole.
    pub files: AtomicU64,
    /// Blocks that had to be sent again.
    pub again: AtomicU64,
    /// Microseconds that went into a probe, before the transfer.
    pub probe_us: AtomicU64,
    /// Set it to end the transfer; what is on the disk stays there for the next try.
    pub stop: Arc<AtomicBool>,
}

impl Watch {
    /// Adds to a counter.
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts bytes that travelled as a frame of so many.
    pub(crate) fn count_packed(&self, len: u32, frame_bytes: Option<u32>) {
        if let Some(frame_bytes) = frame_bytes {
            Self::add(&self.packed_bytes, u64::from(len));
            Self::add(&self.frame_bytes, u64::from(frame_bytes));
        }
    }

    /// Whether somebody wants an end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What a session came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Files that are whole at the receiver.
    pub files: u64,
    /// Files that are not, and why.
    pub failed: Vec<(std::path::PathBuf, String)>,
    /// More failed than are listed.
    pub failed_unlisted: u64,
    /// What was left out on purpose, and why.
    pub skipped: Vec<(std::path::PathBuf, &'static str)>,
    /// Hash of the last file that became whole, as `b3sum` prints it.
    pub last_digest: Option<String>,
    /// How bytes left the sender.
    pub method: Option<crate::source::Method>,
    /// How they came to the receiver's disk.
    pub storage: Option<crate::store::Storage>,
    /// What else the user should know, as that a method could not be had.
    pub notes: Vec<String>,
    /// Where the time went at either end.
    pub totals: crate::meter::Totals,
}

impl Outcome {
    /// Failures that are listed one by one.
    const LISTED_MAX: usize = 100;

    /// Notes something once.
    pub(crate) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Notes a file that will not be.
    pub(crate) fn fail(&mut self, path: std::path::PathBuf, reason: String) {
        if self.failed.len() < Self::LISTED_MAX {
            self.failed.push((path, reason));
        } else {
            self.failed_unlisted += 1;
        }
    }
}
