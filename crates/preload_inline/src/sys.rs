//! The symbol by which the switch asks for an engine in this library; and how the engine outlives the process, in a
//! forked child.
//!
//! The child is a child's child, so that nobody meets it in wait(2), keeps the engine's descriptors and no
//! other, and begins when the process has gone: when the last write end of a pipe is closed, by the
//! exit or, close-on-exec, by the exec. Where an exec fails, a byte in the pipe calls it off.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use client::inline_engine::SignalDeferral;
use engine::Kept;
use rustix::pipe::{PipeFlags, pipe_with};
use shim::Inside;
use shim::inline::{EmbeddedEngine, Leaving, forget_program, leaving};
use shim::process::exit::end;

use crate::engine::{Embedded, running, tell_guard};

/// The engine in this library.
// SAFETY: the type is that of the declaration in `shim`, and no other library defines the name.
#[unsafe(no_mangle)]
static shunt_embedded_engine: Option<&'static dyn EmbeddedEngine> = Some(&Embedded);

// The symbol is this library's own affair: nothing else in the process sees it, or has one of that name that comes first.
core::arch::global_asm!(".hidden shunt_embedded_engine");

/// How long the end of a process waits for whoever is running the engine.
const PATIENCE: Duration = Duration::from_secs(1);

/// The engine stands still here, and a child waits to go on with it.
struct Left {
    _kept: Kept<'static>,
    pipe: OwnedFd,
    /// The child's end: a write to one that was killed would be a SIGPIPE to the program.
    _rx: OwnedFd,
}

impl Leaving for Left {
    fn has_heir(&self) -> bool {
        true
    }

    fn call_off(self: Box<Self>) {
        tell_guard(false);
        let _ = rustix::io::write(&self.pipe, b"x");
    }
}

/// No connection needs the engine any more.
struct NothingLeft;

impl Leaving for NothingLeft {
    fn has_heir(&self) -> bool {
        false
    }

    fn call_off(self: Box<Self>) {
        tell_guard(false);
    }
}

/// The process is about to end, or to become another program.
pub fn leave() -> Option<Box<dyn Leaving>> {
    let engine = running()?;
    let _inside = Inside::enter();
    // Also when the process ends in a panic: nothing here depends on what it was about.
    let quiet = SignalDeferral::begin();
    let kept = engine.keep(PATIENCE)?;
    if !kept.is_needed() {
        // Nobody is left whom the guard would have to tell.
        tell_guard(true);
        return Some(Box::new(NothingLeft));
    }
    let (rx, pipe) = pipe_with(PipeFlags::CLOEXEC).ok()?;
    let fork = || {
        // SAFETY: the child goes on in this function and never returns to the program.
        let child = unsafe { libc::fork() };
        if child != 0 {
            return (child, kept, rx);
        }
        // SAFETY: as above; the process in between ends at once, so that init adopts the other.
        if unsafe { libc::fork() } == 0 {
            carry_on(kept, rx);
        }
        end(0)
    };
    // The handlers of the program are not to run in the child.
    let (child, kept, rx) = leaving(|| client::inline_engine::with_signals_blocked(fork));
    if child > 0 {
        // SAFETY: no status is asked for.
        while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } < 0 && is_interrupted() {}
    }
    drop(quiet);
    if child > 0 {
        tell_guard(true);
        Some(Box::new(Left {
            _kept: kept,
            pipe,
            _rx: rx,
        }))
    } else {
        None
    }
}

fn is_interrupted() -> bool {
    std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
}

/// In the child: waits until the parent is gone, and runs its engine.
fn carry_on(kept: Kept<'static>, rx: OwnedFd) -> ! {
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let _ = rustix::thread::set_name(c"shunt-inline");
    close_others(rx.as_raw_fd());
    forget_program();
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
    let mut kept: Vec<RawFd> = client::relocated(limit.unwrap_or(RawFd::MAX)).collect();
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

/// Where the descriptors of a program that is started apart begin: 0 to 2 are /dev/null.
const FIRST: RawFd = 3;

unsafe extern "C" {
    /// clone(2) by its other name: the switch takes whoever calls it by the usual one for the program, and asks from then on whose memory it is in.
    #[link_name = "__clone"]
    fn libc_clone(
        run: extern "C" fn(*mut libc::c_void) -> libc::c_int,
        stack: *mut libc::c_void,
        flags: libc::c_int,
        argument: *mut libc::c_void,
        ...
    ) -> libc::c_int;
}

/// For a child that shares this process's memory until it has become another program.
const CHILD_STACK_BYTES: usize = 32 << 10;

/// What the two children of a start need. Both have this very memory, and stacks of their own.
struct Start<'a> {
    program: &'a CStr,
    words: &'a [*const libc::c_char],
    fds: [RawFd; 5],
    /// The upper end of the second child's stack.
    stack: *mut libc::c_void,
}

