//! Who polls an engine that several threads may poll: one at a time, and no note is left lying.
//!
//! A thread that has pushed a note requests a poll and tries to take the lock. If another thread has it, that thread
//! may have looked at the rings before the note was there; but on releasing it asks whether a poll was requested,
//! and then tries once more. Of the two fences (after the request, after the release) one comes first: either the
//! requesting thread finds the lock free, or the releasing one sees the request. The tests model it with loom.

use crate::sync::{AtomicU64, Ordering, fence};

/// The right to poll the engine, and whether another thread has requested a poll.
pub struct PollLock {
    taken: AtomicU64,
    owed: AtomicU64,
}

impl Default for PollLock {
    fn default() -> PollLock {
        PollLock {
            taken: AtomicU64::new(0),
            owed: AtomicU64::new(0),
        }
    }
}

impl PollLock {
    /// Requests a poll: something was pushed that the next one has to find.
    pub fn request(&self) {
        self.owed.swap(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Takes the lock unless another thread has it. What was pushed before a `request` that this or an
    /// earlier poll answers is visible from here on.
    #[must_use]
    pub fn try_take(&self) -> bool {
        let taken = self
            .taken
            .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        // A request that is not seen here is seen by `let_go`.
        if taken && self.owed.load(Ordering::Relaxed) != 0 {
            self.owed.swap(0, Ordering::AcqRel);
        }
        taken
    }

    /// Takes the lock if no other thread has it and none has requested a poll: for work that answers no request. One that comes
    /// meanwhile is seen by `let_go`.
    #[must_use]
    pub fn try_take_unrequested(&self) -> bool {
        self.owed.load(Ordering::Relaxed) == 0
            && self
                .taken
                .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Releases the lock. True: a poll was requested meanwhile, and the caller has to try to take the lock again.
    #[must_use]
    pub fn let_go(&self) -> bool {
        self.taken.swap(0, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        self.owed.load(Ordering::Relaxed) == 1
    }
}

#[cfg(all(test, loom))]
mod tests;
