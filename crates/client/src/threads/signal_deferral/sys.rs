//! The system calls around signals that wait, and the state of other threads.
#![allow(unsafe_code)]

use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;

use super::{State, Timeout};
use crate::sys;

/// As `ppoll`, with a timeout that the thread's handlers and other threads may change until the sleep begins.
pub fn ppoll_until(
    fds: &mut [libc::pollfd],
    timeout: &Timeout,
    mask: Option<&libc::sigset_t>,
) -> Result<usize, Errno> {
    let timeout = ptr::from_ref(timeout).cast_mut().cast();
    // SAFETY: two atomics in the layout of a timespec, which may be written at any time: by the kernel too, with the
    // time that is left.
    unsafe { sys::raw_ppoll(fds, timeout, mask) }
}

/// The calling thread's own state. Not for what may leave the thread.
pub fn own_state() -> &'static State {
    // SAFETY: it has no destructor and lies in the thread's memory until the thread has ended; whoever has this reference
    // (`SignalDeferral`) stays in the thread.
    unsafe { &*super::address() }
}

/// The kernel's number of the calling thread.
pub fn thread_number() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// The signal by which glibc cancels a thread asynchronously (SIGCANCEL). Its handler does nothing in a thread that is
/// cancelled where it waits only.
const CANCEL_SIGNAL: libc::c_int = 32;

/// Ends the sleep of a thread of this process that was cancelled.
pub fn notify(thread: i32) {
    // SAFETY: the call takes numbers. A thread with this number that is another by now is woken once for nothing.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, CANCEL_SIGNAL) };
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

/// Whether the calling thread may be cancelled at all.
pub fn is_cancellation_enabled() -> bool {
    const ENABLE: libc::c_int = 0;
    const DISABLE: libc::c_int = 1;
    let mut before = ENABLE;
    // SAFETY: a valid place for the state before, which is restored at once. No thread of which asynchronous
    // cancellation is asked may call functions of this library (pthreads(7)).
    unsafe {
        pthread_setcancelstate(DISABLE, &raw mut before);
        pthread_setcancelstate(before, ptr::null_mut());
    }
    before == ENABLE
}

/// How far the state of a thread (`signal_deferral.rs`) lies from what pthread_self(3) names; 0: not known.
static STATE_OFFSET: AtomicUsize = AtomicUsize::new(0);

/// Thread-local memory of a library that is there from the start lies at the same distance from what pthread_self(3)
/// names in every thread. Called once, when the library is loaded.
pub fn find_thread_states() {
    let offset = super::address().addr().wrapping_sub(this_thread());
    STATE_OFFSET.store(offset, Ordering::Relaxed);
}

fn this_thread() -> usize {
    // SAFETY: no preconditions.
    address_of(unsafe { libc::pthread_self() })
}

fn address_of(thread: libc::pthread_t) -> usize {
    usize::from_ne_bytes(thread.to_ne_bytes())
}

/// Another thread was cancelled: a sleep of it in this library ends.
///
/// # Safety
/// The thread exists, as pthread_cancel(3) demands.
pub unsafe fn cancelled(thread: libc::pthread_t) {
    let offset = STATE_OFFSET.load(Ordering::Relaxed);
    if offset == 0 {
        return;
    }
    let state: *const State = ptr::with_exposed_provenance(address_of(thread).wrapping_add(offset));
    // SAFETY: a thread has its thread-local memory until somebody has joined it, and ours there at that place: see
    // `find_thread_states`. Whatever is written there are atomics.
    unsafe { (*state).cancel() };
}

/// For whoever stands in front of a handler of the program: within a call of the library the signal is put off until
/// that is over, and the handler is not to be run.
///
/// # Safety
/// Called by a signal handler that was installed with SA_SIGINFO and all signals blocked, with the
/// arguments that it got.
pub unsafe fn defer(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) -> bool {
    // SAFETY: the kernel gave a valid context, whose mask has the kernel's eight bytes and is what
    // becomes the thread's when the handler returns.
    let mask =
        unsafe { &mut *(&raw mut (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<u64>() };
    if !super::hold(*mask) {
        return false;
    }
    *mask |= sys::blockable();
    // SAFETY: sends the thread a signal of its own, with the information that the kernel gave, which may
    // say anything when it is for oneself.
    unsafe {
        let process = libc::getpid();
        let thread = libc::syscall(libc::SYS_gettid);
        if libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info) < 0 {
            // No room to queue it with what it says.
            libc::syscall(libc::SYS_tgkill, process, thread, signal);
        }
    }
    true
}
