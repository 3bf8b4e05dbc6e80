//! C arguments as Rust values, for the exported functions in `abi.rs`. The safety of all of it is the
//! C caller's contract with libc: pointers are null where that is allowed, and else valid for as long
//! and as far as the call of that name uses them.

#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::io::{IoSlice, IoSliceMut};

use client::address;
use client::datagram_messages::parse_for_stream;
use libc::{epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, pollfd, sigset_t, size_t};
use libc::{sockaddr, socklen_t, ssize_t, timespec, timeval};
use rustix::io::Errno;

use crate::addresses;
use crate::calls::datagram::Control;
use crate::calls::error_queue;
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
        ..0 if level == libc::IPPROTO_IPV6 && !datagram::groups::is_filter(level, name) => {
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

pub(super) unsafe fn received(
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

/// Receives without a place for it, as Linux does: EFAULT where something is there, which stays in a stream. What MSG_TRUNC
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
pub(super) unsafe fn sent(
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
    let received = unsafe { received(fd, buf, len, flags)? };
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
unsafe fn given_name<'a>(addr: *const sockaddr, len: socklen_t) -> Option<&'a [u8]> {
    let len = usize::try_from(len).unwrap_or(0);
    // SAFETY: the caller's contract.
    (!addr.is_null()).then(|| unsafe { sys::bytes(addr.cast(), len) })
}

/// See the file's head.
pub(crate) unsafe fn receive_message(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> Switched<usize> {
    if datagram::is_followed(fd) {
        // SAFETY: the caller's contract.
        return unsafe { datagram::receive_message(fd, message, flags) };
    }
    // SAFETY: the caller's contract.
    let message = unsafe { sys::array_mut(message, 1) }.first_mut();
    let message = message.ok_or(Errno::FAULT)?;
    // SAFETY: as above, for the iovecs it names.
    let slices = unsafe {
        sys::check_parts(message.msg_iov, message.msg_iovlen)?;
        sys::io_slices_mut(message.msg_iov, message.msg_iovlen)
    };
    let mut slices = slices.ok_or(Errno::MSGSIZE)?;
    if flags & libc::MSG_ERRQUEUE != 0 {
        // SAFETY: the caller's contract.
        return unsafe { give_entry(fd, message, &mut slices) };
    }
    let received = transfer::receive(fd, &mut slices, flags)?;
    if received.is_some() && addresses::is_dump(fd) {
        message.msg_controllen = 0;
        message.msg_flags = 0;
        if !message.msg_name.is_null() {
            let len = &raw mut message.msg_namelen;
            sys::give_result(&addresses::SENDER, message.msg_name, len, true)?;
        }
    } else if received.is_some() {
        message.msg_namelen = 0;
        // SAFETY: the caller's contract.
        let cut = unsafe { give_told(fd, message, received) };
        message.msg_flags = cut
            | flags & libc::MSG_CMSG_CLOEXEC
            | match flags & libc::MSG_OOB {
                0 => 0,
                out_of_band if received == Some(0) => out_of_band | libc::MSG_TRUNC,
                out_of_band => out_of_band,
            };
    }
    Ok(received)
}

/// recvmsg(2) of a TCP socket's error queue.
unsafe fn give_entry(
    fd: c_int,
    message: &mut msghdr,
    slices: &mut [IoSliceMut<'_>],
) -> Switched<usize> {
    let Some(entry) = error_queue::take(fd, slices, control_room(message))? else {
        return Ok(None);
    };
    message.msg_namelen = 0;
    let cut = if entry.is_cut { libc::MSG_TRUNC } else { 0 };
    // SAFETY: the caller's contract.
    message.msg_flags = libc::MSG_ERRQUEUE | cut | unsafe { give_control(message, &entry.control) };
    Ok(Some(entry.copied))
}

/// When what a call has received arrived, if the program wants to hear it. MSG_CTRUNC if there is no room.
unsafe fn give_told(fd: c_int, message: &mut msghdr, received: Option<usize>) -> c_int {
    let room = control_room(message);
    message.msg_controllen = 0;
    let told = received.and_then(|received| transfer::told_with(fd, received, room));
    let Some(control) = told else { return 0 };
    // SAFETY: the caller's contract.
    unsafe { give_control(message, &control) }
}

fn control_room(message: &msghdr) -> usize {
    match message.msg_control.is_null() {
        true => 0,
        false => message.msg_controllen,
    }
}

/// Copies control messages to the caller's buffer, whose size is their room. MSG_CTRUNC where they did not fit.
unsafe fn give_control(message: &mut msghdr, control: &Control) -> c_int {
    message.msg_controllen = 0;
    let bytes = control.bytes();
    if !bytes.is_empty() {
        // SAFETY: no more bytes than the control buffer has room for, which is the caller's.
        unsafe { sys::bytes_mut(message.msg_control, bytes.len()) }.copy_from_slice(bytes);
        message.msg_controllen = bytes.len();
    }
    if control.is_cut { libc::MSG_CTRUNC } else { 0 }
}

/// See the file's head.
pub(crate) unsafe fn send_message(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> Switched<usize> {
    if datagram::is_followed(fd) {
        // SAFETY: the caller's contract.
        return unsafe { datagram::send_message(fd, message, flags) };
    }
    // SAFETY: the caller's contract.
    let message = unsafe { sys::given(message)?.ok_or(Errno::FAULT)? };
    sys::check_message_name(&message)?;
    // SAFETY: as above, for the iovecs it names.
    let slices = unsafe {
        sys::check_parts(message.msg_iov, message.msg_iovlen)?;
        sys::io_slices(message.msg_iov, message.msg_iovlen)
    };
    let slices = slices.ok_or(Errno::MSGSIZE)?;
    let mut asked = None;
    if message.msg_controllen > 0 && !addresses::is_dump(fd) {
        // SAFETY: as above, for the control messages.
        let control =
            unsafe { sys::bytes(message.msg_control.cast_const(), message.msg_controllen) };
        asked = parse_for_stream(control)?;
    }
    if flags & libc::MSG_FASTOPEN == 0 {
        return transfer::send_asking(fd, &slices, flags, asked);
    }
    // SAFETY: as above, for the name.
    let name = unsafe { given_name(message.msg_name.cast_const().cast(), message.msg_namelen) };
    fast_open::send(fd, name, &slices, flags)
}

/// See the file's head.
pub(crate) unsafe fn receive_messages(
    fd: c_int,
    messages: *mut mmsghdr,
    len: c_uint,
    mut flags: c_int,
    timeout: *mut timespec,
) -> Switched<c_int> {
    if datagram::is_followed(fd) {
        // SAFETY: the caller's contract.
        return unsafe { datagram::receive_messages(fd, messages, len, flags, timeout) };
    }
    // SAFETY: the caller's contract.
    let deadline = Deadline::from_timespec(unsafe { sys::given(timeout.cast_const())? })?;
    // SAFETY: as above.
    let messages = unsafe { sys::array_mut(messages, usize::try_from(len).unwrap_or(0)) };
    let mut done = 0;
    for message in messages {
        // SAFETY: the message is the caller's.
        let received =
            unsafe { receive_message(fd, &raw mut message.msg_hdr, flags & !libc::MSG_WAITFORONE) };
        match received {
            Ok(None) => return Ok(None),
            Ok(Some(bytes)) => message.msg_len = c_uint::try_from(bytes).unwrap_or(c_uint::MAX),
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        done += 1;
        if flags & libc::MSG_WAITFORONE != 0 {
            flags |= libc::MSG_DONTWAIT;
        }
        // The time is looked at between messages only (recvmmsg(2), BUGS).
        if deadline.is_over() {
            break;
        }
    }
    Ok(Some(done))
}

/// See the file's head.
pub(crate) unsafe fn send_messages(
    fd: c_int,
    messages: *mut mmsghdr,
    len: c_uint,
    flags: c_int,
) -> Switched<c_int> {
    if datagram::is_followed(fd) {
        // SAFETY: the caller's contract.
        return unsafe { datagram::send_messages(fd, messages, len, flags) };
    }
    // SAFETY: the caller's contract.
    let messages = unsafe { sys::messages_to_send(messages, len) };
    let mut done = 0;
    for message in messages {
        // SAFETY: the message is the caller's.
        match unsafe { send_message(fd, &raw const message.msg_hdr, flags) } {
            Ok(None) => return Ok(None),
            Ok(Some(bytes)) => message.msg_len = c_uint::try_from(bytes).unwrap_or(c_uint::MAX),
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        done += 1;
    }
    Ok(Some(done))
}

pub(super) unsafe fn poll_array<'a>(fds: *mut pollfd, len: nfds_t) -> &'a mut [pollfd] {
    // SAFETY: the caller's contract.
    unsafe { sys::array_mut(fds, usize::try_from(len).unwrap_or(0)) }
}

pub(crate) fn poll_concerns(fds: *mut pollfd, len: nfds_t) -> bool {
    // SAFETY: the array is the C caller's argument to poll.
    polling::concerns(unsafe { poll_array(fds, len) })
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
