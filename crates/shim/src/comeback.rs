//! Engines that end and come back (docs/decisions/0051-listeners-outlive-engines.md): what this process listens with, or
//! has bound, on one that is gone is put on the next one of the same name.
//!
//! No thread of the library's own does this: threads that wait in the switch, or pass through it without waiting, look
//! for the engine now and then, as long as something is missing.

use std::collections::HashSet;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::accelerated::{self, Undisturbed};
use crate::calls::datagram;
use crate::calls::sigio;
use crate::fd_table::descriptors;
use crate::fd_table::file::File;
use crate::socket::Socket;
use crate::sys;

/// The first pause between two looks, milliseconds; each is twice as long as the one before.
const FIRST_MS: u64 = 50;
/// The longest.
const LONGEST_MS: u64 = 1_000;

/// The count of changes after which nothing was missing.
static SETTLED: AtomicU32 = AtomicU32::new(0);
/// When to look next, milliseconds of the coarse clock.
static DUE_MS: AtomicU64 = AtomicU64::new(0);
static PAUSE_MS: AtomicU64 = AtomicU64::new(FIRST_MS);
/// A thread is at it.
static IS_LOOKING: AtomicBool = AtomicBool::new(false);

/// Whether something may be missing. One load for programs whose engines live.
fn is_pending() -> bool {
    accelerated::changes() != SETTLED.load(Ordering::Relaxed)
}

/// When a thread that sleeps is to look; `None`: nothing is missing.
pub fn due() -> Option<Instant> {
    if !is_pending() {
        return None;
    }
    let left_ms = DUE_MS.load(Ordering::Relaxed).saturating_sub(now_ms());
    // The coarse clock may lag: later rather than again and again.
    Instant::now().checked_add(Duration::from_millis(left_ms + 5))
}

/// Looks, if it is time to.
pub fn look() {
    if !is_pending() || now_ms() < DUE_MS.load(Ordering::Relaxed) {
        return;
    }
    if IS_LOOKING.swap(true, Ordering::Acquire) {
        return;
    }
    {
        // A handler that ran here and never returned would keep all others from looking.
        let _undisturbed = Undisturbed::begin();
        look_once();
    }
    IS_LOOKING.store(false, Ordering::Release);
}

/// In a forked child: who was at it is not here.
pub fn reset_in_child() {
    IS_LOOKING.store(false, Ordering::Relaxed);
}

fn look_once() {
    let before = accelerated::changes();
    let is_whole = missing().is_empty() || {
        accelerated::attach_again();
        let lost = missing();
        lost.iter()
            .filter(|(fd, file)| !bring_back(*fd, file))
            .count()
            == 0
    };
    if is_whole {
        PAUSE_MS.store(FIRST_MS, Ordering::Relaxed);
        DUE_MS.store(0, Ordering::Relaxed);
        SETTLED.store(before, Ordering::Relaxed);
        return;
    }
    let pause_ms = PAUSE_MS.load(Ordering::Relaxed);
    // Processes that lost one engine together do not all come at once.
    let own_ms = u64::from(std::process::id()) % FIRST_MS;
    DUE_MS.store(now_ms() + pause_ms + own_ms, Ordering::Relaxed);
    PAUSE_MS.store((pause_ms * 2).min(LONGEST_MS), Ordering::Relaxed);
}

/// The sockets that have lost an engine, each with one of its numbers.
fn missing() -> Vec<(RawFd, Arc<File>)> {
    let mut seen = HashSet::new();
    descriptors::tracked_in(0, RawFd::MAX)
        .filter_map(|fd| Some((fd, descriptors::known(fd)?)))
        .filter(|(_, file)| file.socket().is_some_and(misses_engine))
        .filter(|(_, file)| seen.insert(Arc::as_ptr(file)))
        .collect()
}

fn misses_engine(socket: &Socket) -> bool {
    let stream = socket.borrow_stream();
    stream.as_ref().is_some_and(|stream| {
        if socket.is_datagram() {
            stream.has_lost_part()
        } else {
            stream.misses_engine() && !socket.receive_shut()
        }
    })
}

/// Whether it misses nothing any more.
fn bring_back(fd: RawFd, file: &File) -> bool {
    let Some(socket) = file.socket() else {
        return true;
    };
    if socket.is_datagram() {
        return datagram::come_back(fd, socket).is_ok();
    }
    let (Some(stream), Ok(backing)) = (socket.stream(), sys::borrow(fd)) else {
        return true;
    };
    let is_whole = stream.listen_again(backing);
    socket.log.apply(&stream);
    sigio::apply(fd, socket, &stream);
    if !socket.watchers.is_empty() {
        stream.observe(&socket.watchers);
        socket.watchers.notify(u32::MAX);
    }
    is_whole
}

fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let (seconds, nanoseconds) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds * 1_000 + nanoseconds / 1_000_000
}
