//! Numbers of IP sockets that came from elsewhere, of which nobody has asked yet what stands behind them (`inherited` asks).

use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::fd_table::descriptors::LIMIT;

static WAITING: [AtomicU64; LIMIT / 64] = [const { AtomicU64::new(0) }; LIMIT / 64];
/// How many numbers wait.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// What finds out what stands behind a number that waits.
static ASK: OnceLock<fn(RawFd)> = OnceLock::new();

fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(fd).ok()?;
    Some((WAITING.get(number / 64)?, 1 << (number % 64)))
}

/// The number waits from now on until `ask` is called for one that waits. Whether it did not before.
pub fn note(fd: RawFd, ask: fn(RawFd)) -> bool {
    let _ = ASK.set(ask);
    let is_new =
        place(fd).is_some_and(|(word, bit)| word.fetch_or(bit, Ordering::AcqRel) & bit == 0);
    if is_new {
        COUNT.fetch_add(1, Ordering::AcqRel);
    }
    is_new
}

/// The number was closed, or stands for something that is known.
pub fn forget(fd: RawFd) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    if let Some((word, bit)) = place(fd)
        && word.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    {
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Before anybody asks what stands behind a number: finds it out, if it is not known.
#[inline]
pub fn resolve(fd: RawFd) {
    if COUNT.load(Ordering::Acquire) != 0
        && let Some(ask) = ASK.get()
    {
        ask(fd);
    }
}

/// Whether nobody has asked about the number.
pub fn waits(fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
}

/// All that wait.
pub fn numbers() -> impl Iterator<Item = RawFd> {
    let words = WAITING.iter().enumerate();
    let occupied = words.filter(|(_, word)| word.load(Ordering::Acquire) != 0);
    occupied
        .flat_map(|(at, _)| at * 64..at * 64 + 64)
        .filter_map(|number| RawFd::try_from(number).ok())
        .filter(|fd| waits(*fd))
}
