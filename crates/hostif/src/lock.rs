//! A lock word in shared memory that survives its holder's death. See futex(2).
//!
//! The word is the session number of the holder, or 0; its top bit says that somebody waits. When a
//! session dies the engine calls `release_dead`. A waiter never trusts a wake-up to come: it looks again
//! every few milliseconds and asks its caller whether waiting still makes sense. Processes that share
//! a socket can spoil this lock for each other and for nobody else.

use core::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex::{self, Flags, Timespec};

const WAITERS: u32 = 1 << 31;
/// Session numbers are below this.
pub const MAX_SESSION: u32 = WAITERS - 1;
const RECHECK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};
const SPINS: u32 = 64;

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
        loop {
            let current = self.word.load(Ordering::Relaxed);
            if current & !WAITERS == 0 {
                // Others may wait as well, so the mark stays: unlocking wakes one too many at worst.
                let taken = session | WAITERS;
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
            let waited = futex::wait(self.word, Flags::empty(), marked, Some(&RECHECK));
            if waited == Err(rustix::io::Errno::TIMEDOUT) && !keep_waiting() {
                return false;
            }
        }
    }

    /// Whether `session` holds the lock.
    #[must_use]
    pub fn is_held_by(&self, session: u32) -> bool {
        self.word.load(Ordering::Acquire) & !WAITERS == session
    }

    /// Gives the lock back. Does nothing if `session` does not hold it (any more).
    pub fn unlock(&self, session: u32) {
        self.release_dead(session);
    }

    /// Engine: frees the lock if the dead `session` held it, and says whether it did. Never waits.
    pub fn release_dead(&self, session: u32) -> bool {
        let mut current = self.word.load(Ordering::Relaxed);
        while current & !WAITERS == session {
            match self
                .word
                .compare_exchange_weak(current, 0, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => {
                    if current & WAITERS != 0 {
                        let _ = futex::wake(self.word, Flags::empty(), 1);
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
mod tests {
    use core::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn threads_that_contend_exclude_each_other() {
        let word = AtomicU32::new(0);
        let (mut inside, counter) = (0u32, AtomicU32::new(0));
        let inside_pointer = &AtomicU32::new(0);
        std::thread::scope(|scope| {
            for session in 1..=3 {
                let (word, counter) = (&word, &counter);
                scope.spawn(move || {
                    let lock = RegionLock::new(word);
                    for _ in 0..5000 {
                        assert!(lock.lock(session, &mut || true));
                        assert_eq!(inside_pointer.fetch_add(1, Ordering::Relaxed), 0);
                        counter.fetch_add(1, Ordering::Relaxed);
                        inside_pointer.fetch_sub(1, Ordering::Relaxed);
                        lock.unlock(session);
                    }
                });
            }
        });
        inside += counter.load(Ordering::Relaxed);
        assert_eq!(inside, 15000);
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_death_of_the_holder_frees_its_waiter() {
        let word = AtomicU32::new(0);
        assert!(RegionLock::new(&word).try_lock(7));
        let (send, receive) = mpsc::channel();
        std::thread::scope(|scope| {
            let word = &word;
            scope.spawn(move || {
                let mut told = false;
                let taken = RegionLock::new(word).lock(8, &mut || {
                    if !told {
                        send.send(()).unwrap();
                        told = true;
                    }
                    true
                });
                assert!(taken);
            });
            receive.recv().unwrap();
            assert!(!RegionLock::new(word).release_dead(6));
            assert!(RegionLock::new(word).release_dead(7));
        });
        assert_eq!(word.load(Ordering::Relaxed) & !WAITERS, 8);
    }

    #[test]
    fn waiting_ends_when_the_caller_says_so() {
        let word = AtomicU32::new(9);
        let asked = AtomicBool::new(false);
        let taken = RegionLock::new(&word).lock(1, &mut || !asked.swap(true, Ordering::Relaxed));
        assert!(!taken);
        RegionLock::new(&word).unlock(1);
        assert_eq!(
            word.load(Ordering::Relaxed) & !WAITERS,
            9,
            "only the holder unlocks"
        );
    }
}
