//! Which descriptor numbers have an entry: one atomic load in a bit map that lies in untouched zero pages, without a lock or an
//! allocation, so that a handler of a signal may ask.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Descriptor numbers below this can be tracked: the default ceiling of Linux, `fs.nr_open`.
pub const LIMIT: usize = 1 << 20;

static TRACKED: [AtomicU64; LIMIT / 64] = [const { AtomicU64::new(0) }; LIMIT / 64];

/// Whether the number has an entry. Async-signal-safe.
#[inline]
pub fn is_tracked(fd: RawFd) -> bool {
    match usize::try_from(fd) {
        Ok(number) if number < LIMIT => {
            TRACKED[number / 64].load(Ordering::Acquire) & (1 << (number % 64)) != 0
        }
        _ => false,
    }
}

/// The tracked numbers in `first..=last`, in order.
pub fn tracked_in(first: RawFd, last: RawFd) -> impl Iterator<Item = RawFd> {
    let first = usize::try_from(first).unwrap_or(0);
    let end = usize::try_from(last)
        .map_or(0, |last| last.saturating_add(1))
        .min(LIMIT);
    (first / 64..end.div_ceil(64))
        .filter(|&word| TRACKED[word].load(Ordering::Acquire) != 0)
        .flat_map(|word| word * 64..word * 64 + 64)
        .filter(move |&number| number >= first && number < end)
        .filter_map(|number| RawFd::try_from(number).ok())
        .filter(|&fd| is_tracked(fd))
}

/// Notes that the number has an entry, or has none.
pub fn mark(fd: RawFd, tracked: bool) {
    let Ok(number) = usize::try_from(fd) else {
        return;
    };
    let Some(word) = TRACKED.get(number / 64) else {
        return;
    };
    let bit = 1 << (number % 64);
    if tracked {
        word.fetch_or(bit, Ordering::AcqRel);
    } else {
        word.fetch_and(!bit, Ordering::AcqRel);
    }
}
