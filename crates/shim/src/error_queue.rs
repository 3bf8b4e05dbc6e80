//! The error queue of a TCP socket (MSG_ERRQUEUE): calls with MSG_ZEROCOPY that are complete, and times of sending. What a
//! program gives is copied into the send window before the call returns, so its completion waits at once, and says that it
//! was copied: as the kernel's over loopback. Read first: `Documentation/networking/msg_zerocopy.rst` of the kernel.

use std::io::IoSliceMut;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{SentStamp, stamp};
use rustix::io::Errno;

use crate::accelerated;
use crate::datagram::{Control, want};
use crate::outcome::Switched;
use crate::readiness::ERR;
use crate::socket::Socket;
use crate::sys;
use crate::transfer::{Call, with_stream};

/// The calls of a socket that are complete, and how many of them the program has heard of.
#[derive(Debug, Default)]
pub struct Completions {
    /// Calls so far in the lower half, and those told in the upper one; both count on beyond 2^32 from 0.
    counts: AtomicU64,
}

impl Completions {
    /// One more call is complete.
    fn add(&self) {
        let next = |counts| Some(join(low(counts).wrapping_add(1), high(counts)));
        let _ = self
            .counts
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// Whether there are some that were not told.
    pub fn wait(&self) -> bool {
        let counts = self.counts.load(Ordering::Acquire);
        low(counts) != high(counts)
    }

    /// The first and the last call that were not told; they are from now on.
    pub fn take(&self) -> Option<(u32, u32)> {
        let told = |counts| (low(counts) != high(counts)).then(|| join(low(counts), low(counts)));
        let before = self
            .counts
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, told);
        let before = before.ok()?;
        Some((high(before), low(before).wrapping_sub(1)))
    }
}

fn low(counts: u64) -> u32 {
    let [a, b, c, d, ..] = counts.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn high(counts: u64) -> u32 {
    let [.., a, b, c, d] = counts.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn join(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// A call with MSG_ZEROCOPY has moved bytes. Without SO_ZEROCOPY, which the backing socket knows, nobody wants to hear of it.
pub fn completed(fd: RawFd, socket: &Socket) {
    let mut value = [0; 4];
    let asked = sys::option(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, &mut value);
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

/// Who is told from where to where datagrams go is told it here; with bytes of a stream nothing is told of it.
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
        interface: accelerated::networks_of(stream.place()).scope_id,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_once_and_together() {
        let completions = Completions::default();
        assert_eq!(completions.take(), None);
        completions.add();
        assert_eq!(completions.take(), Some((0, 0)));
        completions.add();
        completions.add();
        assert!(completions.wait());
        assert_eq!(completions.take(), Some((1, 2)));
        assert!(!completions.wait() && completions.take().is_none());
    }

    #[test]
    fn counts_go_on_from_nought() {
        let completions = Completions {
            counts: AtomicU64::new(join(u32::MAX, u32::MAX)),
        };
        completions.add();
        completions.add();
        assert_eq!(completions.take(), Some((u32::MAX, 0)));
    }
}
