//! Who polls an engine that several threads may poll: one at a time, and no note is left lying.
//!
//! A thread that has pushed a note requests a poll and tries to take the lock. If another thread has it, that thread
//! may have looked at the rings before the note was there; but on releasing it asks whether a poll was requested,
//! and then tries once more. Of the two fences (after the request, after the release) one comes first: either the
//! requesting thread finds the lock free, or the releasing one sees the request. The tests model it with loom.
//!
//! A thread that polls without pause has the lock nearly always. Whoever needs it for work that is no poll says that it waits, and
//! whoever releases the lock then leaves it free for a moment.

use crate::sync::{AtomicU64, Ordering, fence};

/// In `owed`: a poll was requested.
const REQUEST: u64 = 1;
/// In `owed`: one that waits.
const WAITER: u64 = 2;
/// How often whoever has released the lock looks whether one that waits has taken it: one to two microseconds.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 64 };

/// The right to poll the engine, whether another thread has requested a poll, and how many wait for the lock.
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
        self.owed.fetch_or(REQUEST, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Takes the lock for a poll, unless another thread has it. What was pushed before a `request` that this or an
    /// earlier poll answers is visible from here on.
    #[must_use]
    pub fn try_take(&self) -> bool {
        let taken = self.try_take_for_work();
        // A request that is not seen here is seen by `let_go`.
        if taken && self.is_requested() {
            self.owed.fetch_and(!REQUEST, Ordering::AcqRel);
        }
        taken
    }

    /// Takes the lock if no other thread has it, none has requested a poll and none waits: for work that answers no request. One that comes
    /// meanwhile is seen by `let_go`.
    #[must_use]
    pub fn try_take_unrequested(&self) -> bool {
        self.owed.load(Ordering::Relaxed) == 0 && self.try_take_for_work()
    }

    /// Takes the lock unless another thread has it, for work that is no poll: what was requested is left to `let_go`.
    #[must_use]
    pub fn try_take_for_work(&self) -> bool {
        self.taken
            .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Releases the lock. True: a poll was requested meanwhile, or somebody waits; the caller goes on with `leave_to_waiters`.
    #[must_use]
    pub fn let_go(&self) -> bool {
        self.taken.swap(0, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        self.owed.load(Ordering::Relaxed) != 0
    }

    /// After `let_go` has said so: leaves the lock free to those that wait, for a moment. True: a poll is requested, and the caller has to try to take the lock for it.
    #[must_use]
    pub fn leave_to_waiters(&self) -> bool {
        for _ in 0..LOOKS {
            let has_waiters = self.owed.load(Ordering::Relaxed) >= WAITER;
            if !has_waiters || self.taken.load(Ordering::Relaxed) != 0 {
                break;
            }
            core::hint::spin_loop();
        }
        self.is_requested()
    }

    /// The caller waits until it has taken the lock by `try_take_for_work`, or has given up.
    pub fn wait(&self) -> Waiting<'_> {
        self.owed.fetch_add(WAITER, Ordering::Relaxed);
        Waiting(self)
    }

    fn is_requested(&self) -> bool {
        self.owed.load(Ordering::Relaxed) & REQUEST != 0
    }
}

/// A thread that waits for the lock, until it is dropped.
pub struct Waiting<'a>(&'a PollLock);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.owed.fetch_sub(WAITER, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod tests;
