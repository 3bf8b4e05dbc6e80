//! The only place, besides `abi.rs`, where the switch does what Rust cannot check: finding libc's
//! own functions (dlsym(3)), `errno`, memory that a C program vouches for, signal dispositions,
//! `pread` into a window, and the hooks that run before `main` and around `fork`.
//!
//! Nothing here decides anything.

#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use client::Quiet;
use client::address::Emitted;
use rustix::io::Errno;

use crate::entries;

/// A function of libc, found behind this library in the search order on first use.
pub struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

/// Stands in for a function that this libc does not have.
static ABSENT: c_char = 0;

impl Symbol {
    /// A function by its name.
    pub const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Its address, or `None` where libc has no such function.
    pub fn address(&self) -> Option<*mut c_void> {
        let known = self.address.load(Ordering::Relaxed);
        let address = if known.is_null() {
            self.resolve()
        } else {
            known
        };
        (address.cast_const() != (&raw const ABSENT).cast()).then_some(address)
    }

    #[cold]
    fn resolve(&self) -> *mut c_void {
        // SAFETY: the name is NUL-terminated and static; RTLD_NEXT asks for the next object after
        // this library. A race resolves twice and stores the same address.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        let address = if found.is_null() {
            (&raw const ABSENT).cast_mut().cast()
        } else {
            entries::original(found)
        };
        // Before, what is found may lead back here a moment later.
        if entries::is_settled() {
            self.address.store(address, Ordering::Relaxed);
        }
        address
    }
}

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
pub struct Inside(Quiet);

impl Inside {
    /// Enters; the drop of the value leaves again.
    pub fn enter() -> Self {
        Self(Quiet::begin())
    }

    /// Leaves. What handlers have run by that, if any.
    pub fn leave(self) -> Option<Handled> {
        let (ran, interrupting) = client::handled();
        drop(self.0);
        let now = client::handled();
        (now.0 != ran).then_some(Handled {
            all_restart: now.1 == interrupting,
        })
    }

    /// Whether a call that arrives at an exported symbol comes from the library itself.
    pub fn is_active() -> bool {
        Quiet::is_active()
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

/// Bytes a C caller gave to read from.
///
/// # Safety
/// `start..start + len` is readable for `'a`, as every sending call of POSIX demands.
pub unsafe fn bytes<'a>(start: *const c_void, len: usize) -> &'a [u8] {
    if start.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's contract; lengths above isize::MAX cannot be mapped, so they are cut.
    unsafe { std::slice::from_raw_parts(start.cast(), len.min(MAX_TRANSFER)) }
}

/// Bytes a C caller gave to write to.
///
/// # Safety
/// `start..start + len` is writable for `'a` and not used otherwise meanwhile.
pub unsafe fn bytes_mut<'a>(start: *mut c_void, len: usize) -> &'a mut [u8] {
    if start.is_null() || len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's contract; the bytes may be uninitialised, and are only written.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), len.min(MAX_TRANSFER)) }
}

/// Linux moves at most this much in one call (MAX_RW_COUNT, read(2)).
const MAX_TRANSFER: usize = 0x7fff_f000;

/// The iovec array of a sending call; `None` for a count that POSIX forbids (EINVAL).
///
/// # Safety
/// `start` points at `count` valid iovecs over readable memory.
pub unsafe fn io_slices<'a>(
    start: *const libc::iovec,
    count: usize,
) -> Option<Cow<'a, [IoSlice<'a>]>> {
    // SAFETY: the caller's contract.
    let raw = unsafe { iovecs(start, count)? };
    if raw.iter().any(|one| one.iov_base.is_null()) {
        // SAFETY: as above.
        return Some(
            raw.iter()
                .map(|one| IoSlice::new(unsafe { bytes(one.iov_base, one.iov_len) }))
                .collect(),
        );
    }
    // SAFETY: IoSlice is documented to be ABI compatible with iovec; none of these is null.
    Some(Cow::Borrowed(unsafe {
        std::slice::from_raw_parts(raw.as_ptr().cast(), raw.len())
    }))
}

