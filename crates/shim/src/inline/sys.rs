//! exit(3), _exit(2), execve(2): the engine inside the program outlives it, in a forked child.
//!
//! The child is a child's child, so that nobody meets it in wait(2), keeps the engine's descriptors and no
//! other, and begins when the process has gone: when the last write end of a pipe is closed, by the
//! exit or, close-on-exec, by the exec. Where an exec fails, a byte in the pipe calls it off.
//! What is not caught: a process that is killed.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use client::inline_engine::SignalDeferral;
use engine::Kept;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::exec::sys::{Strings, execute};
use crate::sys::{Inside, Symbol};

/// How long the end of a process waits for whoever is running the engine.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether the environment asks for an engine inside the program. Neither locks nor allocates.
pub fn is_wanted() -> bool {
    static WANTED: AtomicU8 = AtomicU8::new(UNKNOWN);
    const UNKNOWN: u8 = 2;
    let known = WANTED.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known == 1;
    }
    // SAFETY: the name ends with a zero byte; the value is looked at at once.
    let wanted = unsafe {
        let value = libc::getenv(hostif::INLINE_VARIABLE_NAME.as_ptr());
        !value.is_null() && *value != 0
    };
    WANTED.store(u8::from(wanted), Ordering::Relaxed);
    wanted
}

thread_local! {
    static LEAVING: Cell<bool> = const { Cell::new(false) };
}

/// Whether the thread forks the child that goes on with the engine: then a fork is not the program's.
pub fn is_leaving() -> bool {
    LEAVING.with(Cell::get)
}

/// The engine stands still here, and a child waits to go on with it.
struct Left {
    _kept: Kept<'static>,
    pipe: OwnedFd,
}

impl Left {
    /// The process goes on after all.
    fn call_off(self) {
        let _ = rustix::io::write(&self.pipe, b"x");
    }
}

/// The process is about to end, or to become another program.
fn leave() -> Option<Left> {
    let engine = super::engine()?;
    let _inside = Inside::enter();
    // Also when the process ends in a panic: nothing here depends on what it was about.
    let quiet = SignalDeferral::begin();
    let kept = engine.keep(PATIENCE)?;
    if !kept.is_needed() {
        return None;
    }
    let (rx, pipe) = pipe_with(PipeFlags::CLOEXEC).ok()?;
    LEAVING.with(|leaving| leaving.set(true));
    // The handlers of the program are not to run in the child.
    let (child, kept) = client::inline_engine::with_signals_blocked(move || {
        // SAFETY: the child goes on in this function and never returns to the program.
        let child = unsafe { libc::fork() };
        if child != 0 {
            return (child, kept);
        }
        // SAFETY: as above; the process in between ends at once, so that init adopts the other.
        if unsafe { libc::fork() } == 0 {
            carry_on(kept, rx);
        }
        end(0)
    });
    LEAVING.with(|leaving| leaving.set(false));
    if child > 0 {
        // SAFETY: no status is asked for.
        while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } < 0
            && crate::sys::errno() == libc::EINTR
        {}
    }
    drop(quiet);
    (child > 0).then_some(Left { _kept: kept, pipe })
}

/// In the child: waits until the parent is gone, and runs its engine.
fn carry_on(kept: Kept<'static>, rx: OwnedFd) -> ! {
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let _ = rustix::thread::set_name(c"shunt-inline");
    close_others(rx.as_raw_fd());
    // SAFETY: both sets are valid; the handlers of the program are not to run here, but the process can be
    // told to end.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
        let mut only = std::mem::zeroed();
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, libc::SIGTERM);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
    }
    if rustix::io::read(&rx, &mut [0_u8; 1]) == Ok(0) {
        drop(rx);
        // There is nobody left to tell.
        let _ = kept.run_alone();
    }
    end(0)
}

/// Closes every descriptor but the engine's and one more.
fn close_others(one_more: RawFd) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.and_then(|limit| RawFd::try_from(limit).ok());
    let mut kept: Vec<RawFd> = client::settled(limit.unwrap_or(RawFd::MAX)).collect();
    kept.push(one_more);
    kept.sort_unstable();
    let mut start = 0;
    for fd in kept.into_iter().map(RawFd::unsigned_abs) {
        if start < fd {
            close_range(start, fd - 1);
        }
        start = fd + 1;
    }
    close_range(start, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    // SAFETY: none of these numbers is used in this process any more.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

fn end(status: c_int) -> ! {
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// Runs after the program's own exit handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

extern "C" fn at_exit() {
    std::mem::forget(leave());
}

/// As libc's _exit.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    at_exit();
    end(status)
}

/// As libc's _Exit.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    at_exit();
    end(status)
}

/// Exports functions of the exec family, which return only where they fail.
macro_rules! execs {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(by $file:ident, $searches:literal, $arguments:ident, $environment:expr)?;)*) => {$(
        /// As libc's function of this name.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            static REAL: Symbol = Symbol::new(
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                },
            );
            let Some(address) = REAL.address() else {
                crate::sys::set_errno(libc::ENOSYS);
                return -1;
            };
            $(
                // SAFETY: the caller has met the preconditions of libc's function, which are the same.
                let started = unsafe { execute($file, $searches, $arguments, $environment) };
                if let Some(failed) = started {
                    return failed;
                }
            )?
            let left = leave();
            // SAFETY: libc's function of this name has this signature, and the caller of ours has met
            // its preconditions.
            let result = unsafe {
                let function: unsafe extern "C" fn($($type),*) -> c_int =
                    std::mem::transmute(address);
                function($($arg),*)
            };
            if let Some(left) = left {
                let errno = crate::sys::errno();
                left.call_off();
                crate::sys::set_errno(errno);
            }
            result
        }
    )*};
}

execs! {
    fn execve(path: *const c_char, arguments: Strings, environment: Strings) by path, false, arguments, environment;
    fn execv(path: *const c_char, arguments: Strings) by path, false, arguments, std::ptr::null();
    fn execvp(file: *const c_char, arguments: Strings) by file, true, arguments, std::ptr::null();
    fn execvpe(file: *const c_char, arguments: Strings, environment: Strings) by file, true, arguments, environment;
    fn fexecve(fd: c_int, arguments: Strings, environment: Strings);
}
