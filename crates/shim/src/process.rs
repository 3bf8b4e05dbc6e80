//! What is known of this process: whose memory it runs in, and whether it has forked.

pub(crate) mod exec;
pub mod exit;
pub(crate) mod fork;
pub(crate) mod signals;

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The process whose memory this is.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// This process's memory is its own from now on: at load, and in a forked child.
pub fn own_memory() {
    OWNER.store(
        rustix::process::getpid().as_raw_nonzero().get(),
        Ordering::Relaxed,
    );
}

/// Whether the memory belongs to a parent that waits in vfork(2). Such a child has descriptors of its
/// own: what it closes or duplicates before it execs is none of the parent's table.
pub fn is_borrowed_memory() -> bool {
    rustix::process::getpid().as_raw_nonzero().get() != OWNER.load(Ordering::Relaxed)
}

static HAS_FORKED: AtomicBool = AtomicBool::new(false);

/// Whether another process may hold the same open files because one of the two is the other's child.
pub fn has_forked() -> bool {
    HAS_FORKED.load(Ordering::Relaxed)
}

/// It is about to fork.
pub fn note_fork() {
    HAS_FORKED.store(true, Ordering::Relaxed);
}
