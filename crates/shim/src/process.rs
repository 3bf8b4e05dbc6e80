//! What is known of this process: whose memory it runs in, and who else has its files.

pub(crate) mod environment;
pub(crate) mod exec;
pub mod exit;
pub(crate) mod fork;
pub(crate) mod signals;
mod vfork;

use std::sync::atomic::{AtomicU32, Ordering};

pub use vfork::{is_borrowed_memory, look_for_borrower, note_lending, own_memory};

static DEPARTURES: AtomicU32 = AtomicU32::new(0);

/// How often all open files of this process, and of its ancestors before it, have become another process's too: by fork(2), or by
/// the start of another program.
pub fn departures() -> u32 {
    DEPARTURES.load(Ordering::Relaxed)
}

/// Notes that they are about to.
pub fn note_departure() {
    DEPARTURES.fetch_add(1, Ordering::Relaxed);
}
