//! The exported symbols: libc's socket calls with libc's own signatures. Each asks with one atomic
//! load whether a descriptor is the switch's business, and else calls libc's function of that name.
//!
//! Nothing is decided here: C arguments become Rust values, Rust results become -1 and `errno`. The
//! functions are `C-unwind` because glibc cancels threads by unwinding through the call they sleep in:
//! on the way to libc's function no frame here has anything to clean up, so a cancelled `read` works
//! as without Shunt. Our own panics end in `outcome::at_the_edge`.
//!
//! What is not here is the kernel's; see README.md. Calls that libc makes inside itself come here by `entries`.

#![allow(unsafe_code)]

#[path = "exports/sys.rs"]
mod arguments;
#[path = "exports/messages/sys.rs"]
mod messages;
#[path = "exports/switched/sys.rs"]
mod switched;

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use libc::{epoll_event, fd_set, iovec, loff_t, nfds_t, off_t, pollfd, sigset_t, size_t};
use libc::{sockaddr, socklen_t, ssize_t, timespec, timeval};
use rustix::io::Errno;

use arguments::{
    accepted, epoll_array, fortify, give_address, give_option, io_slices, name_bytes, poll_array,
    polled, read_into, received, received_any, received_from, selected, sent, sent_any, sent_to,
    sets, slices_mut, value_bytes,
};
pub(crate) use arguments::{counted, poll_concerns, select_concerns};
pub(crate) use messages::{receive_message, receive_messages, send_message, send_messages};
pub(crate) use switched::switched;

use crate::abi::symbol::{Symbol, real};
use crate::fd_table::descriptors::{forget, is_kept_open, is_private, is_tracked};
use crate::outcome::{
    Failure, at_a_cancellation_point, at_the_edge, beside, once_at_the_edge,
    try_at_a_cancellation_point, try_at_the_edge,
};
use crate::sys;
use crate::wait::sleep::Deadline;
use crate::{
    addresses,
    calls::{
        close, connect as connecting, control, create, datagram, listen as listening, name,
        options, sendfile as sending_file, sigio, splice as splicing, transfer,
    },
    epoll,
    process::is_borrowed_memory,
    wait::{poll as polling, select as selecting},
};

switched! { try_at_the_edge:
    fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int, if is_tracked(fd) =>
        name_bytes(addr, len).map_or(Ok(None), |name| name::bind(fd, &name));
    fn listen(fd: c_int, backlog: c_int) -> c_int, if is_tracked(fd) =>
        listening::listen(fd, backlog);
    fn shutdown(fd: c_int, how: c_int) -> c_int, if is_tracked(fd) => close::shutdown(fd, how);
    fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int,
        if is_tracked(fd) => give_address(name::local(fd)?, addr, len);
    fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int,
        if is_tracked(fd) => give_address(name::peer(fd)?, addr, len);
    fn setsockopt(fd: c_int, level: c_int, option: c_int, value: *const c_void, len: socklen_t)
        -> c_int, if is_tracked(fd) => match value_bytes(level, value, len) {
            Some(value) => options::set(fd, level, option, &value),
            None => options::set_unreadable(fd, level, option, value.is_null()),
        };
    fn getsockopt(fd: c_int, level: c_int, option: c_int, value: *mut c_void, len: *mut socklen_t)
        -> c_int, if is_tracked(fd) => give_option(fd, level, option, value, len);
    fn sendfile(out: c_int, file: c_int, offset: *mut off_t, len: size_t) -> ssize_t,
        if is_tracked(out) => counted(sending_file::sendfile(out, file, offset.as_mut(), len));
    fn sendfile64(out: c_int, file: c_int, offset: *mut off_t, len: size_t) -> ssize_t,
        if is_tracked(out) => counted(sending_file::sendfile(out, file, offset.as_mut(), len));
    fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int,
        if is_tracked(epfd) => {
            let wish = sys::given(event.cast_const())?.map(|event| (event.events, event.u64));
            epoll::control(epfd, op, fd, wish)
        };
}

