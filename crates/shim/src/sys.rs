//! System calls and `errno`, where Rust cannot check what is done: signal dispositions, options of backing sockets.
//!
//! Nothing here decides anything.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use client::SignalDeferral;
use client::inline_engine::Held;
use rustix::io::Errno;

use crate::abi::symbol::Symbol;

pub use c_memory::{
    Targets, array_mut, bytes, bytes_mut, check_message_name, check_name, check_parts, copied,
    copy_out, give_result, given, io_slices, io_slices_mut, is_memory, messages_to_send, optional,
    usual_bytes, usual_bytes_mut,
};

/// The calling thread's `errno`.
pub fn errno() -> c_int {
    // SAFETY: the location is valid for the life of the thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub fn set_errno(value: c_int) {
    // SAFETY: as above; only this thread touches it.
    unsafe { *libc::__errno_location() = value };
}

/// Marks the thread as executing the library's own code while it lives. Handlers of the program wait until the outermost
/// is dropped, and run then: last, when nothing else is held.
pub struct Inside(SignalDeferral);

impl Inside {
    /// Enters; the drop of the value leaves again.
    pub fn enter() -> Self {
        Self(SignalDeferral::begin())
    }

    /// Leaves. What handlers have run by that, if any.
    pub fn leave(self) -> Option<Handled> {
        let [(ran, interrupting), now] = self.0.end();
        (now.0 != ran).then_some(Handled {
            all_restart: now.1 == interrupting,
        })
    }

    /// For whoever is further down in a call.
    #[inline]
    pub fn held() -> Held {
        SignalDeferral::held()
    }

    /// Whether a call that arrives at an exported symbol comes from the library itself.
    pub fn is_active() -> bool {
        SignalDeferral::is_active()
    }
}

/// Handlers of the program that have run.
pub struct Handled {
    /// Each has SA_RESTART.
    pub all_restart: bool,
}

/// A descriptor number of the program, for the length of one system call.
pub fn borrow(fd: RawFd) -> Result<BorrowedFd<'static>, Errno> {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: not negative. The program may close the number at any time, as with any C call that
    // takes one: the kernel then answers EBADF, or acts on what the number has become, as it would
    // have for the program itself.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Whether a supervisor hears this process's calls.
pub fn is_supervised() -> bool {
    // SAFETY: the call takes numbers; the kernel refuses it.
    let answer = unsafe { libc::syscall(libc::SYS_shutdown, -1, hostif::supervision::QUESTION) };
    answer == hostif::supervision::ANSWER
}

/// What accept(2) says of a descriptor that is no socket.
pub fn accept_nothing(no_socket: BorrowedFd<'_>) -> Errno {
    let none = ptr::null::<libc::sockaddr>();
    // SAFETY: nobody wants to know the peer, whom there is not.
    let result = unsafe {
        libc::syscall(
            libc::SYS_accept4,
            no_socket.as_raw_fd(),
            none,
            none,
            libc::SOCK_CLOEXEC,
        )
    };
    done(result).err().unwrap_or(Errno::NOTSOCK)
}

