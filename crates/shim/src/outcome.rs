//! How a served call ends, and the edge where that becomes C: a return value and `errno`.
//!
//! No panic crosses into C: one inside the switch is a bug of ours and becomes EIO for the program.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;

use crate::abi::cancel;
use crate::sys::{self, Handled, Inside};
use crate::wait::sleep::RESTART;

/// `Ok(None)`: the switch has nothing to do with this call, libc's own function shall run.
pub type Switched<T> = Result<Option<T>, Errno>;

/// Return types of C calls that say failure with -1, or with null.
pub trait Failure {
    /// Either.
    const FAILED: Self;
}

impl Failure for i32 {
    const FAILED: i32 = -1;
}

impl Failure for isize {
    const FAILED: isize = -1;
}

impl Failure for *mut std::ffi::c_void {
    const FAILED: Self = std::ptr::null_mut();
}

impl Failure for () {
    const FAILED: () = ();
}

/// Runs a served call: `None` asks for libc's own function; a success leaves `errno` as it was. Handlers of signals that have
/// come meanwhile run at the end, when nothing is held: they may make calls, and may leave by siglongjmp(3).
pub fn at_the_edge<T: Failure>(mut call: impl FnMut() -> Switched<T>) -> Option<T> {
    loop {
        if let Some(ended) = try_at_the_edge(&mut call) {
            return ended;
        }
    }
}

/// As [`at_the_edge`], of a call that is a cancellation point (pthreads(7)): a thread that was cancelled does not begin it, and
/// does not sleep in it. What has been done by then is told first, and the next such call ends the thread.
pub fn at_a_cancellation_point<T: Failure>(mut call: impl FnMut() -> Switched<T>) -> Option<T> {
    loop {
        if let Some(ended) = try_at_a_cancellation_point(&mut call) {
            return ended;
        }
    }
}

/// As [`at_the_edge`]. `None`: a handler has ended a sleep, and the call is to be made again.
pub fn try_at_the_edge<T: Failure>(call: impl FnOnce() -> Switched<T>) -> Option<Option<T>> {
    match once(call) {
        Ended::Restarts => None,
        Ended::Interrupted => Some(interrupted()),
        Ended::Done(value) => Some(value),
    }
}

/// As [`at_a_cancellation_point`]. `None`: a handler has ended a sleep, and the call is to be made again.
pub fn try_at_a_cancellation_point<T: Failure>(
    call: impl FnOnce() -> Switched<T>,
) -> Option<Option<T>> {
    cancel::act();
    match once(call) {
        Ended::Restarts => None,
        Ended::Interrupted => {
            cancel::act();
            Some(interrupted())
        }
        Ended::Done(value) => Some(value),
    }
}

/// A call that is made once, whatever becomes of it.
pub fn once_at_the_edge<T: Failure>(call: impl FnOnce() -> Switched<T>) -> Option<T> {
    let mut call = Some(call);
    at_the_edge(|| call.take().map_or(Ok(None), |call| call()))
}

/// Runs code of the switch after a call of libc's, whose result and errno stay as they are.
pub fn beside(follow: impl FnOnce()) {
    once_at_the_edge(|| {
        follow();
        Ok(None::<()>)
    });
}

/// How a call ended.
enum Ended<T> {
    Done(Option<T>),
    Interrupted,
    Restarts,
}

#[inline(always)]
fn once<T: Failure>(call: impl FnOnce() -> Switched<T>) -> Ended<T> {
    let errno = sys::errno();
    let inside = Inside::enter();
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno::IO));
    match result {
        Ok(value) => {
            drop(inside);
            sys::set_errno(errno);
            Ended::Done(value)
        }
        Err(error) => failed(error, inside.leave(), errno),
    }
}

#[inline(never)]
fn failed<T: Failure>(error: Errno, handled: Option<Handled>, errno: i32) -> Ended<T> {
    match error {
        RESTART if restarts(handled) => {
            sys::set_errno(errno);
            Ended::Restarts
        }
        RESTART | Errno::INTR => Ended::Interrupted,
        error => {
            sys::set_errno(error.raw_os_error());
            Ended::Done(Some(T::FAILED))
        }
    }
}

fn interrupted<T: Failure>() -> Option<T> {
    sys::set_errno(libc::EINTR);
    Some(T::FAILED)
}

fn restarts(handled: Option<Handled>) -> bool {
    match handled {
        Some(handled) => handled.all_restart,
        None => sys::all_handlers_restart(),
    }
}

/// A byte count as C returns it.
pub fn count(bytes: usize) -> isize {
    isize::try_from(bytes).expect("invariant: no call moves more than MAX_RW_COUNT bytes")
}