switched! { try_at_a_cancellation_point:
    fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int, if is_tracked(fd) =>
        name_bytes(addr, len).map_or(Ok(None), |name| connecting::connect(fd, &name));
    fn close(fd: c_int) -> c_int, if is_tracked(fd) || is_kept_open(fd) => close::close(fd);
    fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t, if is_tracked(fd) =>
        read_into(fd, buf, len);
    fn readv(fd: c_int, iov: *const iovec, slices: c_int) -> ssize_t, if is_tracked(fd) =>
        counted(transfer::read(fd, &mut slices_mut(iov, slices)?));
    fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t, if is_tracked(fd) =>
        sent_any(fd, buf, len, 0);
    fn writev(fd: c_int, iov: *const iovec, slices: c_int) -> ssize_t, if is_tracked(fd) =>
        counted(transfer::send(fd, &io_slices(iov, slices)?, 0));
    fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t,
        if is_tracked(fd) => received(fd, buf, len, flags);
    fn recvfrom(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr,
        addr_len: *mut socklen_t) -> ssize_t, if is_tracked(fd) =>
        received_from(fd, buf, len, flags, addr, addr_len);
    fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t,
        if is_tracked(fd) => sent(fd, buf, len, flags);
    fn sendto(fd: c_int, buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr,
        addr_len: socklen_t) -> ssize_t, if is_tracked(fd) =>
        sent_to(fd, buf, len, flags, addr, addr_len);
    fn splice(from: c_int, from_offset: *mut loff_t, to: c_int, to_offset: *mut loff_t, len: size_t,
        flags: c_uint) -> ssize_t, if is_tracked(from) || is_tracked(to) =>
        counted(splicing::splice(from, from_offset.is_null(), to, to_offset.as_ref(), len, flags));
    fn __read_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t) -> ssize_t,
        if is_tracked(fd) => {
            fortify(len <= room);
            read_into(fd, buf, len)
        };
    fn __recv_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t,
        if is_tracked(fd) => {
            fortify(len <= room);
            received_any(fd, buf, len, flags)
        };
    fn __recvfrom_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int,
        addr: *mut sockaddr, addr_len: *mut socklen_t) -> ssize_t, if is_tracked(fd) => {
            fortify(len <= room);
            received_from(fd, buf, len, flags, addr, addr_len)
        };
    fn poll(fds: *mut pollfd, len: nfds_t, timeout_ms: c_int) -> c_int,
        if poll_concerns(fds, len) =>
        polling::poll(poll_array(fds, len), Deadline::from_ms(timeout_ms), None);
    fn __poll_chk(fds: *mut pollfd, len: nfds_t, timeout_ms: c_int, room: size_t) -> c_int,
        if poll_concerns(fds, len) => {
            fortify(poll_array(fds, len).len() <= room / size_of::<pollfd>());
            polling::poll(poll_array(fds, len), Deadline::from_ms(timeout_ms), None)
        };
    fn ppoll(fds: *mut pollfd, len: nfds_t, timeout: *const timespec, mask: *const sigset_t)
        -> c_int, if poll_concerns(fds, len) => polled(fds, len, timeout, mask);
    fn __ppoll_chk(fds: *mut pollfd, len: nfds_t, timeout: *const timespec, mask: *const sigset_t,
        room: size_t) -> c_int, if poll_concerns(fds, len) => {
            fortify(poll_array(fds, len).len() <= room / size_of::<pollfd>());
            polled(fds, len, timeout, mask)
        };
    fn select(nfds: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval) -> c_int, if select_concerns(nfds, read, write, except) =>
        selected(nfds, read, write, except, timeout);
    fn pselect(nfds: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t) -> c_int,
        if select_concerns(nfds, read, write, except) => {
            let deadline = Deadline::from_timespec(sys::given(timeout)?)?;
            selecting::select(nfds, &mut sets(nfds, read, write, except), deadline, mask.as_ref())
        };
}

/// As libc's socket; a TCP or UDP socket is followed from here on.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, mut protocol: c_int) -> c_int {
    let mut follow = false;
    if let Some(kinds) = create::candidate(domain, kind, protocol) {
        let refused = at_the_edge(|| {
            follow = create::attach(kinds)?;
            Ok(None)
        });
        if let Some(failed) = refused {
            return failed;
        }
    }
    if follow {
        protocol = switch::kind::backing_protocol(protocol);
    }
    let mut fd = real!(socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int);
    if fd < 0 && follow && create::has_spared() {
        fd = real!(socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int);
    }
    if fd >= 0 && !follow && create::is_refused(domain) {
        // SAFETY: the number is new, and nobody knows it yet.
        unsafe { close(fd) };
        sys::set_errno(libc::EPROTONOSUPPORT);
        return -1;
    }
    let is_dump = addresses::is_candidate(domain, protocol);
    if fd >= 0 && (follow || is_dump || is_tracked(fd)) {
        beside(|| {
            forget(fd);
            if follow {
                create::created(fd, domain, kind);
            } else if is_dump {
                addresses::follow(fd);
            }
        });
    }
    fd
}

