//! Wakes threads that sleep in the switch on something that no other descriptor would tell them: an
//! eventfd(2), made when an epoll instance gets its first socket, written only while a thread sleeps.
//!
//! The sleeper counts itself in, then looks whether there is something to do, then sleeps; the waker
//! publishes the work, then looks at the count. Both are sequentially consistent, so one of the two
//! sees the other.
//!
//! A thread with an engine inside runs that in the middle of its sleep, and may so wake itself: it looks once more before it
//! sleeps on, and nobody writes for it.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use client::Shared;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use client::PrivateFd;

thread_local! {
    /// The waker that the thread is counted in by, last.
    static COUNTED_IN_BY: Cell<*const Waker> = const { Cell::new(std::ptr::null()) };
}

/// An eventfd for any number of sleepers.
#[derive(Default)]
pub struct Waker {
    ring: Shared<PrivateFd>,
    sleepers: AtomicU32,
}

/// A thread that is about to sleep, or sleeps.
pub struct Sleeping<'a> {
    waker: &'a Waker,
    /// A handler of a signal may sleep in the middle of a sleep.
    around: *const Waker,
}

impl Waker {
    /// Counts the thread in; the eventfd belongs into its poll set.
    pub fn sleeping(&self) -> Result<(Sleeping<'_>, RawFd), Errno> {
        let fd = self.number()?;
        Ok((self.count_in(), fd))
    }

    /// Counts the thread in, which looks once more for something to do before it sleeps.
    pub fn count_in(&self) -> Sleeping<'_> {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Sleeping {
            waker: self,
            around: COUNTED_IN_BY.replace(self),
        }
    }

    /// Wakes whoever sleeps.
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        let itself = u32::from(std::ptr::eq(COUNTED_IN_BY.get(), self));
        if self.sleepers.load(Ordering::SeqCst) <= itself {
            return;
        }
        if let Some(ring) = self.ring.load().as_ref() {
            // Full means that it is readable already, and nothing else can fail.
            let _ = rustix::io::write(ring.as_fd(), &1_u64.to_ne_bytes());
        }
    }

    /// Takes the rings so far, so that the next sleep sleeps.
    pub fn silence(&self) {
        if let Some(ring) = self.ring.load().as_ref() {
            // Nothing to read: another sleeper was faster.
            let _ = rustix::io::read(ring.as_fd(), &mut [0_u8; 8]);
        }
    }

    /// In a forked child: the eventfd is the parent's, and its sleepers are not here.
    pub fn reset_in_child(&self) {
        self.sleepers.store(0, Ordering::Relaxed);
        self.ring.store(None);
    }

    /// The eventfd's number.
    pub fn number(&self) -> Result<RawFd, Errno> {
        if let Some(ring) = self.ring.load().as_ref() {
            return Ok(ring.as_raw_fd());
        }
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let made = Arc::new(PrivateFd::new(made));
        // Another thread may have been faster: then its eventfd serves both.
        self.ring
            .change(|ring| Some(Arc::clone(ring.unwrap_or(&made))));
        let ring = self.ring.load();
        Ok(ring.as_ref().unwrap_or(&made).as_raw_fd())
    }
}

impl Drop for Sleeping<'_> {
    fn drop(&mut self) {
        COUNTED_IN_BY.set(self.around);
        self.waker.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

    fn is_rung(waker: &Waker) -> bool {
        let ring = waker.ring.load();
        let mut fds = [PollFd::new(ring.as_deref().unwrap(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    }

    #[test]
    fn who_sleeps_alone_does_not_ring_for_itself_and_others_ring_for_it() {
        let waker = Waker::default();
        waker.number().unwrap();
        let sleeping = waker.count_in();
        waker.wake();
        assert!(!is_rung(&waker));
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake());
        });
        assert!(is_rung(&waker));
        waker.silence();
        drop(sleeping);
        waker.wake();
        assert!(!is_rung(&waker), "nobody sleeps");
    }

    #[test]
    fn who_sleeps_beside_another_rings_for_it() {
        let waker = Waker::default();
        waker.number().unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let sleeping = waker.count_in();
                while !is_rung(&waker) {
                    std::thread::yield_now();
                }
                drop(sleeping);
            });
            let sleeping = waker.count_in();
            let began = std::time::Instant::now();
            while !is_rung(&waker) && began.elapsed() < PATIENCE {
                waker.wake();
            }
            let was_rung = is_rung(&waker);
            // Whatever came of it, the other ends.
            std::thread::scope(|scope| scope.spawn(|| waker.wake()).join()).unwrap();
            other.join().unwrap();
            assert!(was_rung);
            drop(sleeping);
        });
    }

    #[test]
    fn a_sleep_in_the_middle_of_another_is_the_one_that_does_not_ring() {
        let (outer, inner) = (Waker::default(), Waker::default());
        outer.number().unwrap();
        let sleeping = outer.count_in();
        drop(inner.count_in());
        outer.wake();
        assert!(!is_rung(&outer), "it is the outer sleep again");
        drop(sleeping);
    }
}
