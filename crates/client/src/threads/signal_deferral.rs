//! Signals during a call of the library: handlers of the program wait until the call holds nothing any more, at the
//! price of a few words of the thread and no system call.
//!
//! A handler that ran in the middle of a call and made calls itself would find the locks of its own thread taken, and
//! one that left by siglongjmp(3) would leave them taken, and the thread counted among those that sleep.
//! Blocking all signals around each call would cost two system calls. So the switch stands in front of the program's handlers and asks here
//! first (`defer`): within a call the signal is sent once more to the same thread and everything is
//! blocked from the moment on at which the handler returns; the end of the call restores the mask, and
//! the kernel delivers the signal as if it had just come. See sigaction(2), rt_tgsigqueueinfo(2), and
//! docs/decisions/0050-handlers-run-at-the-edge.md.
//!
//! A sleep is ended by a handler that waits, whenever that comes (`sleep`), and by pthread_cancel(3), which is then acted upon
//! where the call ends.
//!
//! What no handler of the program waits for needs no care: the default actions run no code here.

mod sys;

use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};
use core::sync::atomic::{compiler_fence, fence};
use std::time::Duration;

use rustix::io::Errno;

use crate::sys::{bits, restore_signals};

pub use self::sys::{cancelled, defer, find_thread_states};

/// A signal mask for the length of a sleep, as ppoll(2) takes it.
pub type SignalMask<'a> = Option<&'a libc::sigset_t>;

/// What the thread, its own signal handlers and whoever cancels it tell each other. Without a destructor and made of
/// zeros: the first use in a thread neither allocates nor registers anything.
pub(crate) struct State {
    /// How many calls deep the thread is.
    depth: AtomicU32,
    /// A signal came meanwhile, and `mask` was the thread's.
    held: AtomicBool,
    mask: AtomicU64,
    /// The call sleeps, or was woken, with a mask of its own, under which the handlers run.
    has_own_mask: AtomicBool,
    own_mask: AtomicU64,
    /// Handlers of the program that have run in this thread, and those without SA_RESTART. Wrap around.
    handled: AtomicU32,
    interrupting: AtomicU32,
    /// How long the sleep that is about to begin may take: the kernel reads it when it begins, so that zeros written before
    /// that keep it from sleeping.
    timeout: Timeout,
    /// The thread's number, once it was asked for, and again while it sleeps.
    number: AtomicI32,
    asleep: AtomicI32,
    /// It was cancelled since it last looked.
    cancelled: AtomicBool,
}

/// As struct timespec.
#[repr(C)]
pub(crate) struct Timeout {
    seconds: AtomicI64,
    nanos: AtomicI64,
}

impl Timeout {
    fn set(&self, timeout: Duration) {
        let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
        self.seconds.store(seconds, Ordering::Relaxed);
        let nanos = i64::from(timeout.subsec_nanos());
        self.nanos.store(nanos, Ordering::Relaxed);
    }
}

thread_local! {
    static STATE: State = const {
        State {
            depth: AtomicU32::new(0),
            held: AtomicBool::new(false),
            mask: AtomicU64::new(0),
            has_own_mask: AtomicBool::new(false),
            own_mask: AtomicU64::new(0),
            handled: AtomicU32::new(0),
            interrupting: AtomicU32::new(0),
            timeout: Timeout {
                seconds: AtomicI64::new(0),
                nanos: AtomicI64::new(0),
            },
            number: AtomicI32::new(0),
            asleep: AtomicI32::new(0),
            cancelled: AtomicBool::new(false),
        }
    };
}

/// Holds the handlers of the thread's signals back while it lives.
pub struct SignalDeferral {
    /// The thread's own, looked up once: each look is a call in a library that is loaded.
    state: &'static State,
    not_send: PhantomData<*const ()>,
}

impl SignalDeferral {
    /// From now on.
    #[must_use]
    pub fn begin() -> SignalDeferral {
        let state = sys::own_state();
        let depth = state.depth.load(Ordering::Relaxed);
        state.depth.store(depth.wrapping_add(1), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        SignalDeferral {
            state,
            not_send: PhantomData,
        }
    }

    /// As its drop; how many handlers had run in this thread before that and have by now, and how many of them without
    /// SA_RESTART. Both wrap around.
    #[must_use]
    pub fn end(self) -> [(u32, u32); 2] {
        let state = self.state;
        let before = state.handled();
        drop(self);
        [before, state.handled()]
    }

    /// For a caller further down in a call that holds them back.
    #[inline]
    #[must_use]
    pub fn held() -> Held {
        debug_assert!(Self::is_active());
        Held {
            not_send: PhantomData,
        }
    }

    /// Whether the thread holds them back.
    #[must_use]
    pub fn is_active() -> bool {
        STATE.with(|state| state.depth.load(Ordering::Relaxed) != 0)
    }

    /// Whether a signal waits whose handler wants to run.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.state.held.load(Ordering::Relaxed)
    }
}

/// Handlers of the thread's signals are held back, by a [`SignalDeferral`] further up: to begin another is a function call and writes.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    not_send: PhantomData<*const ()>,
}

