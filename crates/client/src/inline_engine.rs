//! An engine inside this process, which no core of its own runs: the threads that wait run it.
//!
//! Whoever starts such an engine registers it here. Then a thread that waits spins by running the engine,
//! sleeps on the engine's device, and whoever has left a note runs the engine instead of ringing it. Handlers
//! of signals wait meanwhile (`signal_deferral.rs`); a spin ends when one does. What a turn does, and who turns when
//! nobody waits, is the engine's affair.

use core::sync::atomic::{AtomicU32, Ordering};
use std::io::IoSliceMut;
use std::time::{Duration, Instant};

use hostif::SocketId;
use hostif::control::{Reply, Request};
use rustix::fd::{BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;

use crate::private::settle_copy;
use crate::sys::{self, Slot};
use crate::wait::SignalMask;

pub use crate::signal_deferral::SignalDeferral;
pub use crate::sys::defer;

/// The engine, as the threads of the program see it.
pub trait InlineEngine: Send + Sync {
    /// Runs the engine once, unless another thread is at it.
    fn turn(&self);
    /// As `turn`; what arrives on that socket of the session, at stream offset `start` and directly behind it, may be
    /// placed in what follows the first `skipped` bytes of `slices`, and is then consumed: how much that was. `None`:
    /// another thread is at it.
    fn turn_into(
        &self,
        socket: (u32, SocketId),
        start: u64,
        slices: &mut [IoSliceMut<'_>],
        skipped: usize,
    ) -> Option<usize>;
    /// A note was left: runs the engine, or knows that another thread will. False: the engine has ended.
    fn notify(&self) -> bool;
    /// As `notify`, of a note of a few bytes to be sent on that socket: where others follow at once they may share
    /// a turn.
    fn notify_small(&self, socket: SocketId) -> bool;
    /// The program calls for anything but to send a little more: what waits for that is sent.
    fn flush_small(&self);
    /// Answers a request of one of this process's sessions, as over its control channel. `None`: the engine has
    /// ended, or knows no such session. The descriptors become the engine's.
    fn ask(&self, session: u32, request: Request, descriptors: Vec<OwnedFd>) -> Option<Answer>;
    /// A thread is about to sleep.
    fn watch(&self) -> Watch;
    /// It no longer sleeps.
    fn unwatch(&self);
}

/// What a request is answered with, and the descriptors beside it.
pub type Answer = (Reply, Vec<OwnedFd>);

/// What a thread that is about to sleep has to do for the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// There is something to do: turn, and do not sleep.
    Turn,
    /// Sleep until this descriptor is readable, or for so long, then turn.
    Device(RawFd, Duration),
    /// The engine has ended.
    Nothing,
}

struct Registered(&'static dyn InlineEngine);

static INLINE_ENGINE: Slot<Registered> = Slot::empty();

/// Registers the engine of this process.
pub fn set(inline_engine: &'static dyn InlineEngine) {
    INLINE_ENGINE.set(Some(Box::leak(Box::new(Registered(inline_engine)))));
}

/// In a forked child: the engine is the parent's.
pub fn clear() {
    INLINE_ENGINE.set(None);
}

/// The engine of this process, if it has one.
pub(crate) fn current() -> Option<&'static dyn InlineEngine> {
    INLINE_ENGINE.current().map(|registered| registered.0)
}

/// Runs `work` with the thread's signals blocked, as a thread inherits it that is started meanwhile.
pub fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let before = sys::block_signals();
    let result = work();
    sys::restore_signals(before);
    result
}

/// Takes turns for a thread that lends its buffer meanwhile.
pub(crate) trait DirectReceive {
    /// One turn, with the thread's signals held back.
    fn turn(&self, inline_engine: &dyn InlineEngine);
}

/// One turn.
pub(crate) fn turn(inline_engine: &dyn InlineEngine, direct_receive: Option<&dyn DirectReceive>) {
    let _deferral = SignalDeferral::begin();
    match direct_receive {
        Some(direct_receive) => direct_receive.turn(inline_engine),
        None => inline_engine.turn(),
    }
}

