//! A lock word in shared memory that survives its holder's death. See futex(2).
//!
//! The word is the session number of the holder, or 0; its top bit says that somebody waits, the next one that the holder only
//! copies. When a
//! session dies the engine calls `release_dead`. A waiter never trusts a wake-up to come: it looks again
//! every few milliseconds and asks its caller whether waiting still makes sense. Processes that share
//! a socket can spoil this lock for each other and for nobody else.
//!
//! A holder that only copies says so, and is not waited for long: its process may have been stopped (SIGSTOP). Whoever takes
//! the lock over does what it would have done, and it finds out when it goes on: it publishes by
//! comparing, and begins anew where somebody else was there.

#[cfg(not(loom))]
use rustix::thread::futex::{self, Flags, Timespec};

use crate::sync::{AtomicU32, Ordering};

const WAITERS: u32 = 1 << 31;
const COPIES: u32 = 1 << 30;
/// The number of a session, in the word.
const SESSION: u32 = COPIES - 1;
/// Session numbers are below this.
pub const MAX_SESSION: u32 = SESSION;
/// Waits of [`RECHECK`] after which the lock of one who copies is taken over. Copies take microseconds; one whose thread waits for
/// a processor for longer loses nothing but its copy.
const WAITS: u32 = if cfg!(loom) { 1 } else { 4 };
#[cfg(not(loom))]
const RECHECK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};
const SPINS: u32 = if cfg!(loom) { 1 } else { 64 };

/// How a sleep ended.
#[derive(PartialEq, Eq)]
#[cfg_attr(loom, allow(dead_code))]
enum Slept {
    /// By a wake-up, or at once because the word has changed.
    Woken,
    TimedOut,
}

/// A view of a lock word.
#[derive(Clone, Copy)]
pub struct RegionLock<'a> {
    word: &'a AtomicU32,
}

impl<'a> RegionLock<'a> {
    pub(crate) fn new(word: &'a AtomicU32) -> RegionLock<'a> {
        RegionLock { word }
    }

    /// Takes the lock for `session` if it is free.
    #[must_use]
    pub fn try_lock(&self, session: u32) -> bool {
        self.word
            .compare_exchange(0, session, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the lock for `session`, waiting while `keep_waiting` says so (asked every few
    /// milliseconds); false when it did not.
    #[must_use]
    pub fn lock(&self, session: u32, keep_waiting: &mut dyn FnMut() -> bool) -> bool {
        for _ in 0..SPINS {
            if self.try_lock(session) {
                return true;
            }
            core::hint::spin_loop();
        }
        self.wait(session, session, keep_waiting)
    }

    /// As `lock`, for who only copies and publishes by comparing: others may take the lock over, and it takes it over from
    /// another session's holder that does the same and does not go on.
    #[must_use]
    pub fn lock_to_copy(&self, session: u32, keep_waiting: &mut dyn FnMut() -> bool) -> bool {
        let wanted = session | COPIES;
        for _ in 0..SPINS {
            let (set, get) = (Ordering::Acquire, Ordering::Relaxed);
            if self.word.compare_exchange(0, wanted, set, get).is_ok() {
                return true;
            }
            core::hint::spin_loop();
        }
        self.wait(session, wanted, keep_waiting)
    }

    fn wait(&self, session: u32, wanted: u32, keep_waiting: &mut dyn FnMut() -> bool) -> bool {
        let (mut holder, mut waits) = (0, 0);
        loop {
            let current = self.word.load(Ordering::Relaxed);
            if current & !WAITERS != holder {
                (holder, waits) = (current & !WAITERS, 0);
            }
            let both_copy = holder & wanted & COPIES != 0 && holder & SESSION != session;
            if holder == 0 || both_copy && waits >= WAITS {
                // Others may wait as well, so the mark stays: unlocking wakes one too many at worst.
                let taken = wanted | WAITERS;
                if self
                    .word
                    .compare_exchange(current, taken, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    return true;
                }
                continue;
            }
            let marked = current | WAITERS;
            if current != marked
                && self
                    .word
                    .compare_exchange(current, marked, Ordering::Relaxed, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            if self.sleep(marked) == Slept::TimedOut {
                waits += 1;
                if !keep_waiting() {
                    return false;
                }
            }
        }
    }

    #[cfg(not(loom))]
    fn sleep(&self, value: u32) -> Slept {
        let waited = futex::wait(self.word, Flags::empty(), value, Some(&RECHECK));
        if waited == Err(rustix::io::Errno::TIMEDOUT) {
            Slept::TimedOut
        } else {
            Slept::Woken
        }
    }

    #[cfg(not(loom))]
    fn wake(&self) {
        let _ = futex::wake(self.word, Flags::empty(), 1);
    }

    /// In a model nobody is ever woken: each sleep ends by its time, in any moment.
    #[cfg(loom)]
    fn sleep(&self, _: u32) -> Slept {
        loom::thread::yield_now();
        Slept::TimedOut
    }

    #[cfg(loom)]
    fn wake(&self) {
        crate::sync::mortal::step();
    }

    /// Whether `session` holds the lock.
    #[must_use]
    pub fn is_held_by(&self, session: u32) -> bool {
        self.word.load(Ordering::Acquire) & SESSION == session
    }

    /// Gives the lock back. Does nothing if `session` does not hold it (any more).
    #[inline(always)]
    pub fn unlock(&self, session: u32) {
        let (set, get) = (Ordering::Release, Ordering::Relaxed);
        // Nearly always nobody waits, and nobody has taken it over.
        if self.word.compare_exchange(session, 0, set, get).is_err() {
            self.release_dead(session);
        }
    }

    /// Engine: frees the lock if the dead `session` held it, and says whether it did. Never waits.
    pub fn release_dead(&self, session: u32) -> bool {
        let mut current = self.word.load(Ordering::Relaxed);
        while current & SESSION == session {
            match self
                .word
                .compare_exchange_weak(current, 0, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => {
                    if current & WAITERS != 0 {
                        self.wake();
                    }
                    return true;
                }
                Err(changed) => current = changed,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
