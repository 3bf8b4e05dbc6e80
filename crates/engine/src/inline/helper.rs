//! The helper thread: it answers the control channels, and polls where no thread of the program has for a while (see `mod.rs`).

use core::sync::atomic::{Ordering, fence};
use std::time::Duration;

use hostif::sync::doorbell;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::AsFd as _;
use rustix::io::Errno;

use super::{Inline, TICK_US};
use crate::process::core_loop::CoreLoop;

/// A thread that has just polled is likely to poll again: the helper looks by half as often as before, down
/// to the second of these.
pub(super) const JUST_US: u64 = 100;
const TICK_MAX_US: u64 = 8_000;
/// However busy the threads are, the helper attends to control channels and housekeeping itself at least this often.
const ATTEND_US: u64 = 250_000;

/// How the helper sleeps.
pub(super) enum Nap {
    /// A thread polls or watches the device; for so many microseconds.
    Tick(u64),
    /// Until something happens, for so many microseconds at most; on the device too?
    Park(u64, bool),
}

impl Inline {
    /// The helper thread. Returns when the engine has ended.
    ///
    /// # Errors
    /// A system call that cannot fail failed.
    pub fn help(&self) -> Result<(), Errno> {
        let (mut tick_us, mut attended_us) = (TICK_US, 0);
        let mut called = true;
        loop {
            let now_us = self.now_us();
            if self.batch.is_overdue(now_us) {
                self.polls.request();
                self.try_run(|core| self.poll_core(core, None));
            }
            let is_due = called || now_us.saturating_sub(attended_us) >= ATTEND_US;
            let nap = match self.busy_nap(now_us, tick_us).filter(|_| !is_due) {
                Some(nap) => nap,
                None => {
                    let looks = is_due || self.watching.load(Ordering::SeqCst) == 0;
                    if looks {
                        attended_us = now_us;
                    }
                    match self.prepare_nap(looks) {
                        Some(nap) => nap,
                        None => return Ok(()),
                    }
                }
            };
            let (timeout_us, on_device) = match nap {
                Nap::Tick(us) => (us, false),
                Nap::Park(longest_us, on_device) => (longest_us, on_device),
            };
            tick_us = timeout_us.clamp(TICK_US, TICK_MAX_US);
            let guard_us = self.batch.guard_us(self.now_us()).unwrap_or(u64::MAX);
            called = self.nap(timeout_us.min(guard_us), on_device)?;
            self.parked.store(false, Ordering::Relaxed);
        }
    }

    /// How long the helper may leave everything to the threads, judged by when one has polled last; `None`:
    /// not at all. The engine has not ended, else no thread would have polled.
    pub(super) fn busy_nap(&self, now_us: u64, tick_us: u64) -> Option<Nap> {
        let last_us = self.polled_us.load(Ordering::Relaxed);
        match now_us.saturating_sub(last_us) {
            _ if last_us == 0 => None,
            0..JUST_US => Some(Nap::Tick((2 * tick_us).min(TICK_MAX_US))),
            JUST_US..TICK_US if self.watching.load(Ordering::SeqCst) == 0 => {
                Some(Nap::Tick(TICK_US))
            }
            _ => None,
        }
    }

    /// Does what is to do and says how to sleep; `None`: the engine has ended. Unless it `looks`, a thread that watches the
    /// device does that: only timers, and notes of programs, are looked at.
    pub(super) fn prepare_nap(&self, mut looks: bool) -> Option<Nap> {
        loop {
            let look = |core: &mut CoreLoop| {
                let now = core.now();
                core.attend(now)?;
                self.batch.on_poll();
                core.poll(now)
            };
            let worked = looks && self.run_surely(look)?;
            looks = true;
            self.parked.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let longest_us = self.run_surely(|core| core.prepare_sleep(core.now()))?;
            let is_alone = self.watching.load(Ordering::SeqCst) == 0;
            // Threads that have just polled do what is left, unless they sleep by now.
            let may_leave = is_alone || longest_us > 0;
            let busy = self.busy_nap(self.now_us(), TICK_US / 2);
            if let Some(nap) = busy.filter(|_| may_leave) {
                self.parked.store(false, Ordering::Relaxed);
                return Some(nap);
            }
            if !worked && longest_us > 0 {
                return Some(Nap::Park(longest_us, is_alone));
            }
            self.parked.store(false, Ordering::Relaxed);
        }
    }

    /// Sleeps; true if something happened but a late kick, after which it is seen whether threads poll.
    fn nap(&self, timeout_us: u64, on_device: bool) -> Result<bool, Errno> {
        let timeout = Duration::from_micros(timeout_us);
        let timeout = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
        let mut fds = [&self.late_kick, &self.kick, &self.control, &self.device]
            .map(|fd| PollFd::new(fd, PollFlags::IN));
        let watched = if on_device {
            &mut fds[..]
        } else {
            &mut fds[..3]
        };
        match rustix::event::poll(watched, Some(&timeout)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(true),
            Err(errno) => return Err(errno),
        }
        let [late, kicked, news] = [0..1, 1..2, 1..4].map(|which| {
            let mut of = fds[which].iter();
            of.any(|fd| !fd.revents().is_empty())
        });
        if late {
            doorbell::drain(self.late_kick.as_fd());
        }
        if kicked {
            doorbell::drain(self.kick.as_fd());
        }
        Ok(news)
    }
}
