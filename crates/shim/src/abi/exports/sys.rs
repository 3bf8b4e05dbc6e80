//! C arguments as Rust values, for the exported functions in `abi/exports.rs`. The safety of all of it is the
//! C caller's contract with libc: pointers are null where that is allowed, and else valid for as long
//! and as far as the call of that name uses them.

#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{c_int, c_long, c_void};
use std::io::{IoSlice, IoSliceMut};

use client::address;
use libc::{epoll_event, fd_set, iovec, nfds_t, pollfd, sigset_t, size_t};
use libc::{sockaddr, socklen_t, ssize_t, timespec, timeval};
use rustix::io::Errno;

use crate::addresses;
use crate::calls::options::Answer;
use crate::outcome::{Switched, count};
use crate::wait::sleep::Deadline;
use crate::{
    calls::{close, datagram, fast_open, listen as listening, options, transfer},
    sys,
    wait::{poll as polling, select as selecting},
};

/// A count as C returns it.
pub(crate) fn counted(result: Switched<usize>) -> Switched<ssize_t> {
    Ok(result?.map(count))
}

pub(super) fn fortify(enough: bool) {
    if !enough {
        sys::fortify_failure();
    }
}

/// Bytes of the longest name (`sockaddr_storage`), and of the longest value of an option that is looked at.
const NAME_MAX: usize = 128;
const VALUE_MAX: usize = 64 * 1024;

/// The bytes of a name, or `None`: the kernel says what is wrong with it.
pub(super) fn name_bytes(start: *const sockaddr, len: socklen_t) -> Option<Vec<u8>> {
    let len = usize::try_from(len).ok().filter(|len| *len <= NAME_MAX)?;
    sys::copied(start.cast(), len)
}

/// The bytes of an option's value, likewise. Only at the socket's own level null and no bytes are as good as any other address and
/// none: elsewhere they take back what the engine does not know (`xfrm_user_policy`).
pub(super) fn value_bytes(level: c_int, start: *const c_void, len: socklen_t) -> Option<Vec<u8>> {
    let len = usize::try_from(len).ok().filter(|len| *len <= VALUE_MAX)?;
    if start.is_null() && len == 0 && level != libc::SOL_SOCKET {
        return None;
    }
    sys::copied(start, len)
}

pub(super) fn give_address(
    known: Option<address::Emitted>,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> Switched<c_int> {
    let Some(known) = known else { return Ok(None) };
    sys::give_result(known.as_bytes(), addr.cast(), len, true)?;
    Ok(Some(0))
}

/// Bytes of the largest structure that a getsockopt(2) is asked with: 64 sources of a group.
const ASKED_MAX: usize = 144 + 64 * 128;

/// Bytes of `struct ip6_mtuinfo`, the longest that is answered at its level otherwise.
const MTU_INFO: usize = 32;

pub(super) fn give_option(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Switched<c_int> {
    // Whatever is wrong with the length, the kernel says so.
    let room = sys::copied(len.cast_const().cast(), size_of::<socklen_t>());
    let room = room.as_ref().and_then(|bytes| bytes.first_chunk());
    let room = room.map(|bytes| match i32::from_ne_bytes(*bytes) {
        // It counts as unsigned (`do_ipv6_getsockopt`), but of structures that ask.
        ..0 if level == libc::IPPROTO_IPV6 && !switch::groups::filter::is_filter(level, name) => {
            Ok(MTU_INFO)
        }
        room => usize::try_from(room),
    });
    let Some(Ok(room)) = room else {
        return Ok(None);
    };
    // What is asked for by a structure has it there.
    let asked = || sys::copied(value.cast_const(), room.min(ASKED_MAX)).unwrap_or_default();
    match options::ask(fd, level, name, room, &asked)? {
        None => Ok(None),
        Some(Answer::Value(mut answer)) => {
            answer.truncate(room);
            sys::copy_out(value, &answer)?;
            let given = socklen_t::try_from(answer.len()).unwrap_or(socklen_t::MAX);
            sys::copy_out(len.cast(), &given.to_ne_bytes())?;
            Ok(Some(0))
        }
        Some(Answer::Needs(bytes)) => {
            let bytes = socklen_t::try_from(bytes).unwrap_or(socklen_t::MAX);
            sys::copy_out(len.cast(), &bytes.to_ne_bytes())?;
            Err(Errno::INVAL)
        }
    }
}

pub(super) fn accepted(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Switched<c_int> {
    let Some((new, peer)) = listening::accept(fd, flags)? else {
        return Ok(None);
    };
    if !addr.is_null()
        && let Err(error) = sys::give_result(peer.as_bytes(), addr.cast(), len, true)
    {
        // The connection goes with the call.
        close::close(new)?;
        // SAFETY: the number is new, and the program does not know it.
        unsafe { libc::close(new) };
        return Err(error);
    }
    Ok(Some(new))
}

pub(super) unsafe fn slices_mut<'a>(
    start: *const iovec,
    count: c_int,
) -> Result<sys::Targets<'a>, Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
    // SAFETY: the caller's contract.
    unsafe {
        sys::check_parts(start, count)?;
        sys::io_slices_mut(start, count).ok_or(Errno::INVAL)
    }
}

pub(super) unsafe fn io_slices<'a>(
    start: *const iovec,
    count: c_int,
) -> Result<Cow<'a, [IoSlice<'a>]>, Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
    // SAFETY: the caller's contract.
    unsafe {
        sys::check_parts(start, count)?;
        sys::io_slices(start, count).ok_or(Errno::INVAL)
    }
}

