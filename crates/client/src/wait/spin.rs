//! Spinning before a sleep. Where the engine is inside this process the thread that waits polls it.

use std::time::Instant;

use crate::engines::budget::Budget;
use crate::sys;
use crate::threads::signal_deferral::{SignalDeferral, SignalMask};

/// Polls between two looks at the clock and, where the sleep has a mask of its own, at pending signals: about a
/// microsecond.
const TURNS_PER_LOOK: u32 = 8;

/// How a spin ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spun {
    /// What was waited for is there.
    Over,
    /// The budget is spent.
    Spent,
    /// A signal came.
    Disturbed,
}

/// Spins until `is_over`, which is asked before each `poll` (false) and after it, or the budget is spent. `mask`: signals that the sleep afterwards
/// would let in besides those that the thread does not block.
pub(crate) fn spin(
    mut poll: impl FnMut(),
    budget: Budget,
    mask: SignalMask<'_>,
    mut is_over: impl FnMut(bool) -> bool,
) -> Spun {
    let Some(limit) = budget.limit() else {
        return Spun::Spent;
    };
    let quiet = SignalDeferral::begin();
    let start = Instant::now();
    let mut turns = 0_u32;
    let spun = loop {
        if is_over(false) {
            break Spun::Over;
        }
        poll();
        if is_over(true) {
            break Spun::Over;
        }
        turns = turns.wrapping_add(1);
        if quiet.is_disturbed() {
            break Spun::Disturbed;
        }
        if turns.is_multiple_of(TURNS_PER_LOOK) {
            if start.elapsed() >= limit {
                break Spun::Spent;
            }
            if mask.is_some_and(|mask| sys::pending_signals() & !sys::bits(mask) != 0) {
                break Spun::Disturbed;
            }
        }
        core::hint::spin_loop();
    };
    drop(quiet);
    budget.on_spun(spun == Spun::Over, start.elapsed());
    spun
}
