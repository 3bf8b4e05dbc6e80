//! Signals during a turn of an engine inside this process: they wait until it is over, at the price of
//! two words of the thread and no system call.
//!
//! A handler that wanted a turn while its own thread is in the middle of one would wait for ever, and one
//! that jumped out of it would leave the engine half done. Blocking all signals around each turn would
//! cost more than the turn. So the switch stands in front of the program's handlers and asks here
//! first (`defer`): in the middle of a turn the signal is sent once more to the same thread and everything is
//! blocked from the moment on at which the handler returns; the end of the turn restores the mask, and
//! the kernel delivers the signal as if it had just come. See sigaction(2), rt_tgsigqueueinfo(2).
//!
//! What no handler of the program waits for needs no care: the default actions run no code here.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence};

use crate::sys;

/// What the thread and its own signal handlers tell each other: atomics for the compiler's sake.
struct State {
    /// How many turns deep the thread is.
    depth: AtomicU32,
    /// A signal came meanwhile, and `mask` was the thread's.
    held: AtomicBool,
    mask: AtomicU64,
    /// Handlers of the program that have run in this thread. Wraps around.
    handled: AtomicU32,
}

thread_local! {
    static STATE: State = const {
        State {
            depth: AtomicU32::new(0),
            held: AtomicBool::new(false),
            mask: AtomicU64::new(0),
            handled: AtomicU32::new(0),
        }
    };
}

/// Holds the handlers of the thread's signals back while it lives.
pub struct Quiet {
    /// The thread's own.
    not_send: PhantomData<*const ()>,
}

impl Quiet {
    /// From now on.
    #[must_use]
    pub fn begin() -> Quiet {
        STATE.with(|state| {
            let depth = state.depth.load(Ordering::Relaxed);
            state.depth.store(depth.wrapping_add(1), Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
        });
        Quiet {
            not_send: PhantomData,
        }
    }

    /// Whether a signal waits whose handler wants to run.
    pub(crate) fn is_disturbed(&self) -> bool {
        STATE.with(|state| state.held.load(Ordering::Relaxed))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        STATE.with(|state| {
            compiler_fence(Ordering::SeqCst);
            let depth = state.depth.load(Ordering::Relaxed).wrapping_sub(1);
            state.depth.store(depth, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            if depth == 0 && state.held.load(Ordering::Relaxed) {
                state.held.store(false, Ordering::Relaxed);
                // The signal is delivered on the way out of this call.
                sys::restore_signals(state.mask.load(Ordering::Relaxed));
            }
        });
    }
}

/// For whoever stands in front of a handler of the program, with all signals blocked: whether the handler
/// has to wait. Then `mask`, the thread's before the signal, is kept for the end of the turn.
pub(crate) fn hold(mask: u64) -> bool {
    STATE.with(|state| {
        let holds = state.depth.load(Ordering::Relaxed) != 0;
        if holds && !state.held.load(Ordering::Relaxed) {
            state.mask.store(mask, Ordering::Relaxed);
            state.held.store(true, Ordering::Relaxed);
        }
        holds
    })
}

/// A handler of the program is about to run.
pub fn on_handler() {
    STATE.with(|state| {
        let handled = state.handled.load(Ordering::Relaxed);
        state
            .handled
            .store(handled.wrapping_add(1), Ordering::Relaxed);
    });
}

/// Counts the handlers that have run in this thread.
pub(crate) fn handled() -> u32 {
    STATE.with(|state| state.handled.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask() -> u64 {
        let mask = sys::block_signals();
        sys::restore_signals(mask);
        mask
    }

    #[test]
    fn a_handler_waits_for_the_outermost_turn_and_the_mask_is_the_threads_again() {
        let before = mask();
        assert!(!hold(before), "outside a turn it runs at once");
        let outer = Quiet::begin();
        let inner = Quiet::begin();
        assert!(hold(before));
        assert!(inner.is_disturbed());
        assert!(hold(u64::MAX), "and so does the next");
        sys::block_signals();
        drop(inner);
        assert_ne!(mask(), before, "still in a turn");
        drop(outer);
        assert_eq!(mask(), before);
        assert!(!hold(before));
    }

    #[test]
    fn turns_without_signals_leave_the_mask_alone() {
        let before = sys::block_signals();
        drop(Quiet::begin());
        assert_eq!(mask() | before, mask());
        sys::restore_signals(before);
    }
}