/// As libc's accept.
///
/// # Safety
/// `addr` and `len` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    if is_tracked(fd)
        && let Some(result) = at_a_cancellation_point(|| accepted(fd, addr, len, 0))
    {
        return result;
    }
    fresh(real!(accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int))
}

/// As libc's accept4.
///
/// # Safety
/// `addr` and `len` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    if is_tracked(fd)
        && let Some(result) = at_a_cancellation_point(|| accepted(fd, addr, len, flags))
    {
        return result;
    }
    fresh(
        real!(accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int),
    )
}

/// A number that the kernel has just handed out stands for nothing older.
fn fresh(fd: c_int) -> c_int {
    if is_tracked(fd) {
        beside(|| forget(fd));
    }
    fd
}

/// As libc's dup.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    duplicated(fd, real!(dup(fd: c_int) -> c_int))
}

/// As libc's dup2; EBUSY for a number that the library itself uses.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    if let Some(failed) = refuse_private(new) {
        return failed;
    }
    duplicated(old, real!(dup2(old: c_int, new: c_int) -> c_int))
}

/// As libc's dup3; EBUSY for a number that the library itself uses.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if let Some(failed) = refuse_private(new) {
        return failed;
    }
    let new = real!(dup3(old: c_int, new: c_int, flags: c_int) -> c_int);
    duplicated(old, new)
}

/// EBUSY (dup(2)) for a number that the library uses, of this process: a child in lent memory has descriptors of its own.
fn refuse_private(new: c_int) -> Option<c_int> {
    (is_private(new) && !is_borrowed_memory())
        .then(|| at_the_edge(|| Err(Errno::BUSY)))
        .flatten()
}

fn duplicated(old: c_int, new: c_int) -> c_int {
    if new >= 0 && (is_tracked(old) || is_tracked(new)) {
        beside(|| close::duplicated(old, new));
    }
    new
}

/// As libc's fcntl. The third argument is passed on as a register, which is how the 64-bit ABIs of
/// Linux pass a variable argument of any of its types.
///
/// # Safety
/// As fcntl(2) for the command.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    let result = real!(fcntl: unsafe extern "C-unwind" fn(c_int, c_int, ...) -> c_int,
        (fd, command, argument), c_int);
    after_fcntl(fd, command, argument, result)
}

/// As libc's fcntl64.
///
/// # Safety
/// As fcntl(2) for the command.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    let result = real!(fcntl64: unsafe extern "C-unwind" fn(c_int, c_int, ...) -> c_int,
        (fd, command, argument), c_int);
    after_fcntl(fd, command, argument, result)
}

fn after_fcntl(fd: c_int, command: c_int, argument: c_ulong, result: c_int) -> c_int {
    let duplicates = matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
    if !(is_tracked(fd) || duplicates && is_tracked(result)) {
        return result;
    }
    let follow = || Ok(Some(control::after_fcntl(fd, command, argument, result)));
    at_the_edge(follow).unwrap_or(result)
}

/// As libc's ioctl; the argument as for [`fcntl`].
///
/// # Safety
/// As ioctl(2) for the request.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if is_tracked(fd) {
        let answer = at_the_edge(|| {
            if let Some(time) = datagram::stamp::last_arrival(fd, request)? {
                sys::copy_out(argument, &time)?;
                return Ok(Some(0));
            }
            let Some(value) = control::ioctl(fd, request)? else {
                return Ok(None);
            };
            if argument.is_null() {
                return Err(Errno::FAULT);
            }
            // SAFETY: these requests answer with an int.
            unsafe { argument.cast::<c_int>().write(value) };
            Ok(Some(0))
        });
        if let Some(answer) = answer {
            return answer;
        }
    }
    let is_asked = addresses::is_asked(request);
    let room = is_asked
        .then(|| addresses::room(request, argument))
        .flatten();
    let result = real!(ioctl: unsafe extern "C-unwind" fn(c_int, c_ulong, ...) -> c_int,
        (fd, request, argument), c_int);
    if is_asked {
        let said = (result, sys::errno());
        let answer = once_at_the_edge(|| addresses::answered(fd, request, argument, room, said));
        return answer.unwrap_or_else(|| {
            sys::set_errno(said.1);
            result
        });
    }
    if request == libc::FIONBIO && result == 0 && is_tracked(fd) {
        // SAFETY: the kernel has just read an int there.
        let on = unsafe { argument.cast::<c_int>().read() } != 0;
        beside(|| control::after_nonblocking_ioctl(fd, on));
    }
    if sigio::is_ioctl(request) && result == 0 && is_tracked(fd) {
        beside(|| sigio::follow(fd));
    }
    result
}

