//! Waiting for one socket, no longer than its timeout.

use core::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::time::{Duration, Instant};

use client::{Errno, Readiness, Socket, Woken};

use crate::error::from_errno;

/// How long calls on a socket may wait.
#[derive(Default)]
pub struct Timeout {
    /// 0: for ever; else one more than the µs.
    us: AtomicU64,
}

impl Timeout {
    /// `None`: for ever.
    pub fn set(&self, timeout: Option<Duration>) {
        let us = timeout.map_or(0, |timeout| {
            let us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
            us.saturating_add(1)
        });
        self.us.store(us, Ordering::Relaxed);
    }

    fn deadline(&self) -> Option<Instant> {
        let us = self.us.load(Ordering::Relaxed).checked_sub(1)?;
        Instant::now().checked_add(Duration::from_micros(us))
    }
}

/// Sleeps until `ready`. ETIMEDOUT; EINTR: a signal handler ran.
pub fn until(
    socket: &dyn Socket,
    timeout: &Timeout,
    ready: &mut dyn FnMut() -> bool,
) -> Result<(), Errno> {
    let deadline = timeout.deadline();
    let woken = socket
        .core()
        .session()
        .wait(&[socket], &mut [], None, deadline, ready)?;
    match woken {
        Woken::TimedOut => Err(Errno::TIMEDOUT),
        Woken::Ready | Woken::Kernel => Ok(()),
    }
}

/// Repeats a call that does not wait until it has done something, sleeping in between for one of `wanted`.
pub fn repeat<T>(
    socket: &dyn Socket,
    timeout: &Timeout,
    wanted: Readiness,
    mut call: impl FnMut() -> Result<T, Errno>,
) -> io::Result<T> {
    let wanted = wanted | Readiness::ERR | Readiness::HUP;
    loop {
        match call() {
            Err(Errno::AGAIN) => {}
            result => return result.map_err(from_errno),
        }
        until(socket, timeout, &mut || {
            socket.readiness().intersects(wanted)
        })
        .map_err(from_errno)?;
    }
}