#[inline(always)]
pub(super) unsafe fn received(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
) -> Switched<ssize_t> {
    // SAFETY: the caller's contract.
    let Some(bytes) = (unsafe { sys::usual_bytes_mut(buf, len) }) else {
        // SAFETY: the same.
        return unsafe { received_any(fd, buf, len, flags) };
    };
    counted(transfer::receive_here(
        fd,
        &mut [IoSliceMut::new(bytes)],
        flags,
    ))
}

/// As [`received`], of whatever buffer.
#[inline(never)]
pub(super) unsafe fn received_any(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
) -> Switched<ssize_t> {
    if !sys::is_memory(buf, len)? {
        return counted(receive_nowhere(fd, len, flags));
    }
    // SAFETY: the caller's contract.
    let bytes = unsafe { sys::bytes_mut(buf, len) };
    counted(transfer::receive(fd, &mut [IoSliceMut::new(bytes)], flags))
}

/// read(2).
pub(super) unsafe fn read_into(fd: c_int, buf: *mut c_void, len: size_t) -> Switched<ssize_t> {
    if !sys::is_memory(buf, len)? {
        return counted(receive_nowhere(fd, len, 0));
    }
    // SAFETY: the caller's contract.
    let bytes = unsafe { sys::bytes_mut(buf, len) };
    counted(transfer::read(fd, &mut [IoSliceMut::new(bytes)]))
}

/// Receives into no buffer, as Linux does: EFAULT where something is there, which stays in a stream. What MSG_TRUNC
/// throws away needs no place (tcp(7)).
fn receive_nowhere(fd: c_int, len: size_t, flags: c_int) -> Switched<usize> {
    const THROWN_AWAY_MAX: usize = 64 * 1024;
    let is_stream = !datagram::is_followed(fd);
    if is_stream && flags & libc::MSG_TRUNC != 0 {
        let mut place = vec![0; len.min(THROWN_AWAY_MAX)];
        return transfer::receive(fd, &mut [IoSliceMut::new(&mut place)], flags);
    }
    let flags = if is_stream {
        flags | libc::MSG_PEEK
    } else {
        flags
    };
    match transfer::receive(fd, &mut [IoSliceMut::new(&mut [0])], flags)? {
        Some(1..) => Err(Errno::FAULT),
        nothing => Ok(nothing),
    }
}

/// write(2) and send(2).
#[inline(always)]
pub(super) unsafe fn sent(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
) -> Switched<ssize_t> {
    // SAFETY: the caller's contract.
    let Some(bytes) = (unsafe { sys::usual_bytes(buf, len) }) else {
        // SAFETY: the same.
        return unsafe { sent_any(fd, buf, len, flags) };
    };
    counted(transfer::send_here(fd, &[IoSlice::new(bytes)], flags, None))
}

/// As [`sent`], of whatever buffer.
#[inline(never)]
pub(super) unsafe fn sent_any(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
) -> Switched<ssize_t> {
    if !sys::is_memory(buf, len)? {
        return counted(send_from_nowhere(fd, flags));
    }
    // SAFETY: the caller's contract.
    let bytes = unsafe { sys::bytes(buf, len) };
    counted(transfer::send(fd, &[IoSlice::new(bytes)], flags))
}

/// EFAULT, unless a stream has another reason not to send.
fn send_from_nowhere(fd: c_int, flags: c_int) -> Switched<usize> {
    if !datagram::is_followed(fd) && transfer::send(fd, &[], flags)?.is_none() {
        return Ok(None);
    }
    Err(Errno::FAULT)
}

