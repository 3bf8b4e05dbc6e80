//! C arguments of datagram calls. All receiving calls become one on a `msghdr`, so that the kernel can
//! be asked with the same buffers where a socket receives from both stacks. The safety of all of it is
//! the C caller's contract with libc, as in `abi/exports/sys.rs`.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;

use client::{Delivered, Failure, Received, SentStamp, stamp};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use libc::{iovec, msghdr, size_t, sockaddr, socklen_t};
use rustix::io::Errno;

use super::Call;
use super::receive::{Receiving, Step};
use super::send as sending;
use crate::calls::name;
use crate::outcome::Switched;
use crate::socket::EngineIndex;
use crate::sys;
use client::Control;
use client::address::Family;
use switch::attached;
use switch::stream::Arrived;

/// As Linux has it; an engine's is one less, which its fields can say.
pub const LOOPBACK_MTU: u32 = 65_536;

/// write(2), send(2) and their kin: to the peer.
pub fn send(fd: RawFd, slices: &[IoSlice<'_>], flags: i32) -> Switched<usize> {
    sending::send(fd, None, slices, &[], flags)
}

/// sendto(2).
///
/// # Safety
/// As sendto(2).
pub unsafe fn send_to(
    fd: RawFd,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> Switched<usize> {
    // SAFETY: the caller's contract.
    let (bytes, name) = unsafe { (sys::bytes(buf, len), name_bytes(addr.cast(), addr_len)) };
    if !addr.is_null() && addr_len == 0 {
        return Err(Errno::INVAL);
    }
    sending::send(fd, name, &[IoSlice::new(bytes)], &[], flags)
}

/// sendmsg(2).
///
/// # Safety
/// As sendmsg(2).
pub unsafe fn send_message(fd: RawFd, message: *const msghdr, flags: c_int) -> Switched<usize> {
    // SAFETY: the caller's contract.
    let message = unsafe { sys::given(message)?.ok_or(Errno::FAULT)? };
    sys::check_message_name(&message)?;
    // SAFETY: as above.
    unsafe { sys::check_parts(message.msg_iov, message.msg_iovlen)? };
    // SAFETY: as above, for what the message names.
    let (slices, name, control) = unsafe {
        (
            sys::io_slices(message.msg_iov, message.msg_iovlen).ok_or(Errno::MSGSIZE)?,
            name_bytes(message.msg_name.cast_const(), message.msg_namelen),
            sys::bytes(message.msg_control.cast_const(), message.msg_controllen),
        )
    };
    sending::send(fd, name, &slices, control, flags)
}

/// read(2), recv(2) and their kin.
pub fn receive(fd: RawFd, slices: &mut [IoSliceMut<'_>], flags: i32) -> Switched<usize> {
    let mut message = empty_message();
    // IoSliceMut is documented to be ABI compatible with iovec.
    message.msg_iov = slices.as_mut_ptr().cast::<iovec>();
    message.msg_iovlen = slices.len();
    // SAFETY: the slices are borrowed for the call; there is neither name nor control buffer.
    unsafe { receive_message(fd, &raw mut message, flags) }
}

/// recvfrom(2).
///
/// # Safety
/// As recvfrom(2).
pub unsafe fn receive_from(
    fd: RawFd,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> Switched<usize> {
    let mut part = iovec {
        iov_base: buf,
        iov_len: len,
    };
    let mut message = empty_message();
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !addr.is_null() && !addr_len.is_null() {
        message.msg_name = addr.cast();
        // SAFETY: the caller's contract.
        message.msg_namelen = unsafe { *addr_len };
    }
    // SAFETY: the caller's contract, passed on.
    let received = unsafe { receive_message(fd, &raw mut message, flags)? };
    if received.is_some() && !message.msg_name.is_null() {
        // SAFETY: not null, as asked above.
        let room = unsafe { addr_len.replace(message.msg_namelen) };
        if room.cast_signed() < 0 {
            // What has come is gone by then (`move_addr_to_user`).
            // SAFETY: as above.
            unsafe { *addr_len = room };
            return Err(Errno::INVAL);
        }
    }
    Ok(received)
}

/// recvmsg(2).
///
/// # Safety
/// As recvmsg(2).
pub unsafe fn receive_message(fd: RawFd, message: *mut msghdr, flags: c_int) -> Switched<usize> {
    let Some(mut receiving) = Receiving::begin(fd, flags) else {
        return Ok(None);
    };
    // SAFETY: the caller's contract.
    let message = unsafe { sys::array_mut(message, 1) }.first_mut();
    let message = message.ok_or(Errno::FAULT)?;
    // SAFETY: as above.
    unsafe { sys::check_parts(message.msg_iov, message.msg_iovlen)? };
    // SAFETY: as above, for the iovecs it names.
    let slices = unsafe { sys::io_slices_mut(message.msg_iov, message.msg_iovlen) };
    let mut slices = slices.ok_or(Errno::MSGSIZE)?;
    loop {
        match receiving.step(&mut slices)? {
            None => return Ok(None),
            Some(Step::End) => {
                message.msg_namelen = 0;
                message.msg_controllen = 0;
                message.msg_flags = 0;
                return Ok(Some(0));
            }
            // SAFETY: name and control buffers are the caller's.
            Some(Step::Delivered(letter)) => unsafe {
                return Ok(Some(give_letter(
                    (fd, receiving.told()),
                    message,
                    &letter,
                    flags,
                )));
            },
            // SAFETY: as above.
            Some(Step::Failure(letter)) => unsafe {
                return Ok(Some(give_failure(
                    (fd, receiving.told().0),
                    message,
                    &letter,
                )));
            },
            Some(Step::AskKernel) => {
                let name_room = message.msg_namelen;
                // SAFETY: the whole message is the caller's.
                match unsafe { kernel_receives(fd, message, flags) } {
                    Err(Errno::AGAIN) => receiving.kernel_was_empty(),
                    result => {
                        let len = message.msg_namelen.min(name_room);
                        // SAFETY: the kernel has written that much of the name, if there is room for one.
                        let name = unsafe { name_bytes(message.msg_name, len) };
                        receiving.kernel_had_it(name.unwrap_or_default());
                        if result.is_ok() {
                            receiving.kernel_gave_it();
                        }
                        return result.map(Some);
                    }
                }
            }
        }
    }
}

unsafe fn give_letter(
    (fd, (family, wanted)): (RawFd, (Family, u32)),
    message: &mut msghdr,
    Arrived { letter, place }: &Arrived<Received>,
    flags: c_int,
) -> usize {
    let record = &letter.record;
    let len = usize::try_from(record.len).unwrap_or(0);
    // SAFETY: the caller's buffers.
    unsafe { give_name(message, record.source, family, *place) };
    let mut control = Control::new(control_room(message));
    if wanted != 0 {
        let port = super::names(fd).and_then(|names| names.local);
        let port = port.map_or(0, |local| local.port());
        let own = spoken_to(record.destination, *place);
        control.describe(record, wanted, family, (own, port));
    }
    // SAFETY: the caller's buffers.
    unsafe { give_control(message, &control) };
    // As Linux gives it back (`____sys_recvmsg`).
    message.msg_flags |= flags & libc::MSG_CMSG_CLOEXEC;
    if letter.is_cut {
        message.msg_flags |= libc::MSG_TRUNC;
    }
    if flags & libc::MSG_TRUNC != 0 {
        len
    } else {
        letter.copied
    }
}

unsafe fn give_failure(
    (fd, family): (RawFd, Family),
    message: &mut msghdr,
    Arrived { letter, place }: &Arrived<Failure>,
) -> usize {
    if letter.record.origin == stamp::ORIGIN {
        // SAFETY: the caller's buffers.
        return unsafe { give_stamp(fd, message, letter, *place) };
    }
    // SAFETY: the caller's buffers.
    unsafe { give_name(message, letter.record.destination, family, *place) };
    let mut control = Control::new(control_room(message));
    let scope_id = attached::networks_of(*place).scope_id;
    let mut record = letter.record;
    if i32::from(record.errno) == libc::EMSGSIZE && record.destination.ip().is_loopback() {
        record.info = LOOPBACK_MTU;
    }
    control.explain(&record, family, scope_id);
    // SAFETY: the caller's buffers.
    unsafe { give_entry(message, &control, letter.is_cut) };
    letter.copied
}

/// Gives the caller an entry of the error queue.
///
/// # Safety
/// As `give_control`.
pub unsafe fn give_entry(message: &mut msghdr, control: &Control, is_cut: bool) {
    // SAFETY: the caller's contract.
    unsafe { give_control(message, control) };
    message.msg_flags |= libc::MSG_ERRQUEUE;
    if is_cut {
        message.msg_flags |= libc::MSG_TRUNC;
    }
}

/// Gives the caller a time of sending from the error queue.
unsafe fn give_stamp(
    fd: RawFd,
    message: &mut msghdr,
    letter: &Delivered<Failure>,
    place: EngineIndex,
) -> usize {
    let record = &letter.record;
    let mut control = Control::new(control_room(message));
    let call = Call::begin(fd);
    if let Some(socket) = call.as_ref().and_then(Call::socket) {
        let local = super::names(fd).and_then(|names| names.local);
        let own = local
            .map(|local| local.ip())
            .filter(|own| !own.is_unspecified())
            .unwrap_or_else(|| spoken_to(record.destination.ip(), place).into());
        control.sent(&SentStamp {
            what: u8::try_from(record.info).unwrap_or(u8::MAX),
            at_ns: record.timestamp_ns,
            key: record.data,
            ends: (record.len > 0).then_some((own, record.destination.ip())),
            interface: attached::networks_of(place).scope_id,
            flags: socket.stamping.flags(),
            wanted: socket.wanted(),
            family: socket.family(),
        });
    }
    message.msg_namelen = 0;
    // SAFETY: the caller's buffers.
    unsafe { give_entry(message, &control, letter.is_cut) };
    letter.copied
}

/// The own address that a datagram was spoken to: for a group or a broadcast that of the interface.
fn spoken_to(destination: IpAddr, place: EngineIndex) -> Ipv4Addr {
    let networks = attached::networks_of(place);
    let own = networks
        .interfaces
        .iter()
        .find_map(|network| match network.address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
    match destination {
        IpAddr::V4(address) if !address.is_multicast() && !networks.is_broadcast(address) => {
            address
        }
        _ => own.unwrap_or(Ipv4Addr::UNSPECIFIED),
    }
}

unsafe fn give_name(message: &mut msghdr, address: SocketAddr, family: Family, place: EngineIndex) {
    let name = name::shown(address, family, place);
    if message.msg_name.is_null() {
        message.msg_namelen = 0;
        return;
    }
    let name = name.as_bytes();
    let room = usize::try_from(message.msg_namelen).unwrap_or(0);
    // SAFETY: the name buffer has msg_namelen bytes.
    let target = unsafe { sys::bytes_mut(message.msg_name, room.min(name.len())) };
    target.copy_from_slice(&name[..target.len()]);
    message.msg_namelen = socklen_t::try_from(name.len()).unwrap_or(socklen_t::MAX);
}

/// Bytes that the caller has for control messages.
pub fn control_room(message: &msghdr) -> usize {
    match message.msg_control.is_null() {
        true => 0,
        false => message.msg_controllen,
    }
}

/// Copies control messages to the caller's buffer, as far as they fit; MSG_CTRUNC in its flags where they do not.
///
/// # Safety
/// The buffer is as long as `control_room` says, which is what `control` was made for.
pub unsafe fn give_control(message: &mut msghdr, control: &Control) {
    let bytes = control.bytes();
    // SAFETY: no more bytes than the control buffer has room for.
    let target = unsafe { sys::bytes_mut(message.msg_control, bytes.len()) };
    target.copy_from_slice(bytes);
    message.msg_controllen = bytes.len();
    message.msg_flags = if control.is_cut { libc::MSG_CTRUNC } else { 0 };
}

/// recvmsg(2) of the kernel without sleeping. Not libc's, which may be cancelled.
unsafe fn kernel_receives(fd: RawFd, message: &mut msghdr, flags: c_int) -> Result<usize, Errno> {
    let flags = flags | libc::MSG_DONTWAIT;
    // SAFETY: the message and what it names are the caller's, for exactly this call.
    let result = unsafe { libc::syscall(libc::SYS_recvmsg, fd, &raw mut *message, flags) };
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(sys::errno()))
}

/// Makes the kernel stamp what comes to a backing socket (`sock_enable_timestamp`).
pub fn begin_stamps(fd: RawFd) {
    const SIOCGSTAMPNS_OLD: libc::c_long = 0x8907;
    let mut time = [0_i64; 2];
    // SAFETY: the kernel writes two numbers of eight bytes at most.
    let _ = unsafe { libc::syscall(libc::SYS_ioctl, fd, SIOCGSTAMPNS_OLD, time.as_mut_ptr()) };
}

/// sendmsg(2) of the kernel.
///
/// # Safety
/// As sendmsg(2).
pub unsafe fn kernel_sends(
    fd: RawFd,
    message: *const msghdr,
    flags: c_int,
) -> Result<usize, Errno> {
    // SAFETY: the caller's contract.
    let result = unsafe { libc::syscall(libc::SYS_sendmsg, fd, message, flags) };
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(sys::errno()))
}

unsafe fn name_bytes<'a>(start: *const c_void, len: socklen_t) -> Option<&'a [u8]> {
    let len = usize::try_from(len).unwrap_or(0);
    // SAFETY: the caller's contract.
    (!start.is_null() && len > 0).then(|| unsafe { sys::bytes(start, len) })
}

fn empty_message() -> msghdr {
    // SAFETY: null pointers and zero lengths are a valid msghdr.
    unsafe { std::mem::zeroed() }
}