/// The iovecs themselves: null bases are allowed where the length is 0, and no Rust slice has one.
unsafe fn iovecs<'a>(start: *const libc::iovec, count: usize) -> Option<&'a [libc::iovec]> {
    match count {
        0 => Some(&[]),
        // SAFETY: the caller's contract.
        1..=MAX_IOVECS => Some(unsafe { std::slice::from_raw_parts(start, count) }),
        _ => None,
    }
}

/// Where a receiving call puts its bytes: the program's own array, or a copy of it without null bases.
pub enum Targets<'a> {
    /// The program's array.
    Given(&'a mut [IoSliceMut<'a>]),
    /// A copy, for the rare array with a null base.
    Copied(Vec<IoSliceMut<'a>>),
}

impl<'a> std::ops::Deref for Targets<'a> {
    type Target = [IoSliceMut<'a>];

    fn deref(&self) -> &[IoSliceMut<'a>] {
        match self {
            Targets::Given(slices) => slices,
            Targets::Copied(slices) => slices,
        }
    }
}

impl std::ops::DerefMut for Targets<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Targets::Given(slices) => slices,
            Targets::Copied(slices) => slices,
        }
    }
}

/// The iovec array of a receiving call; `None` for a count that POSIX forbids (EINVAL).
///
/// # Safety
/// `start` points at `count` valid iovecs over writable memory; the array itself is not written.
pub unsafe fn io_slices_mut<'a>(start: *const libc::iovec, count: usize) -> Option<Targets<'a>> {
    // SAFETY: the caller's contract.
    let raw = unsafe { iovecs(start, count)? };
    if raw.iter().any(|one| one.iov_base.is_null()) {
        // SAFETY: as above.
        let slice = |one: &libc::iovec| unsafe { bytes_mut(one.iov_base, one.iov_len) };
        return Some(Targets::Copied(
            raw.iter().map(|one| IoSliceMut::new(slice(one))).collect(),
        ));
    }
    // SAFETY: IoSliceMut is documented to be ABI compatible with iovec; no code here advances the
    // slices in place, so the program's array stays as it is.
    Some(Targets::Given(unsafe {
        std::slice::from_raw_parts_mut(raw.as_ptr().cast_mut().cast(), raw.len())
    }))
}

/// UIO_MAXIOV.
const MAX_IOVECS: usize = 1024;

/// `count` values of a C array, or nothing where the pointer is null or no program's.
///
/// # Safety
/// A non-null `start` points at `count` valid values that nobody else uses meanwhile.
pub unsafe fn array_mut<'a, T>(start: *mut T, count: usize) -> &'a mut [T] {
    let len = count.saturating_mul(size_of::<T>());
    if count == 0 || !is_in_user_space(start.cast(), len) {
        return &mut [];
    }
    // SAFETY: the caller's contract.
    unsafe { std::slice::from_raw_parts_mut(start, count) }
}

/// The messages of sendmmsg(2), which takes no more at once than an array has slices; the rest is left to another call.
///
/// # Safety
/// As [`array_mut`].
pub unsafe fn messages_to_send<'a>(
    start: *mut libc::mmsghdr,
    count: std::ffi::c_uint,
) -> &'a mut [libc::mmsghdr] {
    let count = usize::try_from(count).unwrap_or(MAX_IOVECS);
    // SAFETY: the caller's contract.
    unsafe { array_mut(start, count.min(MAX_IOVECS)) }
}

/// A copy of bytes that a C caller gave; `None` where it has no memory there, of which the kernel then says EFAULT.
pub fn copied(start: *const c_void, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0_u8; len];
    if len > 0 {
        check_readable(start, len).ok()?;
        // SAFETY: the kernel has just read there; the target is ours.
        unsafe { ptr::copy_nonoverlapping(start.cast(), bytes.as_mut_ptr(), len) };
    }
    Some(bytes)
}

/// Copies to where a C caller has asked for it; EFAULT where it has no memory.
pub fn copy_out(target: *mut c_void, bytes: &[u8]) -> Result<(), Errno> {
    if !bytes.is_empty() {
        check_writable(target, bytes.len())?;
        // SAFETY: the kernel has just written there; the source is ours.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target.cast(), bytes.len()) };
    }
    Ok(())
}

