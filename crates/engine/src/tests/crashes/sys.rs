//! Copies of this process that act, and end by themselves, for a signal or at a store that was chosen before. See fork(2),
//! clone(2), mprotect(2), sigaction(2).
//!
//! Memory whose stores are counted is made read-only in the copy. A store faults; the handler lets it through, has the
//! processor stop after that one instruction (the trap flag), and makes the memory read-only again.
#![allow(unsafe_code)]

use crate::state::rows::crash;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{c_int, c_void, siginfo_t, ucontext_t};
use std::cell::Cell;

/// Stores are not counted in more ranges than that.
const RANGES_MAX: usize = 64;
/// Descriptors of a test that no engine shall have closed have this number at least.
pub const DESCRIPTORS_OF_TESTS: i32 = 500;
/// Stop after the next instruction: bit 8 of EFLAGS.
const TRAP_FLAG: i64 = 1 << 8;

/// How a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It came to the end of what it had to do, or said otherwise.
    Exited(i32),
    /// A signal.
    Signal(i32),
}

/// Memory whose stores are counted.
#[derive(Clone, Copy)]
pub struct Memory {
    /// Where it is mapped.
    pub find: fn() -> Vec<Range<usize>>,
    /// Some is mapped in the copy only: it is looked for at every fence.
    pub is_made_there: bool,
}

static RANGES: [[AtomicUsize; 2]; RANGES_MAX] =
    [const { [const { AtomicUsize::new(0) }; 2] }; RANGES_MAX];
/// Stores that were begun, twice, and one more while none is under way.
static POINT: AtomicUsize = AtomicUsize::new(0);
static END_AT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static FOUND_BY: Cell<Option<Memory>> = const { Cell::new(None) };
}

/// Acts in a copy of this process, which has nobody's memory but the files that are mapped, and descriptors of its own. It is killed
/// after `deadline_s` seconds.
pub fn in_process(deadline_s: u32, act: impl FnOnce() -> i32) -> End {
    // SAFETY: fork(2); the child has this thread alone, and libc has its own locks in order.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: the call takes a number.
        unsafe { libc::alarm(deadline_s) };
        exit(act());
    }
    wait(pid)
}

/// Acts in a copy of this process that shares its descriptors, as an engine does with its keeper, and the files that are mapped. It is
/// killed in front of (even numbers) or after (odd ones) a store to `memory`, counted from 0. This process has one thread.
pub fn in_copy(memory: Memory, end_at: usize, act: impl FnOnce()) -> End {
    let flags = libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: clone(2) without a stack of its own, which is fork(2) but for the descriptors; no other thread holds a lock.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if pid == 0 {
        POINT.store(0, Ordering::Relaxed);
        END_AT.store(end_at, Ordering::Relaxed);
        handle(libc::SIGSEGV, on_store);
        handle(libc::SIGTRAP, on_stored);
        FOUND_BY.set(Some(memory));
        look_again();
        if memory.is_made_there {
            crash::at_each_fence(look_again);
        }
        act();
        protect(libc::PROT_READ | libc::PROT_WRITE);
        exit(0);
    }
    wait(i32::try_from(pid).expect("a process"))
}

/// Stores to memory that was not mapped before count from now on.
fn look_again() {
    let found = FOUND_BY.get().map(|memory| (memory.find)());
    for range in found.into_iter().flatten() {
        let is_known = |[start, len]: &[AtomicUsize; 2]| {
            range.start.wrapping_sub(start.load(Ordering::Relaxed)) < len.load(Ordering::Relaxed)
        };
        if RANGES.iter().any(is_known) {
            continue;
        }
        let is_free = |[_, len]: &&[AtomicUsize; 2]| len.load(Ordering::Relaxed) == 0;
        let [start, len] = RANGES.iter().find(is_free).expect("few mappings");
        start.store(range.start, Ordering::Relaxed);
        len.store(range.len(), Ordering::Relaxed);
    }
    protect(libc::PROT_READ);
}

/// Points that this copy has passed.
pub fn points() -> usize {
    POINT.load(Ordering::Relaxed)
}

fn exit(code: i32) -> ! {
    // SAFETY: nothing of this process runs after that; what it shares with others is no memory that it owns.
    unsafe { libc::_exit(code) }
}

fn wait(pid: i32) -> End {
    assert!(pid > 0, "{}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: `status` is a place for a number; the process is a child of this one.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    if libc::WIFSIGNALED(status) {
        End::Signal(libc::WTERMSIG(status))
    } else {
        End::Exited(libc::WEXITSTATUS(status))
    }
}

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

fn handle(signal: c_int, handler: Handler) {
    // SAFETY: zeroes are a value of the structure; the handler stays where it is, and calls nothing that a handler may not.
    let done = unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(signal, &raw const action, core::ptr::null_mut())
    };
    assert_eq!(done, 0);
}

fn protect(protection: c_int) {
    for [start, len] in &RANGES {
        let start = start.load(Ordering::Relaxed) as *mut c_void;
        let len = len.load(Ordering::Relaxed);
        if len > 0 {
            // SAFETY: the range is mapped from a file, and a store that is refused is let through by the handler. One that the
            // engine has unmapped meanwhile is nobody's, and the call fails.
            unsafe { libc::mprotect(start, len, protection) };
        }
    }
}

/// One more point is reached.
fn pass() {
    if POINT.fetch_add(1, Ordering::Relaxed) == END_AT.load(Ordering::Relaxed) {
        // SAFETY: the calls take numbers.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

extern "C" fn on_store(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both to a handler with SA_SIGINFO.
    let (address, context) = unsafe {
        (
            (*info).si_addr() as usize,
            &mut *context.cast::<ucontext_t>(),
        )
    };
    let is_counted = RANGES.iter().any(|[start, len]| {
        let offset = address.wrapping_sub(start.load(Ordering::Relaxed));
        offset < len.load(Ordering::Relaxed)
    });
    if !is_counted {
        // SAFETY: the call takes numbers; the instruction faults once more, and ends the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    pass();
    protect(libc::PROT_READ | libc::PROT_WRITE);
    context.uc_mcontext.gregs[libc::REG_EFL as usize] |= TRAP_FLAG;
}

extern "C" fn on_stored(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: as in `on_store`.
    let context = unsafe { &mut *context.cast::<ucontext_t>() };
    pass();
    protect(libc::PROT_READ);
    context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP_FLAG;
}
