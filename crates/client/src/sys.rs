//! The unsafe of this crate: a slot for values that live for ever, descriptors by number, ppoll(2) with a
//! signal mask. Nothing here decides anything.
#![allow(unsafe_code)]

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use rustix::fd::{BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;

/// Holds a reference to a value that is never freed, and can be replaced by another.
pub struct StaticSlot<T: 'static> {
    value: AtomicPtr<T>,
}

impl<T: Send + Sync + 'static> StaticSlot<T> {
    /// Nothing yet.
    pub const fn empty() -> StaticSlot<T> {
        StaticSlot {
            value: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The value, if there is one.
    pub fn current(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null or came from a `&'static T` in `set`.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// Replaces the value; the one before lives on.
    pub fn set(&self, value: Option<&'static T>) {
        let pointer = value.map_or(ptr::null_mut(), |value| ptr::from_ref(value).cast_mut());
        self.value.store(pointer, Ordering::Release);
    }
}

/// Has these called around each fork(2) of the process, as pthread_atfork(3) says.
pub fn at_fork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: functions live as long as their library, which pthread_atfork(3) remembers them by.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// Closes a descriptor by a system call of our own: dropping an `OwnedFd` would call libc's `close`,
/// which the program, or a preloaded library, may have replaced. A number that the program has closed behind
/// the library's back is EBADF, which is nothing to end a program for.
pub fn close(fd: RawFd) {
    // SAFETY: the caller owns the number and forgets it; the call takes nothing else.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// A descriptor whose owner is known to outlive the call.
pub fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    debug_assert!(fd >= 0);
    // SAFETY: callers pass numbers that they own (or 2, which the program may have closed: then the
    // kernel says EBADF).
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Gives a number its owner.
pub fn own(fd: RawFd) -> OwnedFd {
    use rustix::fd::FromRawFd;
    // SAFETY: the caller owns the number and forgets it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Bytes of the kernel's signal set; glibc's is longer.
const KERNEL_SIGSET_BYTES: usize = 8;

/// ppoll(2): how many descriptors have news. Whatever handlers there are have run before it returns.
pub fn ppoll(
    fds: &mut [libc::pollfd],
    timeout: Option<Duration>,
    mask: Option<&libc::sigset_t>,
) -> Result<usize, Errno> {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    // The kernel writes the remaining time back, so it gets a copy.
    let mut timeout = timeout;
    let timeout = timeout.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the timeout is null or a valid timespec of ours.
    unsafe { raw_ppoll(fds, timeout, mask) }
}

/// As `ppoll`, with a timeout that the kernel writes the remaining time back into.
///
/// # Safety
/// The timeout is null, or has room for a timespec.
pub unsafe fn raw_ppoll(
    fds: &mut [libc::pollfd],
    timeout: *mut libc::timespec,
    mask: Option<&libc::sigset_t>,
) -> Result<usize, Errno> {
    let mask = mask.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the slice is a valid array of its length, the caller vouches for the timeout, and the mask is null or at
    // least as long as the kernel's set. The call itself is not libc's ppoll, which a preloaded library may have
    // replaced, and which would unwind a cancelled thread through the frames above.
    let result = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            fds.as_mut_ptr(),
            fds.len(),
            timeout,
            mask,
            KERNEL_SIGSET_BYTES,
        )
    };
    usize::try_from(result).map_err(|_| last_error())
}

/// Signals whose handlers answer to what the thread itself does: blocked, they would end the process. And
/// glibc's own two, with which it cancels threads and changes the user of all of them.
const NEVER_BLOCKED: [libc::c_int; 9] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
    32,
    33,
];

/// Blocks the thread's signals; returns the mask before, bit n - 1 for signal n.
pub fn block_signals() -> u64 {
    change_mask(libc::SIG_BLOCK, blockable())
}

/// All signals but those that are never blocked, in the same form.
pub fn blockable() -> u64 {
    NEVER_BLOCKED
        .iter()
        .fold(u64::MAX, |mask, signal| mask & !(1 << (signal - 1)))
}

/// Makes the mask what it was.
pub fn restore_signals(mask: u64) {
    change_mask(libc::SIG_SETMASK, mask);
}

fn change_mask(how: libc::c_int, mask: u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: both masks have the kernel's eight bytes. The call is not libc's, which would leave out
    // signals of its own.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            how,
            ptr::from_ref(&mask),
            ptr::from_mut(&mut before),
            size_of::<u64>(),
        )
    };
    before
}

/// The signals that wait for the thread or its process, in the same form.
pub fn pending_signals() -> u64 {
    let mut pending = 0_u64;
    // SAFETY: the kernel writes its eight bytes.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigpending,
            ptr::from_mut(&mut pending),
            size_of::<u64>(),
        )
    };
    pending
}

/// Runs `work` without those of these signals, in the same form, that it may cause in this thread.
pub fn without_signals(set: u64, work: &mut dyn FnMut()) {
    let before = change_mask(libc::SIG_BLOCK, set);
    let waited = pending_signals() & set;
    work();
    let caused = pending_signals() & set & !waited;
    if caused != 0 {
        take_back(caused);
    }
    restore_signals(before);
}

/// A signal in that form.
pub const fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// Takes back one of these signals that waits for the thread, which has them blocked.
fn take_back(set: u64) {
    let at_once = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a set of the kernel's eight bytes, nobody asks who sent it, and a valid time.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigtimedwait,
            ptr::from_ref(&set),
            ptr::null_mut::<libc::siginfo_t>(),
            ptr::from_ref(&at_once),
            size_of::<u64>(),
        )
    };
}

/// The signals of a set of libc's, bit n - 1 for signal n.
pub fn bits(set: &libc::sigset_t) -> u64 {
    // SAFETY: libc's set begins with the kernel's eight bytes, in its order.
    unsafe { ptr::from_ref(set).cast::<u64>().read() }
}

fn last_error() -> Errno {
    // SAFETY: the location is valid for the life of the thread.
    let errno = unsafe { *libc::__errno_location() };
    Errno::from_raw_os_error(errno)
}
