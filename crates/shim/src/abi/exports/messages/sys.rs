//! recvmsg(2), sendmsg(2) and their plurals with C's structures. The safety of all of it is the C caller's contract with libc,
//! as in `exports/sys.rs`.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint};
use std::io::IoSliceMut;

use client::datagram_messages::parse_for_stream;
use libc::{mmsghdr, msghdr, timespec};
use rustix::io::Errno;

use super::arguments::given_name;
use crate::addresses;
use crate::calls::error_queue;
use crate::calls::{datagram, fast_open, transfer};
use crate::outcome::Switched;
use crate::sys;
use crate::wait::sleep::Deadline;

/// recvmsg(2).
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
        unsafe { give_told(fd, message, received) };
        message.msg_flags |= flags & libc::MSG_CMSG_CLOEXEC
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
    let room = datagram::control_room(message);
    let Some(entry) = error_queue::take(fd, slices, room)? else {
        return Ok(None);
    };
    message.msg_namelen = 0;
    // SAFETY: the caller's contract.
    unsafe { datagram::give_entry(message, &entry.control, entry.is_cut) };
    Ok(Some(entry.copied))
}

/// When what a call has received arrived, if the program asks for it.
unsafe fn give_told(fd: c_int, message: &mut msghdr, received: Option<usize>) {
    let room = datagram::control_room(message);
    (message.msg_controllen, message.msg_flags) = (0, 0);
    if let Some(control) = received.and_then(|received| transfer::told_with(fd, received, room)) {
        // SAFETY: the caller's contract.
        unsafe { datagram::give_control(message, &control) };
    }
}

/// sendmsg(2).
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

/// recvmmsg(2).
pub(crate) unsafe fn receive_messages(
    fd: c_int,
    messages: *mut mmsghdr,
    len: c_uint,
    mut flags: c_int,
    timeout: *mut timespec,
) -> Switched<c_int> {
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

/// sendmmsg(2).
pub(crate) unsafe fn send_messages(
    fd: c_int,
    messages: *mut mmsghdr,
    len: c_uint,
    flags: c_int,
) -> Switched<c_int> {
    // SAFETY: the caller's contract.
    let messages = unsafe { sys::messages_to_send(messages, len) };
    let is_datagram = datagram::is_followed(fd);
    let mut done = 0;
    for message in messages {
        let header = &raw const message.msg_hdr;
        // SAFETY: the message is the caller's.
        let sent = match unsafe { send_message(fd, header, flags) } {
            // Of several datagrams each goes by its own way.
            // SAFETY: as above.
            Ok(None) if is_datagram => unsafe {
                datagram::kernel_sends(fd, header, flags).map(Some)
            },
            sent => sent,
        };
        match sent {
            Ok(None) => return Ok(None),
            Ok(Some(bytes)) => message.msg_len = c_uint::try_from(bytes).unwrap_or(c_uint::MAX),
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        done += 1;
    }
    Ok(Some(done))
}
