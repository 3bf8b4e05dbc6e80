//! Sleeping and ringing without a lost wake-up. See pipe(7), eventfd(2).
//!
//! Sleeper: announce (word = 1, fence), look at the rings once more, sleep. Ringer: push, fence, and if
//! the word is 1 and it wins the swap to 0, write to the bell. Of the two fences one comes first, so
//! either the sleeper sees the descriptor or the ringer sees the word: the tests model it with loom.
//!
//! In a program several threads may sleep on one word; `Sleepers` counts them, and whoever leaves
//! while others still sleep announces again for them. What to poll and when is not decided here.

use crate::cursor::Cells;
use crate::sync::{AtomicU64, Ordering, fence};

/// One side's published "I sleep".
#[derive(Clone)]
pub struct SleepWord {
    cells: Cells,
}

impl SleepWord {
    /// The word is the first of `cells`.
    #[must_use]
    pub fn new(cells: Cells) -> SleepWord {
        assert!(!cells.is_empty(), "invariant: a sleep word is a word");
        SleepWord { cells }
    }

    /// Sleeper: say that this side is about to sleep. Look at all rings after this and before sleeping.
    pub fn announce(&self) {
        // A swap, as all changes of the word are, so that they follow each other in one order (loom does
        // not know that a store cannot come between the halves of another thread's swap).
        self.cells[0].swap(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Sleeper: awake again, do not ring. Only for a side with a single sleeper; see [`Sleepers`].
    pub fn withdraw(&self) {
        self.cells[0].swap(0, Ordering::AcqRel);
    }

    /// Ringer, after pushing: whether the other side has to be rung (true for one ringer only).
    #[must_use]
    pub fn must_ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.cells[0].load(Ordering::Relaxed) == 1 && self.cells[0].swap(0, Ordering::AcqRel) == 1
    }
}

/// How many threads of this process sleep on its word.
pub struct Sleepers {
    count: AtomicU64,
}

impl Default for Sleepers {
    fn default() -> Sleepers {
        Sleepers {
            count: AtomicU64::new(0),
        }
    }
}

impl Sleepers {
    /// One more is about to sleep. Look at all rings after this and before sleeping.
    pub fn enter(&self, word: &SleepWord) {
        self.count.fetch_add(1, Ordering::SeqCst);
        word.announce();
    }

    /// One has left its sleep. True: others still sleep, their announcement is renewed, and the caller
    /// has to look at the rings once more on their behalf.
    #[must_use]
    pub fn leave(&self, word: &SleepWord) -> bool {
        if self.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            word.withdraw();
            // Someone may have entered between the count and the store above, which then undid its
            // announcement.
            fence(Ordering::SeqCst);
            if self.count.load(Ordering::SeqCst) == 0 {
                return false;
            }
        }
        word.announce();
        true
    }
}

#[cfg(not(loom))]
pub use fd::{Bell, between, create, drain, ring, ring_program};

#[cfg(not(loom))]
mod fd {
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fd::{BorrowedFd, OwnedFd};
    use rustix::io::Result;
    use rustix::pipe::{PipeFlags, pipe_with};

    /// Rings taken at once; more are taken the next time.
    const DRAINED_BYTES: usize = 512;

    /// The two ends of a program's doorbell.
    pub struct Bell {
        /// For the engine, which rings.
        pub rope: OwnedFd,
        /// For the program, which sleeps.
        pub ear: OwnedFd,
    }

    /// Makes a program's doorbell: a pipe. Unlike the one open file of an eventfd, each end has flags of
    /// its own, so that the program cannot make the engine wait. (The other way round an eventfd serves:
    /// the engine watches it edge-triggered and never reads it, and ringing a dead engine raises no SIGPIPE.)
    pub fn between() -> Result<Bell> {
        let (ear, rope) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Bell { rope, ear })
    }

    /// Makes an engine's doorbell, or one within a process: a non-blocking, close-on-exec eventfd.
    pub fn create() -> Result<OwnedFd> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
    }

    /// Rings. A bell that is full has been rung already, and a broken one belongs to a side that is gone:
    /// neither is the ringer's concern.
    pub fn ring(bell: BorrowedFd<'_>) {
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }

    /// As `ring`, for an engine: the bell is a pipe, and if the program is gone, so is its other end.
    pub fn ring_program(bell: BorrowedFd<'_>) {
        crate::home::shielded(&mut || ring(bell));
    }

    /// Takes the rings so far, so that the bell can be polled again.
    pub fn drain(bell: BorrowedFd<'_>) {
        let _ = rustix::io::read(bell, &mut [0u8; DRAINED_BYTES]);
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use rustix::fd::AsFd as _;
        use rustix::io::Errno;

        #[test]
        fn a_program_that_takes_non_blocking_away_cannot_make_the_engine_wait() {
            let bell = between().unwrap();
            let programs = rustix::io::dup(&bell.ear).unwrap();
            rustix::io::ioctl_fionbio(&programs, false).unwrap();
            for _ in 0..20_000 {
                ring(bell.rope.as_fd());
            }
            assert_eq!(rustix::io::write(&bell.rope, &[0; 8]), Err(Errno::AGAIN));
        }
    }
}

#[cfg(all(test, loom))]
mod tests;
