//! An engine inside this process, which no core of its own runs: the threads that wait turn its crank.
//!
//! Whoever starts such an engine registers it here. Then a thread that waits spins by running the engine,
//! sleeps on the engine's device, and whoever has left a note runs the engine instead of ringing it. Signals
//! are held back meanwhile: a handler that wanted a turn while its own thread is in the middle of one would
//! wait for ever, and one that jumped out of it would leave the engine half done. They are delivered by
//! the sleep that follows. What a turn does, and who turns when nobody waits, is the engine's affair.

use core::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fd::RawFd;

use crate::sys::{self, Slot};

/// The engine, as the threads of the program see it.
pub trait Crank: Send + Sync {
    /// Runs the engine once, unless another thread is at it.
    fn turn(&self);
    /// A note was left: runs the engine, or knows that another thread will. False: the engine has ended.
    fn prompt(&self) -> bool;
    /// A thread is about to sleep.
    fn watch(&self) -> Watch;
    /// It no longer sleeps.
    fn unwatch(&self);
}

/// What a thread that is about to sleep has to do for the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// There is something to do: turn, and do not sleep.
    Turn,
    /// Sleep until this descriptor is readable, or for so long, then turn.
    Device(RawFd, Duration),
    /// The engine has ended.
    Nothing,
}

struct Registered(&'static dyn Crank);

static CRANK: Slot<Registered> = Slot::empty();

/// Registers the engine of this process.
pub fn set(crank: &'static dyn Crank) {
    CRANK.set(Some(Box::leak(Box::new(Registered(crank)))));
}

/// In a forked child: the engine is the parent's.
pub fn clear() {
    CRANK.set(None);
}

/// The engine of this process, if it has one.
pub(crate) fn current() -> Option<&'static dyn Crank> {
    CRANK.current().map(|registered| registered.0)
}

/// Holds the thread's signals back while it lives.
pub struct Quiet {
    mask: u64,
    broken: u64,
}

impl Quiet {
    /// From now on.
    #[must_use]
    pub fn begin() -> Quiet {
        Quiet {
            mask: sys::block_signals(),
            broken: hostif::doorbell::broken(),
        }
    }

    /// Whether a signal waits that the program wants to hear of.
    fn is_disturbed(&self) -> bool {
        sys::pending_signals() & !self.mask != 0
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // The engine rang a program that was gone: the program around it shall not hear of that.
        if hostif::doorbell::broken() != self.broken {
            sys::take_broken_pipe();
        }
        sys::restore_signals(self.mask);
    }
}

/// One turn.
pub(crate) fn turn(crank: &dyn Crank) {
    let _quiet = Quiet::begin();
    crank.turn();
}

/// A note was left. False: it is left for an engine in another process.
pub(crate) fn prompt() -> bool {
    let Some(crank) = current() else { return false };
    let _quiet = Quiet::begin();
    crank.prompt()
}

/// A thread is about to sleep.
pub(crate) fn watch(crank: &dyn Crank) -> Watch {
    let _quiet = Quiet::begin();
    crank.watch()
}

/// Spins by turning until `is_over` or the budget is spent. True: it is over.
pub(crate) fn spin(crank: &dyn Crank, budget: Budget, is_over: &mut dyn FnMut() -> bool) -> bool {
    let Some(limit) = budget.limit() else {
        return false;
    };
    let quiet = Quiet::begin();
    let start = Instant::now();
    let mut turns = 0_u32;
    let found = loop {
        crank.turn();
        if is_over() {
            break true;
        }
        turns = turns.wrapping_add(1);
        let look = turns.is_multiple_of(TURNS_PER_LOOK);
        if start.elapsed() >= limit || look && quiet.is_disturbed() {
            break false;
        }
        core::hint::spin_loop();
    };
    drop(quiet);
    budget.on_spun(found);
    found
}

/// Turns between two looks at pending signals: some microseconds.
const TURNS_PER_LOOK: u32 = 16;

/// How long a waiting thread may spin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// So long, always.
    Fixed(Duration),
    /// As long as it pays.
    Auto,
}

/// The longest that spinning can pay for: what a sleep and a wake-up cost, with a processor that leaves idle.
const AUTO: Duration = Duration::from_micros(50);
/// Spins in vain, one after the other, after which spinning pauses.
const PATIENCE: u32 = 8;
/// While it pauses, one wait in so many tries again.
const RETRY: u32 = 16;

/// Spins in vain since the last that found something, of all threads.
static IN_VAIN: AtomicU32 = AtomicU32::new(0);

impl Budget {
    fn limit(self) -> Option<Duration> {
        match self {
            Budget::Fixed(limit) => (!limit.is_zero()).then_some(limit),
            Budget::Auto => {
                let in_vain = IN_VAIN.load(Ordering::Relaxed);
                if in_vain >= PATIENCE && !in_vain.is_multiple_of(RETRY) {
                    IN_VAIN.store(in_vain.wrapping_add(1), Ordering::Relaxed);
                    return None;
                }
                Some(AUTO)
            }
        }
    }

    fn on_spun(self, found: bool) {
        if self != Budget::Auto {
            return;
        }
        if found {
            IN_VAIN.store(0, Ordering::Relaxed);
        } else {
            IN_VAIN.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_pauses_after_it_was_in_vain_and_is_tried_again_now_and_then() {
        let tried = |waits: u32| {
            let spins = (0..waits).filter(|_| {
                let spins = Budget::Auto.limit().is_some();
                if spins {
                    Budget::Auto.on_spun(false);
                }
                spins
            });
            spins.count()
        };
        Budget::Auto.on_spun(true);
        assert_eq!(tried(PATIENCE), 8);
        assert_eq!(tried(10 * RETRY), 10);
        Budget::Auto.on_spun(true);
        assert_eq!(tried(1), 1);
    }

    #[test]
    fn signals_are_held_back_during_a_turn_and_given_back_after_it() {
        let before = sys::block_signals();
        sys::restore_signals(before);
        {
            let _quiet = Quiet::begin();
            let during = sys::block_signals();
            // SIGUSR1 is 10; 32 and 33 are glibc's own and never blocked.
            assert_ne!(during & (1 << 9), 0);
            assert_eq!(during & (0b11 << 31), before & (0b11 << 31));
        }
        let after = sys::block_signals();
        sys::restore_signals(after);
        assert_eq!(before, after);
    }
}