/// As libc's close_range, which leaves the library's own descriptors open.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_uint) -> c_int {
    let plain = |first: c_uint, last: c_uint| {
        real!(close_range: unsafe extern "C-unwind" fn(c_uint, c_uint, c_uint) -> c_int,
            (first, last, flags), c_int)
    };
    if first > last || flags & libc::CLOSE_RANGE_CLOEXEC != 0 {
        return plain(first, last);
    }
    let mut result = 0;
    beside(|| close::close_range(first, last, &mut |first, last| result = plain(first, last)));
    result
}

/// As libc's closefrom, which leaves the library's own descriptors open.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn closefrom(low: c_int) {
    let low = c_uint::try_from(low).unwrap_or(0);
    // SAFETY: no preconditions. Kernels that this library runs on have the call (5.9).
    unsafe { close_range(low, c_uint::MAX, 0) };
}

/// As libc's epoll_create.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    let fd = real!(epoll_create(size: c_int) -> c_int);
    beside(|| epoll::created(fd));
    fd
}

/// As libc's epoll_create1.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    let fd = real!(epoll_create1(flags: c_int) -> c_int);
    beside(|| epoll::created(fd));
    fd
}

/// Exports the three waits. While the kernel can watch everything they are libc's own call, so that
/// cancellation and wake-up order stay as they are.
macro_rules! epoll_waits {
    ($(fn $name:ident($epfd:ident, $events:ident, $max:ident, $($arg:ident: $type:ty),*),
        $deadline:expr, $mask:expr;)*) => {$(
        /// As libc's function of this name.
        ///
        /// # Safety
        /// The events are an array of at least the maximum; the other pointers are null or valid.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            $epfd: c_int, $events: *mut epoll_event, $max: c_int, $($arg: $type),*
        ) -> c_int {
            if !is_tracked($epfd) {
                return real!($name($epfd: c_int, $events: *mut epoll_event, $max: c_int,
                    $($arg: $type),*) -> c_int);
            }
            // Before libc's call, so that a kicked thread does not start its time anew.
            // SAFETY: the caller's pointers.
            #[allow(unused_unsafe)]
            let deadline: Result<Deadline, Errno> = unsafe { $deadline };
            if let Some(set) = epoll::wait::enter_plain($epfd) {
                let result = real!($name($epfd: c_int, $events: *mut epoll_event, $max: c_int,
                    $($arg: $type),*) -> c_int);
                // SAFETY: the kernel has filled in that many events.
                let events = unsafe { epoll_array($events, result.max(0)) };
                match epoll::wait::leave_plain(set, events) {
                    Some(0) => return result,
                    Some(count) => return c_int::try_from(count).unwrap_or(c_int::MAX),
                    None => {}
                }
            }
            // SAFETY: the caller's pointers.
            let waited = at_a_cancellation_point(|| unsafe {
                epoll::wait::wait($epfd, epoll_array($events, $max), deadline?, $mask)
            });
            // What is no epoll instance the kernel refuses.
            waited.unwrap_or_else(|| {
                real!($name($epfd: c_int, $events: *mut epoll_event, $max: c_int,
                    $($arg: $type),*) -> c_int)
            })
        }
    )*};
}

epoll_waits! {
    fn epoll_wait(epfd, events, max, timeout_ms: c_int), Ok(Deadline::from_ms(timeout_ms)), None;
    fn epoll_pwait(epfd, events, max, timeout_ms: c_int, mask: *const sigset_t),
        Ok(Deadline::from_ms(timeout_ms)), mask.as_ref();
    fn epoll_pwait2(epfd, events, max, timeout: *const timespec, mask: *const sigset_t),
        sys::given(timeout).and_then(Deadline::from_timespec), mask.as_ref();
}
