//! When threads that wait in the switch, or pass through it without waiting, look for engines that have ended: now and then,
//! as long as something is missing. No thread of the library's own does it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::Undisturbed;
use rustix::time::{ClockId, clock_gettime};

/// What a look does (`comeback`); whether nothing is missing any more.
static BRING_BACK: OnceLock<fn() -> bool> = OnceLock::new();

/// The first pause between two looks, milliseconds; each is twice as long as the one before.
const FIRST_MS: u64 = 50;
/// The longest.
const LONGEST_MS: u64 = 1_000;

/// The count of changes after which nothing was missing.
static CHANGES_SEEN: AtomicU32 = AtomicU32::new(0);
/// When to look next, milliseconds of the coarse clock.
static DUE_MS: AtomicU64 = AtomicU64::new(0);
static PAUSE_MS: AtomicU64 = AtomicU64::new(FIRST_MS);
/// A thread is looking.
static IS_LOOKING: AtomicBool = AtomicBool::new(false);

/// Whether something may be missing. One load for programs whose engines live.
fn is_pending() -> bool {
    client::changes() != CHANGES_SEEN.load(Ordering::Relaxed)
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

/// In a forked child: the thread that was looking is not here.
pub fn reset_in_child() {
    IS_LOOKING.store(false, Ordering::Relaxed);
}

fn look_once() {
    let before = client::changes();
    let is_whole = BRING_BACK.get().is_none_or(|bring_back| bring_back());
    if is_whole {
        PAUSE_MS.store(FIRST_MS, Ordering::Relaxed);
        DUE_MS.store(0, Ordering::Relaxed);
        CHANGES_SEEN.store(before, Ordering::Relaxed);
        return;
    }
    let pause_ms = PAUSE_MS.load(Ordering::Relaxed);
    // Processes that lost one engine together do not all come at once.
    let own_ms = u64::from(std::process::id()) % FIRST_MS;
    DUE_MS.store(now_ms() + pause_ms + own_ms, Ordering::Relaxed);
    PAUSE_MS.store((pause_ms * 2).min(LONGEST_MS), Ordering::Relaxed);
}

/// Sets what a look does, once there are engines that may end.
pub fn expect(bring_back: fn() -> bool) {
    let _ = BRING_BACK.set(bring_back);
}

fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let (seconds, nanoseconds) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds * 1_000 + nanoseconds / 1_000_000
}
