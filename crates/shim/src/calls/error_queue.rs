//! The error queue of a TCP socket (MSG_ERRQUEUE): calls with MSG_ZEROCOPY that are complete, and times of sending. What a
//! program gives is copied into the send window before the call returns, so its completion waits at once, and says that it
//! was copied: as the kernel's over loopback. Read first: `Documentation/networking/msg_zerocopy.rst` of the kernel.

mod completions;

use std::io::IoSliceMut;
use std::os::fd::RawFd;

use client::{SentStamp, stamp};
use rustix::io::Errno;

use crate::calls::datagram::{Control, want};
use crate::calls::transfer::{Call, with_stream};
use crate::outcome::Switched;
use crate::socket::Socket;
use switch::attached;
use switch::backing;
use switch::readiness::ERR;

pub use completions::Completions;

/// A call with MSG_ZEROCOPY has moved bytes. Without SO_ZEROCOPY, which the backing socket knows, nobody asks for it.
pub fn completed(fd: RawFd, socket: &Socket) {
    // A connection may have it from its listener.
    socket.pay_options(fd);
    let mut value = [0; 4];
    let asked = backing::option(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, &mut value);
    if asked.is_ok() && value != [0; 4] {
        socket.completions.add();
        socket.watchers.notify(ERR);
    }
}

/// An entry of the queue, of which the bytes are in the caller's buffers.
pub struct Entry {
    /// What it says.
    pub control: Control,
    /// How many bytes it brought.
    pub copied: usize,
    /// There were more (MSG_TRUNC).
    pub is_cut: bool,
}

/// Takes the oldest entry, with `room` for control messages; `None`: it is no such socket.
pub fn take(fd: RawFd, slices: &mut [IoSliceMut<'_>], room: usize) -> Switched<Entry> {
    with_stream(fd, |call| take_of(call, slices, room))
}

/// Whether source and destination go with an entry: a program that asks for them with datagrams gets them here too.
fn wants_ends(socket: &Socket) -> u32 {
    let asks = |level, name, want| match socket.log.is_on(level, name) {
        true => want,
        false => 0,
    };
    asks(libc::IPPROTO_IP, libc::IP_PKTINFO, want::PACKET_INFO)
        | asks(
            libc::IPPROTO_IPV6,
            libc::IPV6_RECVPKTINFO,
            want::PACKET_INFO_V6,
        )
}

/// The same, of a call on a stream. EAGAIN: there is none.
pub fn take_of(
    call: &Call<'_>,
    slices: &mut [IoSliceMut<'_>],
    room: usize,
) -> Result<Entry, Errno> {
    let socket = call.socket();
    let mut control = Control::new(room);
    if let Some((first, last)) = socket.completions.take() {
        control.complete(first, last, socket.family());
        return Ok(Entry {
            control,
            copied: 0,
            is_cut: false,
        });
    }
    let stream = call.stream();
    let told = stream.take_stamp()?;
    let mut rest = &told.bytes[..];
    for slice in slices {
        let (part, left) = rest.split_at(slice.len().min(rest.len()));
        slice[..part.len()].copy_from_slice(part);
        rest = left;
    }
    let copied = told.bytes.len() - rest.len();
    let ends = stream.local().zip(stream.peer());
    control.sent(&SentStamp {
        what: told.what,
        at_ns: told.at_ns,
        key: socket.stamping.key_of(&told),
        ends: ends
            .filter(|_| told.len > 0 && told.what != stamp::TOLD_ACKNOWLEDGED)
            .map(|(local, peer)| (local.ip(), peer.ip())),
        interface: attached::networks_of(stream.place()).scope_id,
        flags: socket.stamping.flags(),
        wanted: socket.wanted() | wants_ends(socket),
        family: socket.family(),
    });
    Ok(Entry {
        control,
        copied,
        is_cut: copied < usize::try_from(told.len).unwrap_or(usize::MAX),
    })
}
