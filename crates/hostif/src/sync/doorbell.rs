//! Sleeping and ringing without a lost wake-up. See eventfd(2), epoll(7).
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

    /// Ringer, after a fence behind what it has published: whether the other side has said that it sleeps.
    #[must_use]
    pub fn is_announced(&self) -> bool {
        self.cells[0].load(Ordering::Relaxed) == 1
    }

    /// Ringer, in the place of one that was killed: that one may have taken the word and not rung. The other side is to be rung after
    /// this, whatever the word has said.
    pub fn take_up(&self) {
        self.cells[0].swap(0, Ordering::AcqRel);
        fence(Ordering::SeqCst);
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
pub use fd::{DoorbellPair, between, create, drain, drain_program, ring};

#[cfg(not(loom))]
mod fd {
    use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
    use rustix::event::{EventfdFlags, Timespec, eventfd};
    use rustix::fd::{BorrowedFd, OwnedFd};
    use rustix::io::Result;

    /// The two ends of a program's doorbell.
    pub struct DoorbellPair {
        /// For the engine, which rings.
        pub tx: OwnedFd,
        /// For the program, which sleeps.
        pub rx: OwnedFd,
    }

    /// Makes a program's doorbell: an eventfd that only the engine has, and an epoll set with it, edge-triggered, for the
    /// program. Nothing that a program does with the set makes a write to the eventfd wait. (The other way round one eventfd
    /// serves: the engine watches it edge-triggered and never reads it.)
    pub fn between() -> Result<DoorbellPair> {
        let tx = create()?;
        let rx = epoll::create(CreateFlags::CLOEXEC)?;
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(&rx, &tx, EventData::new_u64(0), edge)?;
        Ok(DoorbellPair { tx, rx })
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

    /// Takes the rings so far of a bell within a process, so that it can be polled again.
    pub fn drain(bell: BorrowedFd<'_>) {
        let _ = rustix::io::read(bell, &mut [0u8; 8]);
    }

    /// As [`drain`], of `rx`, the program's end of its doorbell.
    pub fn drain_program(rx: BorrowedFd<'_>) {
        let mut events = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }];
        let _ = epoll::wait(rx, &mut events[..], Some(&Timespec::default()));
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use rustix::event::{PollFd, PollFlags, poll};
        use rustix::fd::AsFd as _;

        fn is_rung(bell: &DoorbellPair) -> bool {
            let mut watched = [PollFd::new(&bell.rx, PollFlags::IN)];
            poll(&mut watched, Some(&Timespec::default())) == Ok(1)
        }

        #[test]
        fn every_ring_is_heard_until_it_is_drained() {
            let bell = between().unwrap();
            assert!(!is_rung(&bell));
            for _ in 0..1_000 {
                ring(bell.tx.as_fd());
                ring(bell.tx.as_fd());
                assert!(is_rung(&bell) && is_rung(&bell));
                drain_program(bell.rx.as_fd());
                assert!(!is_rung(&bell));
            }
        }

        #[test]
        fn a_program_that_closes_its_rx_does_not_matter_to_the_ringer() {
            let DoorbellPair { tx, rx } = between().unwrap();
            drop(rx);
            ring(tx.as_fd());
        }
    }
}

#[cfg(all(test, loom))]
mod tests;
