//! The exported symbols of sigaction(2), signal(2) and siginterrupt(3), and the handler that stands in front of the
//! program's.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{sighandler_t, siginfo_t};

use super::{Action, Wish, can_wait, wish};
use crate::abi::symbol::{Symbol, real};
use crate::outcome::Failure;
use crate::sys;

type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

/// libc's own sigaction.
fn real(signal: c_int, new: Option<&libc::sigaction>, old: Option<&mut libc::sigaction>) -> c_int {
    let new = new.map_or(ptr::null(), ptr::from_ref);
    let old = old.map_or(ptr::null_mut(), ptr::from_mut);
    real!(sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int)
}

fn ours() -> usize {
    on_signal as *const () as usize
}

fn empty() -> libc::sigaction {
    // SAFETY: all zeros is the default action with an empty mask.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn kernel_mask(set: &libc::sigset_t) -> u64 {
    // SAFETY: libc's set begins with the kernel's eight bytes.
    unsafe { ptr::from_ref(set).cast::<u64>().read() }
}

fn all_signals() -> libc::sigset_t {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: a valid place for a set.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// Changes what is done about a signal for the program; -1 and errno as sigaction(2).
fn change(
    signal: c_int,
    new: Option<&libc::sigaction>,
    old: Option<&mut libc::sigaction>,
) -> c_int {
    let Some(place) = wish(signal).filter(|_| can_wait(signal)) else {
        return real(signal, new, old);
    };
    let before = place.load();
    let in_front = new.filter(|new| !is_plain(new.sa_sigaction)).map(|new| {
        let action = Action {
            handler: new.sa_sigaction,
            flags: new.sa_flags,
            mask: kernel_mask(&new.sa_mask),
        };
        // Before ours is installed: it must find the handler.
        place.store(action);
        libc::sigaction {
            sa_sigaction: ours(),
            sa_mask: all_signals(),
            sa_flags: action.installed_flags(),
            sa_restorer: None,
        }
    });
    let mut found = empty();
    let result = real(signal, in_front.as_ref().or(new), Some(&mut found));
    if result != 0 {
        place.store(before);
        return result;
    }
    if let Some(old) = old {
        *old = if found.sa_sigaction == ours() {
            as_installed(before)
        } else {
            found
        };
    }
    0
}

fn is_plain(handler: sighandler_t) -> bool {
    handler == libc::SIG_DFL || handler == libc::SIG_IGN
}

fn as_installed(action: Action) -> libc::sigaction {
    let mut installed = empty();
    installed.sa_sigaction = action.handler;
    installed.sa_flags = action.flags;
    // SAFETY: libc's set begins with the kernel's eight bytes.
    unsafe {
        (&raw mut installed.sa_mask)
            .cast::<u64>()
            .write(action.mask)
    };
    installed
}

/// Stands in front of every handler of the program, with all signals blocked.
unsafe extern "C-unwind" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let errno = sys::errno();
    // SAFETY: these are the arguments of a handler with SA_SIGINFO and a full mask.
    let waits = unsafe { client::inline_engine::defer(signal, info, context) };
    if !waits && let Some(action) = wish(signal).map(Wish::load) {
        // SAFETY: as above; the context's mask is what the thread had.
        unsafe { run(signal, info, context, action) };
    }
    sys::set_errno(errno);
}

/// # Safety
/// With the arguments of a handler.
unsafe fn run(signal: c_int, info: *mut siginfo_t, context: *mut c_void, action: Action) {
    if action.flags & libc::SA_RESETHAND != 0 {
        real(signal, Some(&empty()), None);
    }
    client::on_handler(action.flags & libc::SA_RESTART != 0);
    // SAFETY: the kernel's context begins its mask with the kernel's eight bytes; the handler is the program's
    // own, and takes these arguments or fewer.
    unsafe {
        let interrupted = (&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask)
            .cast::<u64>()
            .read();
        let mask = action.running_mask(signal, interrupted);
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            ptr::null_mut::<u64>(),
            size_of::<u64>(),
        );
        let handler: Handler = std::mem::transmute(action.handler);
        handler(signal, info, context);
    }
}

/// As libc's sigaction.
///
/// # Safety
/// As libc's: the pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // Copied first, since both may be the same.
    // SAFETY: the caller's contract.
    let new = unsafe { sys::optional(new) };
    let mut found = empty();
    let result = change(signal, new.as_ref(), Some(&mut found));
    if result == 0 && !old.is_null() {
        // SAFETY: the caller's contract.
        unsafe { old.write(found) };
    }
    result
}

/// Signals for which siginterrupt(3) has asked that calls be interrupted by handlers of signal(2).
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);

fn bit(signal: c_int) -> u64 {
    u32::try_from(signal - 1).map_or(0, |shift| 1_u64.checked_shl(shift).unwrap_or(0))
}

fn install(signal: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    let mut new = empty();
    new.sa_sigaction = handler;
    new.sa_flags = flags;
    let mut old = empty();
    match change(signal, Some(&new), Some(&mut old)) {
        0 => old.sa_sigaction,
        _ => libc::SIG_ERR,
    }
}

/// As libc's signal, which installs handlers that stay and restart calls.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    let interrupts = INTERRUPTS.load(Ordering::Relaxed) & bit(signal) != 0;
    let mut flags = if interrupts { 0 } else { libc::SA_RESTART };
    // POSIX leaves the mask open; libc blocks the signal itself, which the kernel does anyway.
    if is_plain(handler) {
        flags = 0;
    }
    install(signal, handler, flags)
}

/// As libc's sysv_signal: once, and without blocking.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER)
}

/// As libc's __sysv_signal, which strict X/Open programs call for signal.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER)
}

/// As libc's siginterrupt.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    let mut action = empty();
    if change(signal, None, Some(&mut action)) != 0 {
        return -1;
    }
    if interrupts != 0 {
        INTERRUPTS.fetch_or(bit(signal), Ordering::Relaxed);
        action.sa_flags &= !libc::SA_RESTART;
    } else {
        INTERRUPTS.fetch_and(!bit(signal), Ordering::Relaxed);
        action.sa_flags |= libc::SA_RESTART;
    }
    change(signal, Some(&action), None)
}
