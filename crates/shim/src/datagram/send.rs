//! Sending datagrams, in the order of checks that Linux has in `udp_sendmsg`.

use std::io::IoSlice;
use std::os::fd::RawFd;
use std::sync::Arc;

use client::Outgoing;
use core::net::SocketAddr;
use rustix::io::Errno;

use super::{Call, destination, ensure, is_forbidden_broadcast, stack_for};
use crate::accelerated::{self, Stream};
use crate::outcome::Switched;
use crate::readiness::{ALWAYS, OUT};
use crate::sleep::{Deadline, after_interruption};
use crate::socket::{NoFragments, Socket};
use client::address::{self, Family};
use client::datagram_messages::{self as message, Wishes};
use client::route::Stack;

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
        Some(name) => match destination(fd, socket, name)? {
            Some(to) if stack_for(socket, to)? == Stack::Engine => Some(to),
            _ => return Ok(None),
        },
        None if socket.has_engine_peer() => None,
        None => return Ok(None),
    };
    let Some(peer) = to.or_else(|| socket.stream()?.peer()) else {
        return Ok(None);
    };
    let family = address::family(peer);
    let wishes = message::parse(control, family)?;
    if !is_of_engine(&wishes) {
        return Ok(None);
    }
    // Only `udp_sendmsg` looks at it.
    if flags & libc::MSG_OOB != 0 && family == Family::V4 {
        return Err(Errno::OPNOTSUPP);
    }
    if to.is_some_and(|to| is_forbidden_broadcast(socket, to)) {
        return Err(Errno::ACCESS);
    }
    let segment_bytes = wishes.segment_bytes.unwrap_or(socket.segment_bytes());
    let len = slices.iter().map(|slice| slice.len()).sum();
    let whole = wishes.whole || forbids_fragments(socket, family);
    let mtu = accelerated::networks().mtu_bytes;
    let is_short = message::check_length(family, len, usize::from(segment_bytes), whole, mtu);
    if is_short == Err(Errno::MSGSIZE) {
        tell_of_length(fd, socket, len, peer, to.is_some())?;
    }
    is_short?;
    let outgoing = Outgoing {
        destination: to,
        source: wishes.source,
        interface: wishes.interface,
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

/// Whether the interface and the address to send from are the engine's, where a program names them.
fn is_of_engine(wishes: &Wishes) -> bool {
    let networks = accelerated::networks();
    let mut own = networks.interfaces.iter().map(|network| network.address);
    (wishes.interface == 0 || wishes.interface == networks.scope_id)
        && wishes
            .source
            .is_none_or(|source| own.any(|one| one == source))
}

/// Has the error queue say it too, where the program listens to it (`ip_local_error`, `ipv6_local_error`).
fn tell_of_length(
    fd: RawFd,
    socket: &Socket,
    len: usize,
    mut destination: SocketAddr,
    is_named: bool,
) -> Result<(), Errno> {
    let options = super::engine_options(socket);
    let wants = match address::family(destination) {
        // `udp_sendmsg` refuses what no length field can say before it looks at the way.
        Family::V4 => options.v4.error_queue && len <= usize::from(u16::MAX),
        Family::V6 => options.v6.error_queue,
    };
    if wants {
        if is_named && destination.is_ipv4() {
            // It tells the port of the connected peer only (`inet_dport`).
            let connected = socket.stream().and_then(|stream| stream.peer());
            destination.set_port(connected.map_or(0, |peer| peer.port()));
        }
        ensure(fd, socket)?.note_too_long(destination);
    }
    Ok(())
}

fn forbids_fragments(socket: &Socket, family: Family) -> bool {
    match family {
        Family::V4 => socket.forbids_fragments(NoFragments::DiscoveryV4),
        Family::V6 => {
            socket.forbids_fragments(NoFragments::DiscoveryV6)
                || socket.forbids_fragments(NoFragments::OptionV6)
        }
    }
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
