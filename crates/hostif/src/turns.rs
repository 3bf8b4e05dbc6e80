//! Who runs an engine that several threads may run: one at a time, and nobody's note is left lying.
//!
//! Whoever has pushed a note `owe`s a turn and tries to take it. If another thread has it, that thread
//! may have looked at the rings before the note was there; but it asks on letting go whether somebody
//! owes, and then takes the turn once more. Of the two fences (after owing, after letting go) one comes
//! first: either the one who owes finds the turn free, or the one who lets go sees that it is owed. The
//! tests model it with loom.

use crate::sync::{AtomicU64, Ordering, fence};

/// The right to run, and whether somebody wants it run.
pub struct Turns {
    taken: AtomicU64,
    owed: AtomicU64,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            taken: AtomicU64::new(0),
            owed: AtomicU64::new(0),
        }
    }
}

impl Turns {
    /// Something was pushed that the next turn has to find.
    pub fn owe(&self) {
        self.owed.swap(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Takes the turn unless another thread has it. What was pushed before an `owe` that this or an
    /// earlier turn pays is visible from here on.
    #[must_use]
    pub fn try_take(&self) -> bool {
        let taken = self
            .taken
            .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if taken {
            self.owed.swap(0, Ordering::AcqRel);
        }
        taken
    }

    /// Lets go of the turn. True: somebody owes one, and whoever lets go has to try again.
    #[must_use]
    pub fn let_go(&self) -> bool {
        self.taken.swap(0, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        self.owed.load(Ordering::Relaxed) == 1
    }
}

#[cfg(all(test, loom))]
mod tests;
