//! What changes for the kernel's epoll when a set begins to be served: which threads have to leave it, and what it still watches.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use super::set::{Set, WatchedBy};
use crate::sys;
use switch::readiness::{OUT, WRNORM};

/// Data of the event that makes threads leave libc's own epoll_wait; no program uses these bytes.
pub const KICK: u64 = u64::from_ne_bytes(*b"\xf5shuntk\xfa");

/// How long a kick waits for the threads to leave. They are runnable; this only has to outlast an
/// overloaded machine.
const KICK_LIMIT: Duration = Duration::from_secs(1);

/// The set has something that the kernel cannot watch: whoever waits for it, in it or in an epoll instance around it,
/// has to wait in the switch.
pub fn begin_serving(set: &'static Set) {
    kick(set);
    set.outer.moved_to_both();
}

/// Makes threads leave libc's own epoll_wait, which they entered while the kernel could watch all:
/// an event of ours appears in the kernel's epoll until they are gone.
fn kick(set: &'static Set) {
    if set.plain_waiters.load(Ordering::SeqCst) == 0 {
        return;
    }
    let Ok(ring) = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) else {
        return;
    };
    let Ok(epoll) = sys::borrow(set.descriptor()) else {
        return;
    };
    if epoll::add(epoll, &ring, EventData::new_u64(KICK), EventFlags::IN).is_err() {
        return;
    }
    let end = Instant::now() + KICK_LIMIT;
    while set.plain_waiters.load(Ordering::SeqCst) != 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_micros(20));
    }
    // A thread that was cancelled inside libc's call never counted itself out.
    set.plain_waiters.store(0, Ordering::SeqCst);
    let _ = epoll::delete(epoll, &ring);
}

/// What the kernel's epoll is to watch for: whether a socket is writable only the engine knows.
pub fn for_kernel((mask, data): (u32, u64), place: WatchedBy) -> (EventFlags, EventData) {
    let mask = if place == WatchedBy::Both {
        mask & !(OUT | WRNORM)
    } else {
        mask
    };
    (EventFlags::from_bits_retain(mask), EventData::new_u64(data))
}
