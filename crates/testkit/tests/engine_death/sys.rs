//! fork(2) as a program with the switch does it.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use client::Session;

/// Forks; the child runs `body` and ends.
pub fn fork(session: &'static Session, body: impl FnOnce()) {
    session.fork_prepare();
    // SAFETY: the child runs only this thread's code, and ends without returning.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        session.fork_child();
        let failed = catch_unwind(AssertUnwindSafe(body)).is_err();
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    session.fork_parent();
}
