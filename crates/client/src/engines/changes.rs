//! Counts engines that this process has lost, or found again.

use core::sync::atomic::{AtomicU32, Ordering};

static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Counts engines that this process has lost, or found again: a thread that sleeps then looks again which engines to wait for.
#[must_use]
pub fn changes() -> u32 {
    CHANGES.load(Ordering::Acquire)
}

/// Counts one more.
pub(crate) fn note_change() {
    CHANGES.fetch_add(1, Ordering::AcqRel);
}
