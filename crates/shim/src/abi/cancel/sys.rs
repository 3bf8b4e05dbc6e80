//! The exported pthread_cancel, and libc's own test.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::pthread_t;

use crate::abi::symbol::{Symbol, real};
use crate::outcome::Failure;
use crate::sys;

/// The program has cancelled a thread at some time.
static IS_USED: AtomicBool = AtomicBool::new(false);

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// Ends the calling thread if it was cancelled and does not mind. Called with nothing held: it does not return then.
#[inline]
pub fn act() {
    if IS_USED.load(Ordering::Relaxed) {
        // SAFETY: no preconditions; the frames above have nothing to clean up.
        unsafe { pthread_testcancel() };
    }
}

/// As libc's pthread_cancel; a thread that sleeps in this library hears of it.
///
/// # Safety
/// The thread exists.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cancel(thread: pthread_t) -> c_int {
    IS_USED.store(true, Ordering::SeqCst);
    let result = real!(pthread_cancel(thread: pthread_t) -> c_int);
    if result == 0 {
        // SAFETY: the caller's contract.
        unsafe { client::cancelled(thread) };
    }
    result
}