/// EFAULT where the program has no memory, without a SIGSEGV: rt_sigprocmask(2) reads a mask there before it says that it
/// does not know what to do with it. Filters of system calls that end a program for process_vm_readv(2) allow this one.
fn check_readable(start: *const c_void, len: usize) -> Result<(), Errno> {
    const MASK: usize = 8;
    const PAGE: usize = 4096;
    const NO_SUCH_WAY: c_int = -1;
    if !is_in_user_space(start, len) {
        return Err(Errno::FAULT);
    }
    if is_near(start, len) {
        return Ok(());
    }
    // A mask of eight bytes that is aligned lies in one page.
    let first = start.addr() & !(MASK - 1);
    let pages = (first & !(PAGE - 1)..start.addr() + len).step_by(PAGE);
    for at in core::iter::once(first).chain(pages.skip(1)) {
        // SAFETY: the kernel looks at the memory itself, and changes nothing.
        let result =
            unsafe { libc::syscall(libc::SYS_rt_sigprocmask, NO_SUCH_WAY, at, 0_usize, MASK) };
        if done(result) == Err(Errno::FAULT) {
            return Err(Errno::FAULT);
        }
    }
    Ok(())
}

/// As `check_readable`, for memory that is about to be written: getrandom(2) writes there before.
fn check_writable(start: *mut c_void, len: usize) -> Result<(), Errno> {
    if !is_in_user_space(start, len) {
        return Err(Errno::FAULT);
    }
    if is_near(start, len) {
        return Ok(());
    }
    // SAFETY: the caller's memory, as far as there is any, and its content is about to be replaced.
    let result = unsafe { libc::syscall(libc::SYS_getrandom, start, len, libc::GRND_NONBLOCK) };
    match done(result) {
        Err(Errno::FAULT) => Err(Errno::FAULT),
        Ok(written) if written < len => Err(Errno::FAULT),
        _ => Ok(()),
    }
}

/// Whether it is the calling thread's stack, near above this frame: nobody need be asked about that.
fn is_near(start: *const c_void, len: usize) -> bool {
    const NEAR: usize = 16 * 1024;
    let above = start.addr().checked_sub((&raw const start).addr());
    above.is_some_and(|above| above.saturating_add(len) <= NEAR)
}

/// Whether a program can have memory there at all: not in the first page, nor in the kernel's half.
fn is_in_user_space(start: *const c_void, len: usize) -> bool {
    is_memory(start, len) == Ok(true)
}

/// Whether there can be data in a buffer. EFAULT in the kernel's half, which Linux says before it looks at anything else;
/// in the first page it finds out when it copies.
pub fn is_memory(start: *const c_void, len: usize) -> Result<bool, Errno> {
    const FIRST: usize = 4096;
    const END: usize = (1 << 47) - FIRST;
    match start.addr().checked_add(len) {
        Some(end) if end <= END => Ok(start.addr() >= FIRST || len == 0),
        _ => Err(Errno::FAULT),
    }
}

/// Copies `bytes` to a result buffer as `getsockname`, `accept` and `getsockopt` do: cut to `*len`
/// of the caller. `*len` becomes the full length for an address, the copied length for an option.
pub fn give_result(
    bytes: &[u8],
    target: *mut c_void,
    len: *mut libc::socklen_t,
    report_full_length: bool,
) -> Result<(), Errno> {
    let space = copied(len.cast_const().cast(), size_of::<libc::socklen_t>());
    let space = space.as_ref().and_then(|bytes| bytes.first_chunk());
    let space = i32::from_ne_bytes(*space.ok_or(Errno::FAULT)?);
    let space = usize::try_from(space).map_err(|_| Errno::INVAL)?;
    let given = &bytes[..space.min(bytes.len())];
    copy_out(target, given)?;
    let reported = if report_full_length {
        bytes.len()
    } else {
        given.len()
    };
    let reported = libc::socklen_t::try_from(reported).unwrap_or(libc::socklen_t::MAX);
    copy_out(len.cast(), &reported.to_ne_bytes())
}

