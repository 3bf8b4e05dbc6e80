//! Sleeping in ppoll(2), with signals as the program has them.

use std::time::{Duration, Instant};

use rustix::fd::RawFd;
use rustix::io::Errno;

use crate::engines::inline_engine::DirectReceive;
use crate::sys;
use crate::threads::signal_deferral::{self, SignalMask};

/// A lost wake-up would be our bug; look again this often so that it costs latency and not a hang. Also
/// bounds how long an engine that died without closing its channel (stopped, say) goes unnoticed.
pub const RECHECK: Duration = Duration::from_secs(10);

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// The condition holds.
    Ready,
    /// A descriptor of the caller has news (`revents` is set).
    Kernel,
    /// The deadline has passed.
    TimedOut,
}

/// How a thread sleeps.
pub struct Sleep<'a> {
    /// Descriptors of the caller.
    pub kernel: &'a mut [libc::pollfd],
    /// Signal mask.
    pub mask: SignalMask<'a>,
    /// When to give up.
    pub deadline: Option<Instant>,
    /// Whether a signal's handler and a cancellation end it (`signal_deferral.rs`).
    pub is_interruptible: bool,
    /// Polls an engine inside this process with the thread's buffer passed.
    pub(crate) direct_receive: Option<&'a dyn DirectReceive>,
}

impl Sleep<'_> {
    /// One ppoll(2) on these descriptors, for so long at most.
    pub(crate) fn poll(&self, fds: &mut [libc::pollfd], timeout: Duration) -> Result<usize, Errno> {
        if self.is_interruptible {
            signal_deferral::sleep(fds, timeout, self.mask)
        } else {
            sys::ppoll(fds, Some(timeout), self.mask)
        }
    }
}

/// Sleeps until the descriptor has one of these events (poll(2)); EINTR where a handler of a signal waits.
pub fn wait_for_descriptor(fd: RawFd, events: i16) -> Result<(), Errno> {
    let entry = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    while signal_deferral::sleep(&mut [entry], RECHECK, None)? == 0 {}
    Ok(())
}

/// A wait in which no engine wakes the thread.
pub fn wait_for_kernel(
    sleep: &mut Sleep<'_>,
    longest: Duration,
    ready: &mut dyn FnMut() -> bool,
) -> Result<Woken, Errno> {
    loop {
        let left = sleep
            .deadline
            .map(|moment| moment.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(longest, |left| left.min(longest));
        let news = signal_deferral::sleep(sleep.kernel, timeout, sleep.mask)?;
        if news > 0 {
            return Ok(Woken::Kernel);
        }
        if ready() {
            return Ok(Woken::Ready);
        }
        if sleep
            .deadline
            .is_some_and(|moment| Instant::now() >= moment)
        {
            return Ok(Woken::TimedOut);
        }
    }
}
