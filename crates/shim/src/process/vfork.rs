//! Children that run in their parent's memory: of vfork(2), of clone(2) with CLONE_VM, of posix_spawn(3). Such a child has
//! descriptors of its own: what it closes or duplicates before it executes is none of the parent's table.
//!
//! Whether the caller is one costs a system call, so it is asked only once the process has had such a child. The calls that make
//! one are noted before (`sys`); a child that libc makes inside itself is known by the closes that libc makes there.

pub mod sys;

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The process whose memory this is.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// A child has run in this process's memory. Never taken back: nobody says when the last one has left.
static HAS_LENT: AtomicBool = AtomicBool::new(false);

/// This process's memory is its own from now on: at load, and in a forked child.
pub fn own_memory() {
    OWNER.store(own_pid(), Ordering::Relaxed);
    // Before anybody calls it.
    sys::find_clone();
}

/// Whether the memory belongs to a parent.
pub fn is_borrowed_memory() -> bool {
    HAS_LENT.load(Ordering::Relaxed) && own_pid() != OWNER.load(Ordering::Relaxed)
}

/// The process may be about to make such a child by a system call of its own (syscall(2)).
pub fn note_lending() {
    HAS_LENT.store(true, Ordering::Relaxed);
}

/// libc closes a descriptor inside itself: in a child of posix_spawn(3), perhaps.
pub fn look_for_borrower() {
    if own_pid() != OWNER.load(Ordering::Relaxed) {
        note_lending();
    }
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}
