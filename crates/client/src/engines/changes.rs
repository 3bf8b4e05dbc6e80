//! Counts engines that this process has lost, or found again.

use core::sync::atomic::{AtomicU32, Ordering};

static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Counts engines that this process has lost, or found again: whoever sleeps looks anew whom to hear from.
#[must_use]
pub fn changes() -> u32 {
    CHANGES.load(Ordering::Acquire)
}

/// One more.
pub(crate) fn note_change() {
    CHANGES.fetch_add(1, Ordering::AcqRel);
}
