//! How many calls took bytes from a socket and gave it some, by the word of its programs: for reports, nothing is decided by it.

use core::sync::atomic::{AtomicU64, Ordering};

use super::SocketHeader;

/// Calls that moved bytes of a socket since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// That took some.
    pub reads: u64,
    /// That gave some.
    pub writes: u64,
}

impl Calls {
    /// Both together; what a program makes of its own figures overflows nothing.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            reads: self.reads.saturating_add(other.reads),
            writes: self.writes.saturating_add(other.writes),
        }
    }
}

/// Only the holder of a lock counts, so there is no other writer.
fn count(word: &AtomicU64) {
    word.store(
        word.load(Ordering::Relaxed).wrapping_add(1),
        Ordering::Relaxed,
    );
}

impl SocketHeader<'_> {
    pub(super) fn reset_calls(&self) {
        self.raw.reads.store(0, Ordering::Relaxed);
        self.raw.writes.store(0, Ordering::Relaxed);
    }

    /// Holder of the receive lock: a call has taken bytes.
    pub fn program_count_read(&self) {
        count(&self.raw.reads);
    }

    /// Holder of the send lock: a call has given bytes.
    pub fn program_count_write(&self) {
        count(&self.raw.writes);
    }

    /// What was counted.
    #[must_use]
    pub fn calls(&self) -> Calls {
        Calls {
            reads: self.raw.reads.load(Ordering::Relaxed),
            writes: self.raw.writes.load(Ordering::Relaxed),
        }
    }
}