/// Starts a program that nobody of this process meets in wait(2), nor hears of by SIGCHLD: a child's child, where the child
/// in between sends no signal at its end. It has these descriptors as its third and following ones, no others, an empty
/// environment and every signal blocked. No page of this process is copied, however many it has.
pub fn start_apart(program: &CStr, arguments: &[CString], fds: [RawFd; 5]) -> io::Result<()> {
    // All that is needed afterwards is made before: another thread may hold the lock of the heap.
    let mut words: Vec<*const libc::c_char> = arguments.iter().map(|word| word.as_ptr()).collect();
    words.push(std::ptr::null());
    let mut stacks = [(); 2].map(|()| vec![0_u128; CHILD_STACK_BYTES / size_of::<u128>()]);
    let [first, second] = stacks
        .each_mut()
        .map(|one| one.as_mut_ptr_range().end.cast());
    let start = Start {
        program,
        words: &words,
        fds,
        stack: second,
    };
    let start = std::ptr::from_ref(&start).cast_mut().cast();
    // SAFETY: this thread stands still until the child has ended (CLONE_VFORK), and that one until the other is another program, so what
    // `start` refers to and the stacks outlive both (signals are blocked, and nobody knows the first one's number, to kill it); they make
    // system calls alone.
    let clone = || unsafe { libc_clone(between, first, CHILD_FLAGS, start) };
    let child = client::inline_engine::with_signals_blocked(clone);
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    loop {
        let nothing = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: neither a status nor the use of resources is asked for.
        let waited =
            unsafe { libc::syscall(libc::SYS_wait4, child, nothing, libc::__WALL, nothing) };
        if waited >= 0 || !is_interrupted() {
            return Ok(());
        }
    }
}

/// As vfork(2), without a signal at the end.
const CHILD_FLAGS: libc::c_int = libc::CLONE_VM | libc::CLONE_VFORK;

/// The child in between: it starts the other and ends.
extern "C" fn between(start: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `start_apart` gives a `Start` that outlives both children.
    let stack = unsafe { (*start.cast::<Start<'_>>()).stack };
    // SAFETY: as the first one, with the usual signal, which this child does not live to see.
    unsafe { libc_clone(execute, stack, CHILD_FLAGS | libc::SIGCHLD, start) };
    0
}

/// The second child becomes the program. Nothing here allocates or locks, and every call goes to the system directly.
extern "C" fn execute(start: *mut libc::c_void) -> libc::c_int {
    // SAFETY: as in `between`.
    let start = unsafe { &*start.cast::<Start<'_>>() };
    let empty: [*const libc::c_char; 1] = [std::ptr::null()];
    // SAFETY: numbers, and strings and lists that end with null; only descriptors of this child, which has a table of its own, change.
    unsafe {
        libc::syscall(libc::SYS_setsid);
        let null = c"/dev/null".as_ptr();
        let null = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, null, libc::O_RDWR);
        // Out of the way first: each of these numbers may be another one's target.
        let (apart, least) = (libc::F_DUPFD, 64);
        let moved = start
            .fds
            .map(|fd| libc::syscall(libc::SYS_fcntl, fd, apart, least));
        for number in 0..FIRST {
            libc::syscall(libc::SYS_dup3, null, number, 0);
        }
        for (number, fd) in (FIRST..).zip(moved) {
            libc::syscall(libc::SYS_dup3, fd, number, 0);
        }
        let after = FIRST + 5;
        libc::syscall(libc::SYS_close_range, after, u32::MAX, 0);
        libc::syscall(
            libc::SYS_execve,
            start.program.as_ptr(),
            start.words.as_ptr(),
            empty.as_ptr(),
        );
    }
    1
}