/// A duplicate with the lowest free number, close-on-exec or not.
pub fn lowest_copy(fd: BorrowedFd<'_>, closes: bool) -> Result<OwnedFd, Errno> {
    let call = match closes {
        true => libc::F_DUPFD_CLOEXEC,
        false => libc::F_DUPFD,
    };
    // SAFETY: three numbers.
    let number = done(unsafe { libc::syscall(libc::SYS_fcntl, fd.as_raw_fd(), call, 0) })?;
    let number = RawFd::try_from(number).map_err(|_| Errno::MFILE)?;
    // SAFETY: the number is new, and nobody has it yet.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Sends SIGPIPE to the calling thread, as the kernel does for a write to a broken pipe.
pub fn raise_broken_pipe() {
    // SAFETY: raise has no preconditions.
    unsafe { libc::raise(libc::SIGPIPE) };
}

/// Whether every handler the program installed carries SA_RESTART. Called only after a sleep was interrupted by a handler
/// that this library does not stand in front of, libc's own for instance.
pub fn all_handlers_restart() -> bool {
    (1..=libc::SIGRTMAX()).all(|signal| {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: asks only; the structure is large enough and zeroed. Signals that libc keeps for
        // itself answer EINVAL and leave SIG_DFL.
        let action = unsafe {
            libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
            action.assume_init()
        };
        action.sa_sigaction == libc::SIG_DFL
            || action.sa_sigaction == libc::SIG_IGN
            || action.sa_flags & libc::SA_RESTART != 0
    })
}

/// shutdown(2) of a backing socket.
pub fn shut_backing(fd: RawFd, how: c_int) -> Result<(), Errno> {
    // SAFETY: two numbers.
    done(unsafe { libc::syscall(libc::SYS_shutdown, fd, how) }).map(drop)
}

/// What the kernel's epoll has ready, without sleeping.
pub fn epoll_wait_now(epfd: RawFd, events: &mut [libc::epoll_event]) -> Result<usize, Errno> {
    let room = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
    let no_mask = ptr::null::<libc::sigset_t>();
    // SAFETY: the kernel writes at most `room` events.
    let result = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait,
            epfd,
            events.as_mut_ptr(),
            room,
            0,
            no_mask,
            0,
        )
    };
    done(result)
}

/// poll(2) without sleeping.
pub fn poll_now(fds: &mut [libc::pollfd]) -> Result<usize, Errno> {
    poll(
        fds,
        Some(libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
        None,
    )
}

/// ppoll(2), and not libc's: no cancellation may unwind through this library.
fn poll(
    fds: &mut [libc::pollfd],
    timeout: Option<libc::timespec>,
    mask: Option<&libc::sigset_t>,
) -> Result<usize, Errno> {
    let mut timeout = timeout;
    let timeout = timeout.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let mask = mask.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the kernel writes the results of exactly these entries and the copied timeout; it reads
    // a mask of the kernel's size, which is the start of libc's.
    let result = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            fds.as_mut_ptr(),
            fds.len(),
            timeout,
            mask,
            KERNEL_SIGSET,
        )
    };
    done(result)
}

/// Bytes of the kernel's signal set.
const KERNEL_SIGSET: usize = 8;

/// An entry of a poll set that waits for input.
pub fn poll_in(fd: RawFd) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

pub(crate) fn done(result: libc::c_long) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(errno()))
}

/// Ends the process as libc's fortified calls do when a buffer is too small for what was asked.
pub fn fortify_failure() -> ! {
    static FAIL: Symbol = Symbol::new(c"__chk_fail");
    if let Some(address) = FAIL.address() {
        // SAFETY: libc declares `void __chk_fail(void)`, which does not return.
        let fail: extern "C" fn() = unsafe { std::mem::transmute(address) };
        fail();
    }
    std::process::abort()
}

/// As syscall(2), past this library's own function of that name.
///
/// # Safety
/// As the system call's.
pub unsafe fn call(number: libc::c_long, arguments: [libc::c_long; 6]) -> libc::c_long {
    // SAFETY: the caller's duty.
    let result = unsafe { enter(number, arguments) };
    match libc::c_int::try_from(-result) {
        Ok(error @ 1..=4_095) => {
            set_errno(error);
            -1
        }
        _ => result,
    }
}

/// A pointer as an argument of [`call`].
pub fn word<T>(pointer: *const T) -> libc::c_long {
    libc::c_long::from_ne_bytes(pointer.expose_provenance().to_ne_bytes())
}

/// Enters the system.
///
/// # Safety
/// As the system call's.
#[cfg(target_arch = "x86_64")]
pub unsafe fn enter(number: libc::c_long, [a, b, c, d, e, f]: [libc::c_long; 6]) -> libc::c_long {
    let result;
    // SAFETY: the system's calling convention; what the call does is the caller's wish.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Enters the system.
///
/// # Safety
/// As the system call's.
#[cfg(target_arch = "aarch64")]
pub unsafe fn enter(number: libc::c_long, [a, b, c, d, e, f]: [libc::c_long; 6]) -> libc::c_long {
    let result;
    // SAFETY: the system's calling convention; what the call does is the caller's wish.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    result
}
