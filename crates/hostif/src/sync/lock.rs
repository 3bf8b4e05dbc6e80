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

use core::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex::{self, Flags, Timespec};

const WAITERS: u32 = 1 << 31;
const COPIES: u32 = 1 << 30;
/// The number of a session, in the word.
const SESSION: u32 = COPIES - 1;
/// Session numbers are below this.
pub const MAX_SESSION: u32 = SESSION;
/// Waits of [`RECHECK`] after which the lock of one who copies is taken over. Copies take microseconds; one whose thread waits for
/// a processor for longer loses nothing but its copy.
const WAITS: u32 = 4;
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
            let waited = futex::wait(self.word, Flags::empty(), marked, Some(&RECHECK));
            if waited == Err(rustix::io::Errno::TIMEDOUT) {
                waits += 1;
                if !keep_waiting() {
                    return false;
                }
            }
        }
    }

    /// Whether `session` holds the lock.
    #[must_use]
    pub fn is_held_by(&self, session: u32) -> bool {
        self.word.load(Ordering::Acquire) & SESSION == session
    }

    /// Gives the lock back. Does nothing if `session` does not hold it (any more).
    pub fn unlock(&self, session: u32) {
        self.release_dead(session);
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
    fn a_holder_that_copies_and_does_not_go_on_is_not_waited_for() {
        let word = AtomicU32::new(0);
        let lock = RegionLock::new(&word);
        assert!(lock.lock_to_copy(7, &mut || true));
        assert!(lock.lock_to_copy(8, &mut || true));
        assert!(lock.is_held_by(8));
        lock.unlock(7);
        assert!(
            lock.is_held_by(8),
            "what was taken over is not given back by the other"
        );
        lock.unlock(8);
        assert!(lock.try_lock(7));
        let mut asked = 0;
        let taken = lock.lock_to_copy(8, &mut || {
            asked += 1;
            asked <= 2 * WAITS
        });
        assert!(!taken, "of one who does not copy it is not taken");
        lock.unlock(7);
        assert!(lock.lock_to_copy(7, &mut || true));
        assert!(!lock.lock(8, &mut || false), "nor by one who does not");
    }

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