/// A note was left. False: it is left for an engine in another process.
pub(crate) fn notify() -> bool {
    let Some(inline_engine) = current() else {
        return false;
    };
    let _deferral = SignalDeferral::begin();
    inline_engine.notify()
}

/// As `notify`, of a note of a few bytes to be sent.
pub(crate) fn notify_small(socket: SocketId) -> bool {
    let Some(inline_engine) = current() else {
        return false;
    };
    let _deferral = SignalDeferral::begin();
    inline_engine.notify_small(socket)
}

/// Sends what waits for more of its kind.
pub(crate) fn flush_small() {
    if let Some(inline_engine) = current() {
        let _deferral = SignalDeferral::begin();
        inline_engine.flush_small();
    }
}

/// Asks the engine of this process, which gets duplicates of the descriptors; `None`: the request has to go
/// over the control channel.
pub(crate) fn ask(
    session: u32,
    request: &Request,
    descriptors: &[BorrowedFd<'_>],
) -> Option<Result<Answer, Errno>> {
    let inline_engine = current()?;
    let copies: Result<_, Errno> = descriptors.iter().map(|fd| settle_copy(*fd)).collect();
    let copies = match copies {
        Ok(copies) => copies,
        Err(errno) => return Some(Err(errno)),
    };
    let _deferral = SignalDeferral::begin();
    inline_engine.ask(session, request.clone(), copies).map(Ok)
}

/// A thread is about to sleep.
pub(crate) fn watch(inline_engine: &dyn InlineEngine) -> Watch {
    let _deferral = SignalDeferral::begin();
    inline_engine.watch()
}

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

/// Spins by turning until `is_over`, which is asked before each turn (false) and after it, or the budget is spent. `mask`: signals that the sleep afterwards
/// would let in besides those that the thread does not block.
pub(crate) fn spin(
    inline_engine: &dyn InlineEngine,
    budget: Budget,
    mask: SignalMask<'_>,
    direct_receive: Option<&dyn DirectReceive>,
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
        turn(inline_engine, direct_receive);
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
    budget.on_spun(spun == Spun::Over);
    spun
}

/// Turns between two looks at the clock and, where the sleep has a mask of its own, at pending signals: about a
/// microsecond.
const TURNS_PER_LOOK: u32 = 8;

/// How long a waiting thread may spin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// So long, always.
    Fixed(Duration),
    /// As long as it pays.
    Auto,
}

/// The longest that spinning can pay for: what a sleep and a wake-up cost, with a processor that leaves idle.
const AUTO: Duration = Duration::from_micros(50);
/// Spins in vain, one after the other, after which spinning pauses.
const PATIENCE: u32 = 8;
/// While it pauses, one wait in so many tries again.
const RETRY: u32 = 16;

/// Spins in vain since the last that found something, of all threads.
static IN_VAIN: AtomicU32 = AtomicU32::new(0);

impl Budget {
    fn limit(self) -> Option<Duration> {
        match self {
            Budget::Fixed(limit) => (!limit.is_zero()).then_some(limit),
            Budget::Auto => {
                let in_vain = IN_VAIN.load(Ordering::Relaxed);
                if in_vain >= PATIENCE && !in_vain.is_multiple_of(RETRY) {
                    IN_VAIN.store(in_vain.wrapping_add(1), Ordering::Relaxed);
                    return None;
                }
                Some(AUTO)
            }
        }
    }

    fn on_spun(self, found: bool) {
        if self != Budget::Auto {
            return;
        }
        if found {
            IN_VAIN.store(0, Ordering::Relaxed);
        } else {
            IN_VAIN.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_pauses_after_it_was_in_vain_and_is_tried_again_now_and_then() {
        let tried = |waits: u32| {
            let spins = (0..waits).filter(|_| {
                let spins = Budget::Auto.limit().is_some();
                if spins {
                    Budget::Auto.on_spun(false);
                }
                spins
            });
            spins.count()
        };
        Budget::Auto.on_spun(true);
        assert_eq!(tried(PATIENCE), 8);
        assert_eq!(tried(10 * RETRY), 10);
        Budget::Auto.on_spun(true);
        assert_eq!(tried(1), 1);
    }
}