pub(super) unsafe fn received_from(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> Switched<ssize_t> {
    if datagram::is_followed(fd) && sys::is_memory(buf, len)? {
        // SAFETY: the caller's contract.
        return counted(unsafe { datagram::receive_from(fd, buf, len, flags, addr, addr_len) });
    }
    // SAFETY: the caller's contract.
    let received = unsafe { received_any(fd, buf, len, flags)? };
    if received.is_some() && addresses::is_dump(fd) {
        if !addr.is_null() {
            sys::give_result(&addresses::SENDER, addr.cast(), addr_len, true)?;
        }
    } else if received.is_some() && !addr.is_null() && !addr_len.is_null() {
        // A connection names no source (tcp_recvmsg).
        // SAFETY: valid by the caller's contract.
        unsafe { *addr_len = 0 };
    }
    Ok(received)
}

pub(super) unsafe fn sent_to(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> Switched<ssize_t> {
    if !sys::is_memory(buf, len)? {
        return counted(send_from_nowhere(fd, flags));
    }
    if !addr.is_null() {
        sys::check_name(addr_len)?;
    }
    if datagram::is_followed(fd) {
        // SAFETY: the caller's contract.
        return counted(unsafe { datagram::send_to(fd, buf, len, flags, addr, addr_len) });
    }
    // SAFETY: the caller's contract.
    let (bytes, name) = unsafe { (sys::bytes(buf, len), given_name(addr, addr_len)) };
    let slices = [IoSlice::new(bytes)];
    counted(if flags & libc::MSG_FASTOPEN != 0 {
        fast_open::send(fd, name, &slices, flags)
    } else {
        transfer::send(fd, &slices, flags)
    })
}

/// A name that may be missing.
pub(super) unsafe fn given_name<'a>(addr: *const sockaddr, len: socklen_t) -> Option<&'a [u8]> {
    let len = usize::try_from(len).unwrap_or(0);
    // SAFETY: the caller's contract.
    (!addr.is_null()).then(|| unsafe { sys::bytes(addr.cast(), len) })
}

pub(super) unsafe fn poll_array<'a>(fds: *mut pollfd, len: nfds_t) -> &'a mut [pollfd] {
    // SAFETY: the caller's contract.
    unsafe { sys::array_mut(fds, usize::try_from(len).unwrap_or(0)) }
}

pub(crate) fn poll_concerns(fds: *mut pollfd, len: nfds_t) -> bool {
    // SAFETY: the array is the C caller's argument to poll, and the kernel would look at all of it.
    !polling::are_too_many(len) && polling::concerns(unsafe { poll_array(fds, len) })
}

pub(super) unsafe fn polled(
    fds: *mut pollfd,
    len: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> Switched<c_int> {
    // SAFETY: the caller's contract.
    let (fds, timeout, mask) =
        unsafe { (poll_array(fds, len), sys::given(timeout)?, mask.as_ref()) };
    polling::poll(fds, Deadline::from_timespec(timeout)?, mask)
}

pub(super) unsafe fn epoll_array<'a>(
    events: *mut epoll_event,
    max: c_int,
) -> &'a mut [epoll_event] {
    // SAFETY: the caller's contract.
    unsafe { sys::array_mut(events, usize::try_from(max).unwrap_or(0)) }
}

pub(super) unsafe fn sets<'a>(
    nfds: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
) -> selecting::Sets<'a> {
    let nfds = selecting::within_the_table(nfds);
    let words = usize::try_from(nfds).unwrap_or(0).div_ceil(64);
    // SAFETY: the kernel would read and write the same whole words (FDS_BYTES).
    let set = |set: *mut fd_set| unsafe { sys::array_mut(set.cast::<u64>(), words) };
    selecting::Sets {
        read: set(read),
        write: set(write),
        except: set(except),
    }
}

pub(crate) fn select_concerns(
    nfds: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
) -> bool {
    // SAFETY: the sets are the C caller's arguments to select.
    unsafe { sets(nfds, read, write, except) }.concern(nfds)
}

pub(super) unsafe fn selected(
    nfds: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> Switched<c_int> {
    // SAFETY: the caller's contract.
    let (mut sets, given) = unsafe {
        (
            sets(nfds, read, write, except),
            sys::given(timeout.cast_const())?,
        )
    };
    let deadline = Deadline::from_timeval(given)?;
    let result = selecting::select(nfds, &mut sets, deadline, None);
    let served = !matches!(result, Ok(None));
    if served && let Some(left) = deadline.remaining() {
        let left = timeval {
            tv_sec: c_long::try_from(left.as_secs()).unwrap_or(c_long::MAX),
            tv_usec: left.subsec_micros().into(),
        };
        // Linux writes back what is left, also after an error (select(2)).
        // SAFETY: there is a deadline only where the pointer was not null.
        unsafe { timeout.write(left) };
    }
    result
}
