//! Sending datagrams, in the order of checks that Linux has in `udp_sendmsg`.

use std::io::IoSlice;
use std::os::fd::RawFd;
use std::sync::Arc;

use client::Outgoing;
use core::net::{IpAddr, SocketAddr};
use rustix::io::Errno;

use super::{Call, destination, ensure, is_forbidden_broadcast, message, stack_for};
use crate::accelerated::{self, Stream};
use crate::outcome::Switched;
use crate::readiness::{ALWAYS, OUT};
use crate::route::Stack;
use crate::sleep::{Deadline, after_interruption};
use crate::socket::Socket;

/// Most bytes of payload in an IPv4 datagram.
const PAYLOAD_MAX: usize = 65_535 - 20 - 8;
/// Of a packet that is no payload.
const HEADERS_LEN: usize = 20 + 8;

/// What a call wants besides the payload: from control messages (ip(7), udp(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// IP_PKTINFO's address.
    pub source: Option<IpAddr>,
    /// IP_TOS.
    pub tos: Option<u8>,
    /// IP_TTL.
    pub ttl: Option<u8>,
    /// UDP_SEGMENT.
    pub segment_bytes: Option<u16>,
}

/// Sends one datagram to whom `name` says, or to the peer.
pub fn send(
    fd: RawFd,
    name: Option<&[u8]>,
    slices: &[IoSlice<'_>],
    control: &[u8],
    flags: i32,
) -> Switched<usize> {
    let Some(call) = Call::begin(fd) else {
        return Ok(None);
    };
    let Some(socket) = call.socket() else {
        return Ok(None);
    };
    let to = match name {
        Some(name) => match destination(name)? {
            Some(to) if stack_for(socket, to)? == Stack::Engine => Some(to),
            _ => return Ok(None),
        },
        None if socket.has_engine_peer() => None,
        None => return Ok(None),
    };
    let wishes = message::parse(control)?;
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if to.is_some_and(|to| is_forbidden_broadcast(socket, to)) {
        return Err(Errno::ACCESS);
    }
    let segment_bytes = wishes.segment_bytes.unwrap_or(socket.segment_bytes());
    let len = slices.iter().map(|slice| slice.len()).sum();
    check_length(socket, len, usize::from(segment_bytes))?;
    let outgoing = Outgoing {
        destination: to.map(SocketAddr::V4),
        source: wishes.source,
        tos: wishes.tos,
        ttl: wishes.ttl,
        segment_bytes: if len > usize::from(segment_bytes) {
            segment_bytes
        } else {
            0
        },
        ..Outgoing::default()
    };
    let stream = ensure(fd, socket)?;
    push(&call, socket, &stream, &outgoing, slices, flags).map(Some)
}

/// EMSGSIZE at once, where the program can still be told.
fn check_length(socket: &Socket, len: usize, segment_bytes: usize) -> Result<(), Errno> {
    if len > PAYLOAD_MAX {
        return Err(Errno::MSGSIZE);
    }
    let mtu = accelerated::networks().mtu_bytes;
    let piece = if segment_bytes > 0 && len > segment_bytes {
        segment_bytes
    } else {
        len
    };
    if segment_bytes > 0 && piece + HEADERS_LEN > mtu {
        return Err(Errno::INVAL);
    }
    if piece + HEADERS_LEN > mtu && socket.forbids_fragments() {
        return Err(Errno::MSGSIZE);
    }
    Ok(())
}

fn push(
    call: &Call,
    socket: &Socket,
    stream: &Arc<Stream>,
    outgoing: &Outgoing,
    slices: &[IoSlice<'_>],
    flags: i32,
) -> Result<usize, Errno> {
    let mut deadline = None;
    loop {
        match stream.send_datagram(outgoing, slices) {
            Err(Errno::AGAIN) => {}
            result => return result,
        }
        let deadline = match deadline {
            Some(deadline) => deadline,
            None if flags & libc::MSG_DONTWAIT != 0 || socket.is_nonblocking(call.fd)? => {
                return Err(Errno::AGAIN);
            }
            None => *deadline.insert(Deadline::after_option(socket.send_timeout())),
        };
        if deadline.is_over() {
            return Err(Errno::AGAIN);
        }
        let _open = call.file.sleeper();
        let mut news = || stream.events() & (OUT | ALWAYS) != 0;
        match accelerated::sleep(&[stream], &mut [], None, deadline, &mut news) {
            Err(Errno::INTR) => after_interruption(deadline)?,
            result => result?,
        }
    }
}