impl Drop for SignalDeferral {
    fn drop(&mut self) {
        let state = self.state;
        compiler_fence(Ordering::SeqCst);
        let depth = state.depth.load(Ordering::Relaxed).wrapping_sub(1);
        state.depth.store(depth, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if depth == 0 && state.held.load(Ordering::Relaxed) {
            deliver(state);
        }
    }
}

/// Lets the handlers run that have waited. A handler may leave this for good, and may make calls, so nothing of the thread's
/// state is needed afterwards.
#[cold]
fn deliver(state: &State) {
    let mask = state.mask.load(Ordering::Relaxed);
    let own = state.has_own_mask.load(Ordering::Relaxed);
    let own_mask = state.own_mask.load(Ordering::Relaxed);
    state.has_own_mask.store(false, Ordering::Relaxed);
    state.held.store(false, Ordering::Relaxed);
    // The signals are delivered on the way out of these calls.
    if own {
        restore_signals(own_mask);
    }
    restore_signals(mask);
}

/// For whoever stands in front of a handler of the program, with all signals blocked: whether the handler
/// has to wait. Then `mask`, the thread's before the signal, is kept for the end of the call, and a sleep that is about to
/// begin does not.
pub(crate) fn hold(mask: u64) -> bool {
    STATE.with(|state| {
        let holds = state.depth.load(Ordering::Relaxed) != 0;
        if holds && !state.held.load(Ordering::Relaxed) {
            state.mask.store(mask, Ordering::Relaxed);
            state.held.store(true, Ordering::Relaxed);
        }
        if holds {
            state.timeout.set(Duration::ZERO);
        }
        holds
    })
}

/// A handler of the program is about to run, with SA_RESTART or without.
pub fn on_handler(restarts: bool) {
    STATE.with(|state| {
        let count = |counter: &AtomicU32| {
            let count = counter.load(Ordering::Relaxed).wrapping_add(1);
            counter.store(count, Ordering::Relaxed);
        };
        count(&state.handled);
        if !restarts {
            count(&state.interrupting);
        }
    });
}

/// ppoll(2), ended with EINTR by a handler that waits and by a cancellation, also by one that came a moment before.
pub(crate) fn sleep(
    fds: &mut [libc::pollfd],
    timeout: Duration,
    mask: SignalMask<'_>,
) -> Result<usize, Errno> {
    STATE.with(|state| {
        state.timeout.set(timeout);
        if let Some(mask) = mask {
            state.own_mask.store(bits(mask), Ordering::Relaxed);
        }
        state.has_own_mask.store(mask.is_some(), Ordering::Relaxed);
        state.asleep.store(state.own_number(), Ordering::Relaxed);
        // Whoever cancels says so before it writes zeros and sends a signal: one of the three is noticed.
        fence(Ordering::SeqCst);
        let result = if state.held.load(Ordering::Relaxed) || is_cancelled(state) {
            Err(Errno::INTR)
        } else {
            sys::ppoll_until(fds, &state.timeout, mask)
        };
        state.asleep.store(0, Ordering::Release);
        let held = state.held.load(Ordering::Relaxed);
        if !held {
            state.has_own_mask.store(false, Ordering::Relaxed);
        }
        match result {
            Ok(0) if held || is_cancelled(state) => Err(Errno::INTR),
            result => result,
        }
    })
}

/// Whether the thread was cancelled since it last looked, and wants to know.
fn is_cancelled(state: &State) -> bool {
    state.cancelled.load(Ordering::Relaxed)
        && state.cancelled.swap(false, Ordering::SeqCst)
        && sys::is_cancellation_enabled()
}

impl State {
    fn handled(&self) -> (u32, u32) {
        (
            self.handled.load(Ordering::Relaxed),
            self.interrupting.load(Ordering::Relaxed),
        )
    }

    fn own_number(&self) -> i32 {
        match self.number.load(Ordering::Relaxed) {
            0 => {
                let number = sys::thread_number();
                self.number.store(number, Ordering::Relaxed);
                number
            }
            known => known,
        }
    }

    /// For another thread, which has cancelled this one: ends its sleep.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let thread = self.asleep.load(Ordering::Relaxed);
        if thread != 0 {
            self.timeout.set(Duration::ZERO);
            sys::notify(thread);
        }
    }
}

/// In a forked child: the thread has another number.
pub fn forget_thread_number() {
    STATE.with(|state| state.number.store(0, Ordering::Relaxed));
}

/// Where the state of the calling thread lies.
pub(crate) fn address() -> *const State {
    STATE.with(core::ptr::from_ref)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::block_signals;

    fn mask() -> u64 {
        let mask = block_signals();
        restore_signals(mask);
        mask
    }

    #[test]
    fn a_handler_waits_for_the_outermost_call_and_the_mask_is_the_threads_again() {
        let before = mask();
        assert!(!hold(before), "outside a call it runs at once");
        let outer = SignalDeferral::begin();
        let inner = SignalDeferral::begin();
        assert!(hold(before));
        assert!(inner.is_disturbed());
        assert!(hold(u64::MAX), "and so does the next");
        block_signals();
        drop(inner);
        assert_ne!(mask(), before, "still in a call");
        drop(outer);
        assert_eq!(mask(), before);
        assert!(!hold(before));
    }

    #[test]
    fn calls_without_signals_leave_the_mask_alone() {
        let before = block_signals();
        drop(SignalDeferral::begin());
        assert_eq!(mask() | before, mask());
        restore_signals(before);
    }

    #[test]
    fn a_handler_that_waits_keeps_the_thread_from_sleeping() {
        let quiet = SignalDeferral::begin();
        assert!(hold(mask()));
        let slept = sleep(&mut [], Duration::from_secs(3600), None);
        assert_eq!(slept, Err(Errno::INTR));
        drop(quiet);
        assert_eq!(sleep(&mut [], Duration::ZERO, None), Ok(0));
    }

    #[test]
    fn a_thread_that_was_cancelled_does_not_sleep() {
        STATE.with(State::cancel);
        let slept = sleep(&mut [], Duration::from_secs(3600), None);
        assert_eq!(slept, Err(Errno::INTR));
        assert_eq!(sleep(&mut [], Duration::ZERO, None), Ok(0));
    }
}
