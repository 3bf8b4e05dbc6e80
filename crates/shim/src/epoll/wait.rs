//! epoll_wait(2) and its kin: libc's own call while the kernel can watch everything, else one look at
//! both sides and one sleep on both.
//!
//! The sleep is a ppoll(2) on the epoll file rather than an epoll_wait with our descriptors inside the
//! program's epoll: one system call more before a sleep, and nothing of ours in a file that the program
//! shares with its children, nests in other epolls, and waits on with `maxevents` of 1.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;

use super::change::spend_in_kernel;
use super::kick::KICK;
use super::set::{Interest, ONE_SHOT, Set, WatchedBy};
use crate::fd_table::descriptors;
use crate::fd_table::file::File;
use crate::outcome::Switched;
use crate::sys;
use crate::wait::sleep::{Deadline, SignalMask};
use crate::wait::sleeping;

/// More at once are refused (EP_MAX_EVENTS of fs/eventpoll.c).
const EVENTS_MAX: usize = i32::MAX as usize / size_of::<libc::epoll_event>();

/// A thread enters libc's own epoll_wait, unless the set needs the switch (`None`).
pub fn enter_plain(epfd: RawFd) -> Option<&'static Set> {
    let file = descriptors::lookup(epfd)?;
    let set = file.epoll()?.set();
    // Counted in before the look: whoever adds the first interest either sees the thread and kicks
    // it, or is seen here.
    set.plain_waiters.fetch_add(1, Ordering::SeqCst);
    if set.served() == 0 {
        return Some(set);
    }
    leave(&set.plain_waiters);
    None
}

/// A thread comes out of libc's own epoll_wait with `events`: how many are the program's, or `None`
/// if it was only kicked and has to wait in the switch. Each thread that adds an interest meanwhile kicks it.
pub fn leave_plain(set: &Set, events: &mut [libc::epoll_event]) -> Option<usize> {
    leave(&set.plain_waiters);
    let mut kept = 0;
    for index in 0..events.len() {
        let event = events[index];
        if event.u64 != KICK {
            events[kept] = event;
            kept += 1;
        }
    }
    (kept > 0 || events.is_empty()).then_some(kept)
}

fn leave(waiters: &AtomicU32) {
    // Not below zero: a kick may have given up on this thread.
    let _ = waiters.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| {
        count.checked_sub(1)
    });
}

/// epoll_wait on an instance with interests that the kernel cannot watch.
pub fn wait(
    epfd: RawFd,
    out: &mut [libc::epoll_event],
    deadline: Deadline,
    mask: SignalMask<'_>,
) -> Switched<i32> {
    let file = descriptors::lookup(epfd);
    let Some(set) = file
        .as_ref()
        .and_then(|file| file.epoll())
        .map(super::Instance::set)
    else {
        return Ok(None);
    };
    if out.is_empty() || out.len() > EVENTS_MAX {
        return Err(Errno::INVAL);
    }
    let _open = file.as_ref().map(File::sleeper);
    set.set_descriptor(epfd);
    loop {
        sleeping::reap();
        let filled = gather(set, epfd, out)?;
        if filled > 0 || deadline.is_over() {
            return Ok(Some(i32::try_from(filled).unwrap_or(i32::MAX)));
        }
        let mut kernel = [sys::poll_in(epfd), sys::poll_in(set.waker.number()?)];
        // Nobody has to wake a thread that spins: it looks by itself.
        let mut sleeping = None;
        let mut before_sleep = || sleeping = Some(set.waker.count_in());
        let mut news = || set.has_ready();
        sleeping::sleep_noted(
            &[],
            &mut kernel,
            (mask, deadline),
            &mut news,
            &mut before_sleep,
        )?;
        if kernel[1].revents != 0 {
            set.waker.silence();
        }
    }
}

/// What is ready now on both sides.
fn gather(set: &'static Set, epfd: RawFd, out: &mut [libc::epoll_event]) -> Result<usize, Errno> {
    let mut reported = |interest: &Arc<Interest>| {
        if interest.place() == WatchedBy::Both && interest.wish().0 & ONE_SHOT != 0 {
            spend_in_kernel(interest);
        }
    };
    let has_kernel_members = set.has_kernel_members();
    // Half of `out` at most, if the kernel has something to say too: neither side starves.
    let share = if has_kernel_members {
        out.len().div_ceil(2)
    } else {
        out.len()
    };
    let mut collection = set.collection();
    let mut filled = collection.fill(&mut out[..share], &mut reported);
    let mut kernels = 0;
    if has_kernel_members && filled < out.len() {
        kernels = sys::epoll_wait_now(epfd, &mut out[filled..])?;
        let rest = collection.fill(&mut out[filled + kernels..], &mut reported);
        out[filled..filled + kernels + rest].rotate_left(kernels);
        filled += rest;
    }
    let is_cut = collection.is_cut();
    drop(collection);
    let (engine, kernel) = out.split_at_mut(filled);
    filled += without_duplicates(set, engine, &mut kernel[..kernels]);
    if (filled == out.len() || is_cut) && set.has_ready() {
        // More is ready than fits here: another sleeper may have the rest.
        set.waker.wake();
    }
    Ok(filled)
}

/// Removes from `kernel` the kick and the listeners that `engine` reports already.
fn without_duplicates(
    set: &Set,
    engine: &[libc::epoll_event],
    kernel: &mut [libc::epoll_event],
) -> usize {
    let mut kept = 0;
    for index in 0..kernel.len() {
        let event = kernel[index];
        let data = event.u64;
        if data == KICK {
            continue;
        }
        if let Some(interest) = set.kernel_reported(data) {
            if interest.wish().0 & ONE_SHOT != 0 {
                set.spend(&interest);
            }
            if engine.iter().any(|other| other.u64 == data) {
                continue;
            }
        }
        kernel[kept] = event;
        kept += 1;
    }
    kept
}
