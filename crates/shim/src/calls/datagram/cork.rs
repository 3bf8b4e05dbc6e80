//! MSG_MORE and UDP_CORK of UDP sockets (udp(7), Linux `udp_push_pending_frames`): what several calls send becomes one
//! datagram, which leaves with the first call that does not ask for more, or with the option.

use std::io::IoSlice;
use std::os::fd::RawFd;
use std::sync::Arc;

use client::address::Family;
use client::datagram_messages::payload_max;
use rustix::io::Errno;

use super::send::send;
use crate::outcome::Switched;
use crate::socket::{Socket, corked::Corked};

/// Whether a call's bytes wait for more.
pub fn is_wanted(socket: &Socket, flags: i32) -> bool {
    flags & libc::MSG_MORE != 0 || socket.is_corked()
}

/// Starts a datagram with a call that was found to be right.
pub fn begin(
    socket: &Socket,
    family: Family,
    name: Option<&[u8]>,
    slices: &[IoSlice<'_>],
    control: &[u8],
) -> Result<(), Errno> {
    check(socket)?;
    let payload = together(&[], slices);
    if payload.len() > payload_max(family) {
        return Err(Errno::MSGSIZE);
    }
    let corked = Arc::new(Corked {
        family,
        name: name.map(<[u8]>::to_vec),
        control: control.to_vec(),
        payload,
    });
    socket.change_corked(|_| Some(Arc::clone(&corked)));
    Ok(())
}

/// Adds to it, and sends it unless more is to come. What cannot be added throws it away (`ip_flush_pending_frames`).
pub fn append(fd: RawFd, socket: &Socket, slices: &[IoSlice<'_>], flags: i32) -> Switched<usize> {
    let Some(corked) = socket.take_corked() else {
        return send(fd, None, slices, &[], flags);
    };
    let payload = together(&corked.payload, slices);
    if payload.len() > payload_max(corked.family) {
        return Err(Errno::MSGSIZE);
    }
    let added = payload.len() - corked.payload.len();
    if is_wanted(socket, flags) {
        check(socket)?;
        let grown = Arc::new(Corked {
            family: corked.family,
            name: corked.name.clone(),
            control: corked.control.clone(),
            payload,
        });
        socket.change_corked(|_| Some(Arc::clone(&grown)));
        return Ok(Some(added));
    }
    let name = corked.name.as_deref();
    let sent = send(fd, name, &[IoSlice::new(&payload)], &corked.control, flags)?;
    Ok(sent.map(|_| added))
}

/// A sending call has other things to tell first (`sock_alloc_send_pskb`).
fn check(socket: &Socket) -> Result<(), Errno> {
    let stream = socket.borrow_stream();
    match stream.as_ref().and_then(|stream| stream.take_error()) {
        Some(error) => Err(error),
        None if socket.send_shut() => Err(Errno::PIPE),
        None => Ok(()),
    }
}

/// UDP_CORK is off: what has been put together leaves.
pub fn uncork(fd: RawFd, socket: &Socket) -> Result<(), Errno> {
    if socket.is_corked() || !socket.has_corked() {
        return Ok(());
    }
    append(fd, socket, &[], 0).map(drop)
}

fn together(before: &[u8], slices: &[IoSlice<'_>]) -> Vec<u8> {
    let mut bytes = before.to_vec();
    slices
        .iter()
        .for_each(|slice| bytes.extend_from_slice(slice));
    bytes
}
