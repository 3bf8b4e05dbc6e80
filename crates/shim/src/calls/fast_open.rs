//! MSG_FASTOPEN (sendto(2), sendmsg(2)): connects and sends in one call, as Linux's `tcp_sendmsg_fastopen`.
//!
//! With a cookie the SYN takes the bytes along; without one it asks for a cookie and the bytes wait for the
//! handshake, which a non-blocking call does not: it says EINPROGRESS and has sent nothing.

use std::io::IoSlice;
use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::calls::connect::{self, Opening};
use crate::calls::transfer;
use crate::fd_table::descriptors;
use crate::outcome::Switched;
use client::address::{self, Name};
use switch::readiness::Phase;

/// A sending call with MSG_FASTOPEN; `name` is whom to connect to.
pub fn send(fd: RawFd, name: Option<&[u8]>, slices: &[IoSlice<'_>], flags: i32) -> Switched<usize> {
    let Some(file) = descriptors::lookup(fd) else {
        return Ok(None);
    };
    let Some(socket) = file.socket().filter(|socket| !socket.is_datagram()) else {
        return Ok(None);
    };
    if socket.stream().is_some() {
        return transfer::send(fd, slices, flags);
    }
    let Some(name) = name else {
        return Ok(None); // The kernel says why not.
    };
    let destination = match address::parse(name, socket.family())? {
        Name::Ip(destination) => destination,
        Name::Unspecified => return Err(Errno::OPNOTSUPP),
        _ => return Ok(None),
    };
    let opening = match slices.iter().all(|slice| slice.is_empty()) {
        true => Opening::ForCookie,
        false => Opening::Fast,
    };
    let Some(stream) = connect::open_towards(fd, socket, destination, opening)? else {
        return Ok(None);
    };
    match transfer::send(fd, slices, flags & !libc::MSG_FASTOPEN) {
        Err(Errno::AGAIN) => Err(Errno::INPROGRESS),
        Err(error) => {
            if stream.phase() == Phase::Closed && !socket.was_connected() {
                socket.undecide();
            }
            Err(error)
        }
        sent => {
            // However fast the answer came: a call that does not wait leaves the success to connect, as Linux.
            let waits = flags & libc::MSG_DONTWAIT == 0 && !socket.is_nonblocking(fd)?;
            if waits && stream.phase() == Phase::Connected {
                socket.report_connected();
            }
            sent
        }
    }
}
