//! The library's own descriptors: high numbers, so that the program's lowest-number rule holds,
//! close-on-exec, and marked, so that a switch can keep the program from closing them.
//!
//! They are closed by a direct system call and unmarked first.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::process::Resource;

use crate::sys;

/// Numbers from here on, if the limit of open files leaves room above.
const PREFERRED_FIRST: RawFd = 512;
const MARKED: usize = 1 << 20;
type Marks = [AtomicU64; MARKED / 64];
static MARKS: Marks = [const { AtomicU64::new(0) }; MARKED / 64];
/// Those of them that belong to an engine inside this process.
static RELOCATED: Marks = [const { AtomicU64::new(0) }; MARKED / 64];

/// Lowest number that private descriptors get: 512, or half the limit of open files where that is low.
#[must_use]
pub fn first_private() -> RawFd {
    match FIRST.load(Ordering::Relaxed) {
        0 => look_at_limit(),
        known => known,
    }
}

static FIRST: AtomicI32 = AtomicI32::new(0);
/// No marked number is lower.
static LOWEST: AtomicI32 = AtomicI32::new(RawFd::MAX);

/// Lowest number that a private descriptor has, or had.
#[must_use]
pub fn lowest_private() -> RawFd {
    LOWEST.load(Ordering::Relaxed)
}

fn look_at_limit() -> RawFd {
    let first = first_below_limit();
    FIRST.store(first, Ordering::Relaxed);
    first
}

fn first_below_limit() -> RawFd {
    let limit = rustix::process::getrlimit(Resource::Nofile)
        .current
        .unwrap_or(u64::MAX);
    let half = i32::try_from(limit / 2).unwrap_or(PREFERRED_FIRST);
    half.clamp(3, PREFERRED_FIRST)
}

/// Has the kernel enlarge the process's table of descriptors for private numbers, before there is a second thread: of a process with
/// several, whoever needs a larger table waits for a grace period of RCU, 5 to 20 ms (`expand_fdtable`, fs/file.c). Neither
/// locks nor allocates.
pub fn enlarge_table() {
    let Ok(low) = hostif::sync::doorbell::create() else {
        return;
    };
    // The limit may be another one when the first private number is made.
    let high = rustix::io::fcntl_dupfd_cloexec(&low, first_below_limit());
    for fd in [Ok(low), high].into_iter().flatten() {
        sys::close(fd.into_raw_fd());
    }
}

fn place_of(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    mark_in(&MARKS, fd)
}

fn mark(fd: RawFd) {
    if let Some((word, bit)) = place_of(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
        LOWEST.fetch_min(fd, Ordering::Relaxed);
    }
}

/// A duplicate out of the program's way.
fn high_copy(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    match rustix::io::fcntl_dupfd_cloexec(fd, first_private()) {
        // The limit of open files has been lowered since it was looked at.
        Err(Errno::INVAL) => rustix::io::fcntl_dupfd_cloexec(fd, look_at_limit()),
        copied => copied,
    }
}

fn mark_in(marks: &'static Marks, fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(fd).ok()?;
    Some((marks.get(number / 64)?, 1 << (number % 64)))
}

/// Whether a number is one of the library's own. Takes no lock.
#[must_use]
pub fn is_private(fd: RawFd) -> bool {
    place_of(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Moves a descriptor out of the program's way for an engine inside this process, which owns it as any other
/// value: whoever closes the number calls [`unmark`] first.
#[must_use]
pub fn relocate(fd: OwnedFd) -> OwnedFd {
    let private = PrivateFd::new(fd);
    let number = private.number;
    core::mem::forget(private);
    if let Some((word, bit)) = mark_in(&RELOCATED, number) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    sys::own(number)
}

/// As [`relocate`], of a duplicate that never has a number that the program could expect to get.
///
/// # Errors
/// No more descriptors.
pub(crate) fn relocate_copy(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let copy = high_copy(fd)?;
    let number = copy.as_raw_fd();
    mark(number);
    if let Some((word, bit)) = mark_in(&RELOCATED, number) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    Ok(copy)
}

/// The numbers below `end` that were relocated and are open, in order.
pub fn relocated(end: RawFd) -> impl Iterator<Item = RawFd> {
    (0..end).filter(|&fd| {
        mark_in(&RELOCATED, fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    })
}

/// Closes a relocated number whose owner lives on for ever and does not use it any more.
pub fn close_relocated(fd: RawFd) {
    unmark(fd);
    sys::close(fd);
}

/// The number is about to be closed by its owner.
pub fn unmark(fd: RawFd) {
    for (word, bit) in [mark_in(&RELOCATED, fd), place_of(fd)]
        .into_iter()
        .flatten()
    {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// A descriptor of the library.
#[derive(Debug)]
pub struct PrivateFd {
    number: RawFd,
}

impl PrivateFd {
    /// Moves a descriptor out of the program's way.
    #[must_use]
    pub fn new(fd: OwnedFd) -> PrivateFd {
        let low = fd.into_raw_fd();
        // At once: another thread of the program may close a number that it has closed before.
        mark(low);
        // Where no high number is left it stays where it is: protected all the same.
        let number = match high_copy(sys::borrow(low)) {
            Ok(high) => {
                let high = high.into_raw_fd();
                mark(high);
                unmark(low);
                sys::close(low);
                high
            }
            Err(_) => low,
        };
        PrivateFd { number }
    }

    /// Keeps a descriptor where it is for a moment: it is about to be the program's.
    pub(crate) fn in_place(fd: OwnedFd) -> PrivateFd {
        let number = fd.into_raw_fd();
        mark(number);
        PrivateFd { number }
    }

    fn release(&self) -> RawFd {
        unmark(self.number);
        self.number
    }

    /// Hands the descriptor to the program: it is private no more.
    #[must_use]
    pub fn into_owned(self) -> OwnedFd {
        let number = self.release();
        core::mem::forget(self);
        sys::own(number)
    }

    /// Closes the number although the value lives on for ever and is not used any more.
    pub(crate) fn close_leaked(&self) {
        sys::close(self.release());
    }
}

impl AsFd for PrivateFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        sys::borrow(self.number)
    }
}

impl AsRawFd for PrivateFd {
    fn as_raw_fd(&self) -> RawFd {
        self.number
    }
}

impl Drop for PrivateFd {
    fn drop(&mut self) {
        sys::close(self.release());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_descriptors_has_room_for_private_numbers_before_there_is_one() {
        enlarge_table();
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        let size: RawFd = size.unwrap().trim().parse().unwrap();
        assert!(size > first_private(), "room for {size} numbers");
    }

    #[test]
    fn a_relocated_descriptor_is_high_and_marked_until_its_owner_closes_it() {
        let fd = relocate(hostif::sync::doorbell::create().unwrap());
        let number = fd.as_raw_fd();
        assert!(number >= first_private() && is_private(number));
        assert!(relocated(number + 1).any(|one| one == number));
        unmark(number);
        assert!(!relocated(number + 1).any(|one| one == number));
        assert!(!is_private(number));
    }

    #[test]
    fn a_private_descriptor_is_high_marked_and_unmarked_when_handed_over() {
        let fd = PrivateFd::new(hostif::sync::doorbell::create().unwrap());
        let number = fd.as_raw_fd();
        assert!(number >= first_private());
        assert!(is_private(number));
        let owned = fd.into_owned();
        assert!(!is_private(number));
        let again = PrivateFd::new(owned);
        let number = again.as_raw_fd();
        drop(again);
        assert!(!is_private(number));
        assert!(!is_private(-1) && !is_private(i32::MAX));
    }
}
