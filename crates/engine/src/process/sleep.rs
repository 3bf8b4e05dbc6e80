//! A core's sleep.

use rustix::event::epoll::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::time::Duration;

/// Up to here a sleep ends when it shall: epoll_wait(2) counts milliseconds, and rounds up.
const EXACT_US: u64 = 10_000;

/// Waits for events, that long at most; how many there are.
pub(super) fn until_event(
    epoll: &OwnedFd,
    events: &mut [Event],
    timeout_us: u64,
) -> Result<usize, Errno> {
    let mut timeout = Timespec::try_from(Duration::from_micros(timeout_us)).ok();
    if (1..EXACT_US).contains(&timeout_us) {
        poll(&mut [PollFd::new(epoll, PollFlags::IN)], timeout.as_ref())?;
        timeout = Some(Timespec::default());
    }
    epoll::wait(epoll, events, timeout.as_ref())
}
