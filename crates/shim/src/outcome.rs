//! How a served call ends, and the edge where that becomes C: a return value and `errno`.
//!
//! No panic crosses into C: one inside the switch is a bug of ours and becomes EIO for the program.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;

use crate::sys::{self, Inside};

/// `Ok(None)`: the switch has nothing to do with this call, libc's own function shall run.
pub type Switched<T> = Result<Option<T>, Errno>;

/// Return types of C calls that say failure with -1.
pub trait Failure {
    /// -1.
    const FAILED: Self;
}

impl Failure for i32 {
    const FAILED: i32 = -1;
}

impl Failure for isize {
    const FAILED: isize = -1;
}

impl Failure for () {
    const FAILED: () = ();
}

/// Runs a served call: `None` asks for libc's own function; a success leaves `errno` as it was.
pub fn at_the_edge<T: Failure>(call: impl FnOnce() -> Switched<T>) -> Option<T> {
    let errno = sys::errno();
    let inside = Inside::enter();
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno::IO));
    drop(inside);
    match result {
        Ok(value) => {
            sys::set_errno(errno);
            value
        }
        Err(error) => {
            sys::set_errno(error.raw_os_error());
            Some(T::FAILED)
        }
    }
}

/// A byte count as C returns it.
pub fn count(bytes: usize) -> isize {
    isize::try_from(bytes).expect("invariant: no call moves more than MAX_RW_COUNT bytes")
}
