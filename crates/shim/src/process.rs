//! What is known of this process: whose memory it runs in, and whether it has forked.

pub(crate) mod exec;
pub mod exit;
pub(crate) mod fork;
pub(crate) mod signals;
mod vfork;

use std::sync::atomic::{AtomicBool, Ordering};

pub use vfork::{is_borrowed_memory, look_for_borrower, note_lending, own_memory};

static HAS_FORKED: AtomicBool = AtomicBool::new(false);

/// Whether another process may hold the same open files because one of the two is the other's child.
pub fn has_forked() -> bool {
    HAS_FORKED.load(Ordering::Relaxed)
}

/// It is about to fork.
pub fn note_fork() {
    HAS_FORKED.store(true, Ordering::Relaxed);
}
