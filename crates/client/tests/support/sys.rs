//! fork, signals and an allocator that counts, for tests.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use client::Session;
use rustix::process::{Pid, WaitOptions};

/// Forks as a program with the switch does; the child runs `body` and ends. Returns its number.
pub fn fork(session: &'static Session, body: impl FnOnce()) -> Pid {
    session.fork_prepare();
    // SAFETY: the child runs only this thread's code, and ends without returning.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        session.fork_child();
        let code = if catch_unwind(AssertUnwindSafe(body)).is_ok() {
            0
        } else {
            1
        };
        // SAFETY: ends the process.
        unsafe { libc::_exit(code) };
    }
    session.fork_parent();
    Pid::from_raw(pid).expect("fork failed")
}

/// Waits for a child and returns its exit code.
pub fn join(pid: Pid) -> Option<i32> {
    let (_, status) = rustix::process::waitpid(Some(pid), WaitOptions::empty())
        .unwrap()
        .unwrap();
    status.exit_status()
}

extern "C" fn on_signal(_: libc::c_int) {}

/// Installs a handler that does nothing, for SIGUSR1.
pub fn handle_usr1() {
    // SAFETY: a zeroed sigaction with a valid handler.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int) = on_signal;
        action.sa_sigaction = handler as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()),
            0
        );
    }
}

/// The calling thread, for `interrupt`.
pub fn this_thread() -> libc::pthread_t {
    // SAFETY: always allowed.
    unsafe { libc::pthread_self() }
}

/// Sends SIGUSR1 to a thread that still runs.
pub fn interrupt(thread: libc::pthread_t) {
    // SAFETY: the caller joins the thread later, so its handle is valid.
    assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
}

/// A mask that blocks SIGUSR1.
pub fn mask_with_usr1() -> libc::sigset_t {
    // SAFETY: both functions fill or change the set they are given.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGUSR1);
        set
    }
}

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Allocations of this thread so far.
pub fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// The system's allocator, counting.
pub struct Counting;

// SAFETY: hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Writes into spans of a send window as sendfile does.
pub fn fill(spans: [(*mut u8, usize); 2], bytes: &[u8]) {
    let mut rest = bytes;
    for (pointer, len) in spans {
        let part = &rest[..len.min(rest.len())];
        // SAFETY: the span is writable while its reservation lives.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), pointer, part.len()) };
        rest = &rest[part.len()..];
    }
}