/// EFAULT where an array of iovecs, or what one of them names, cannot be memory.
///
/// # Safety
/// `start` points at `count` valid iovecs, if it is a program's at all.
pub unsafe fn check_parts(start: *const libc::iovec, count: usize) -> Result<(), Errno> {
    let len = count.saturating_mul(size_of::<libc::iovec>());
    if !is_memory(start.cast(), len)? {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller's contract.
    let parts = unsafe { iovecs(start, count) }.unwrap_or_default();
    for part in parts {
        if !is_memory(part.iov_base, part.iov_len)? {
            return Err(Errno::FAULT);
        }
    }
    Ok(())
}

/// As [`optional`]; EFAULT where the pointer is no program's.
///
/// # Safety
/// As [`optional`].
pub unsafe fn given<T: Copy>(pointer: *const T) -> Result<Option<T>, Errno> {
    if !pointer.is_null() && !is_in_user_space(pointer.cast(), size_of::<T>()) {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller's contract.
    Ok(unsafe { optional(pointer) })
}

/// Reads a C value if the pointer is not null.
///
/// # Safety
/// A non-null pointer is valid for reading.
pub unsafe fn optional<T: Copy>(pointer: *const T) -> Option<T> {
    // SAFETY: the caller's contract.
    (!pointer.is_null()).then(|| unsafe { pointer.read_unaligned() })
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

/// SO_ATTACH_FILTER.
pub fn attach_filter(fd: RawFd, program: &[libc::sock_filter]) -> Result<(), Errno> {
    let len = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let program = libc::sock_fprog {
        len,
        filter: program.as_ptr().cast_mut(),
    };
    let bytes = libc::socklen_t::try_from(size_of_val(&program)).map_err(|_| Errno::INVAL)?;
    // SAFETY: `program` and the instructions it names live until the call returns; the kernel reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            &raw const program,
            bytes,
        )
    };
    done(result).map(drop)
}

/// setsockopt(2) on the backing socket, with whatever bytes the program gave.
pub fn set_option(fd: RawFd, level: c_int, name: c_int, value: &[u8]) -> Result<(), Errno> {
    let len = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the value lives through the call; the kernel only reads it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            fd,
            level,
            name,
            value.as_ptr(),
            len,
            hostif::supervision::UNSUPERVISED,
        )
    };
    done(result).map(drop)
}

/// bind(2) of a backing socket: under a supervisor, which would serve a UDP socket then, it passes.
pub fn bind(backing: BorrowedFd<'_>, address: &Emitted) -> Result<(), Errno> {
    let bytes = address.as_bytes();
    // SAFETY: the kernel reads that many bytes of the address, which lives through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bind,
            backing.as_raw_fd(),
            bytes.as_ptr(),
            bytes.len(),
            0,
            0,
            hostif::supervision::UNSUPERVISED,
        )
    };
    done(result).map(drop)
}

/// listen(2) on a backing socket: under a supervisor, which would serve it otherwise, it passes.
pub fn listen(backing: BorrowedFd<'_>, backlog: c_int) -> Result<(), Errno> {
    // SAFETY: the call takes numbers.
    let result = unsafe {
        libc::syscall(
            libc::SYS_listen,
            backing.as_raw_fd(),
            backlog,
            0,
            0,
            0,
            hostif::supervision::UNSUPERVISED,
        )
    };
    done(result).map(drop)
}

/// getsockopt(2) on the kernel's socket; the length of the value.
pub fn option(fd: RawFd, level: c_int, name: c_int, value: &mut [u8]) -> Result<usize, Errno> {
    let mut len = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel writes at most `len` bytes of the value, and the new length.
    let result = unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            fd,
            level,
            name,
            value.as_mut_ptr(),
            &raw mut len,
            hostif::supervision::UNSUPERVISED,
        )
    };
    done(result)?;
    usize::try_from(len).map_err(|_| Errno::INVAL)
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

fn done(result: libc::c_long) -> Result<usize, Errno> {
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

/// Runs when the loader has loaded the library: leads libc's own calls here, registers the fork handlers, notes which
/// descriptors are sockets, and nothing else, since nothing may lock or allocate before `main` (DESIGN §8).
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    crate::descriptors::own_memory();
    crate::inherited::at_load();
    client::find_thread_states();
    entries::settle();
    // SAFETY: the handlers live as long as the process: a preloaded library is never unloaded.
    unsafe {
        libc::pthread_atfork(Some(fork_prepare), Some(fork_parent), Some(fork_child));
    }
}

unsafe extern "C" fn fork_prepare() {
    crate::fork::prepare();
}

unsafe extern "C" fn fork_parent() {
    crate::fork::parent();
}

unsafe extern "C" fn fork_child() {
    crate::fork::child();
}
