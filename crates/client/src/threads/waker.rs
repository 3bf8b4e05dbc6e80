//! Wakes one sleeping thread: an eventfd(2) in its poll set, written only while it sleeps.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;

use rustix::fd::{AsFd, AsRawFd, RawFd};
use rustix::io::Errno;

use crate::private::PrivateFd;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const SIGNALLED: u32 = 2;

/// One thread's bell. Taken from a pool for the length of a wait.
pub struct Waker {
    /// None where the process may have no more descriptors: its thread looks again and again.
    bell: Option<PrivateFd>,
    state: AtomicU32,
    /// Set when the thread has to poll the session's doorbell from now on; see `wait_leaders`.
    promoted: AtomicBool,
    /// Its number has been closed in a forked child.
    leaked: AtomicBool,
}

impl Waker {
    /// Makes a bell.
    pub fn new() -> Result<Arc<Waker>, Errno> {
        let bell = PrivateFd::new(hostif::sync::doorbell::create()?);
        Ok(Waker::with(Some(bell)))
    }

    /// A waker without an eventfd.
    pub fn silent() -> Arc<Waker> {
        Waker::with(None)
    }

    fn with(bell: Option<PrivateFd>) -> Arc<Waker> {
        Arc::new(Waker {
            bell,
            state: AtomicU32::new(AWAKE),
            promoted: AtomicBool::new(false),
            leaked: AtomicBool::new(false),
        })
    }

    /// Whether it has no eventfd.
    pub fn is_silent(&self) -> bool {
        self.bell.is_none()
    }

    /// Wakes the thread, or keeps it from falling asleep. What it shall find must be published before.
    pub fn wake(&self) {
        if self.state.swap(SIGNALLED, Ordering::AcqRel) == ASLEEP
            && let Some(bell) = &self.bell
        {
            hostif::sync::doorbell::ring(bell.as_fd());
        }
    }

    /// For the sleeper, after its sleep. Everything that was published before a `wake` is visible after this.
    pub fn on_awake(&self) {
        self.state.swap(AWAKE, Ordering::AcqRel);
    }

    /// Sleeper, when the bell is readable: takes the rings. Whoever wakes may still be about to ring, so a ring can
    /// be left for the next sleep, which it ends at once.
    pub fn silence(&self) {
        if let Some(bell) = &self.bell {
            hostif::sync::doorbell::drain(bell.as_fd());
        }
    }

    /// Sleeper, after it looked and found nothing: may it sleep? False if it was woken since.
    pub fn may_sleep(&self) -> bool {
        self.state
            .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The number to poll; poll(2) passes over one below 0.
    pub fn number(&self) -> RawFd {
        self.bell.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Tells a follower to poll the doorbell itself.
    pub fn promote(&self) {
        self.promoted.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether the thread was promoted since it last asked.
    pub fn take_promotion(&self) -> bool {
        self.promoted.swap(false, Ordering::AcqRel)
    }

    /// In a forked child: this bell is the parent's too. Once, though every session that it waited for says so.
    pub fn close_leaked(&self) {
        if !self.leaked.swap(true, Ordering::Relaxed)
            && let Some(bell) = &self.bell
        {
            bell.close_leaked();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_the_sleep_prevents_it() {
        let waker = Waker::new().unwrap();
        waker.wake();
        assert!(!waker.may_sleep());
        waker.on_awake();
        assert!(waker.may_sleep());
        waker.wake();
        let mut fds = [libc::pollfd {
            fd: waker.number(),
            events: libc::POLLIN,
            revents: 0,
        }];
        assert_eq!(
            crate::sys::ppoll(&mut fds, Some(std::time::Duration::ZERO), None),
            Ok(1)
        );
        waker.on_awake();
        waker.silence();
        assert_eq!(
            crate::sys::ppoll(&mut fds, Some(std::time::Duration::ZERO), None),
            Ok(0)
        );
    }
}
