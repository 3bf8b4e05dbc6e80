//! Waiting for the poll lock, by those who cannot go on without it.

use core::sync::atomic::Ordering;

use rustix::event::Timespec;

use super::Inline;
use crate::process::core_loop::CoreLoop;
use crate::start_error::StartError;

/// Whoever needs the poll lock tries as often as that, some microseconds, which is how long a poll takes, before it gives its processor
/// away: to others that compute, for as long as they may.
const TRIES_PER_YIELD: u32 = 256;
/// After so many tries, some tens of microseconds, whoever waits for the poll lock naps between them: a poll of thousands of connections takes
/// milliseconds, and the processor is wanted by who polls or by its peers.
const TRIES_AWAKE: u32 = 4 * TRIES_PER_YIELD;
const NAP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000,
};

impl Inline {
    /// As `try_run`, waiting for the poll lock.
    pub(super) fn run_surely<T>(
        &self,
        work: impl FnOnce(&mut CoreLoop) -> Result<T, StartError>,
    ) -> Option<T> {
        if self.polls.try_take_for_work() || self.has_waited() {
            return self.run_held(work);
        }
        None
    }

    /// Waits until it has the poll lock. False: the engine has ended.
    #[cold]
    fn has_waited(&self) -> bool {
        let _waiting = self.polls.wait();
        let mut tries = 0_u32;
        while !self.ended.load(Ordering::Acquire) {
            if self.polls.try_take_for_work() {
                return true;
            }
            tries = tries.wrapping_add(1);
            if !tries.is_multiple_of(TRIES_PER_YIELD) {
                core::hint::spin_loop();
            } else if tries < TRIES_AWAKE {
                rustix::thread::sched_yield();
            } else {
                // Ended early by a signal it only asks sooner.
                let _ = rustix::thread::nanosleep(&NAP);
            }
        }
        false
    }
}
