//! send(2), recv(2) and all their kin on an accelerated socket, in the order of checks that Linux has
//! in `tcp_recvmsg` and `tcp_sendmsg`, so that a program sees the same errno in the same state.
//!
//! Nothing here allocates or takes a lock of the process; a call that must sleep asks the kernel file
//! for O_NONBLOCK only then.

mod call;
mod sending;
mod wait;

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;

use client::inline_engine;
use rustix::io::Errno;

use crate::addresses;
use crate::calls::datagram::{self, Control, want};
use crate::calls::error_queue;
use crate::fd_table::descriptors::is_tracked;
use crate::outcome::Switched;
use crate::sys::Inside;
use switch::readiness::Phase;
use switch::stream::Stream;

use self::call::on_stream;
pub use self::call::{Call, with_stream};
pub use self::sending::SendStep;
pub use self::wait::Wait;

/// recv(2) with its flags; `slices` is where the bytes go.
pub fn receive(fd: RawFd, slices: &mut [IoSliceMut<'_>], flags: i32) -> Switched<usize> {
    if !is_tracked(fd) {
        return receive_datagram(fd, slices, flags);
    }
    receive_here(fd, slices, flags)
}

/// The same of a number that is tracked, as a part of the function around it.
#[inline(always)]
pub fn receive_here(fd: RawFd, slices: &mut [IoSliceMut<'_>], flags: i32) -> Switched<usize> {
    match on_stream!(fd, |call| call.receive(slices, flags))? {
        None => receive_datagram(fd, slices, flags),
        received => Ok(received),
    }
}

#[inline(never)]
fn receive_datagram(fd: RawFd, slices: &mut [IoSliceMut<'_>], flags: i32) -> Switched<usize> {
    match datagram::receive(fd, slices, flags)? {
        None => addresses::receive(fd, slices, flags),
        received => Ok(received),
    }
}

/// read(2) and readv(2): as recv without flags, but nothing asked for is nothing done.
pub fn read(fd: RawFd, slices: &mut [IoSliceMut<'_>]) -> Switched<usize> {
    if total_mut(slices) == 0 {
        return with_stream(fd, |_| Ok(0));
    }
    receive(fd, slices, 0)
}

/// send(2) with its flags.
pub fn send(fd: RawFd, slices: &[IoSlice<'_>], flags: i32) -> Switched<usize> {
    send_asking(fd, slices, flags, None)
}

/// The same, with what of SO_TIMESTAMPING is for this call alone.
pub fn send_asking(
    fd: RawFd,
    slices: &[IoSlice<'_>],
    flags: i32,
    asked: Option<u32>,
) -> Switched<usize> {
    if !is_tracked(fd) {
        return send_datagram(fd, slices, flags);
    }
    send_here(fd, slices, flags, asked)
}

/// The same of a number that is tracked, as a part of the function around it.
#[inline(always)]
pub fn send_here(
    fd: RawFd,
    slices: &[IoSlice<'_>],
    flags: i32,
    asked: Option<u32>,
) -> Switched<usize> {
    let sent = on_stream!(fd, |call| call.send(slices, flags, asked));
    match sent? {
        None => send_datagram(fd, slices, flags),
        sent => Ok(sent),
    }
}

#[inline(never)]
fn send_datagram(fd: RawFd, slices: &[IoSlice<'_>], flags: i32) -> Switched<usize> {
    let sent = datagram::send(fd, slices, flags)?;
    if sent.is_none() {
        addresses::observe(fd, slices);
    }
    Ok(sent)
}

/// What the program is told with `received` bytes, as control messages (Linux `tcp_recvmsg`): when the latest arrived,
/// and how many are left, of which one stands for the end of the stream. `None`: nothing.
pub fn told_with(fd: RawFd, received: usize, room: usize) -> Option<Control> {
    let told = with_stream(fd, |call| {
        let wanted = call.socket.wanted();
        if wanted == 0 {
            return Ok(None);
        }
        let mut control = Control::new(room);
        let at_ns = call.stream.arrived_at_ns();
        if received > 0 && at_ns != 0 {
            control.stamp(at_ns, wanted);
        }
        if wanted & want::BYTES_LEFT != 0 {
            // Its sequence number counts (`tcp_inq_hint`).
            let end = usize::from(call.stream.fin_received());
            let left = call.stream.queued_bytes() + end;
            control.bytes_left(i32::try_from(left).unwrap_or(i32::MAX));
        }
        Ok(Some(control))
    });
    told.ok().flatten().flatten()
}

impl Call<'_> {
    /// recv(2) with its flags.
    #[inline(always)]
    pub fn receive(&self, slices: &mut [IoSliceMut<'_>], flags: i32) -> Result<usize, Errno> {
        let offset = self.socket.peek_offset();
        let mut placed = 0;
        let is_plain = flags & !libc::MSG_DONTWAIT == 0 && offset < 0;
        let is_usual = is_plain && self.socket.receives_plainly();
        if is_usual && let Some(taken) = self.stream.take_at_once(slices) {
            return Ok(taken);
        }
        if is_usual && flags == 0 && inline_engine::is_here() && self.may_receive_at_once()? {
            // It is there when the thread asks for it, nearly always.
            let is_all;
            (placed, is_all) = self.stream.receive_at_once(slices, Inside::held());
            if placed > 0 && is_all {
                return Ok(placed);
            }
        }
        self.receive_any(slices, placed, flags)
    }

    /// The same, whatever is asked for; the first `placed` bytes are there already.
    #[inline(never)]
    fn receive_any(
        &self,
        slices: &mut [IoSliceMut<'_>],
        placed: usize,
        flags: i32,
    ) -> Result<usize, Errno> {
        let offset = self.socket.peek_offset();
        if offset < 0 || flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
            return self.receive_from(0, slices, placed, flags);
        }
        let peeking = flags & libc::MSG_PEEK != 0;
        let skipped = if peeking {
            usize::try_from(offset).unwrap_or(0)
        } else {
            0
        };
        let got = self.receive_from(skipped, slices, 0, flags)?;
        self.socket.move_peek_offset(got, peeking);
        Ok(got)
    }

    /// The same, where what is only looked at begins after `skipped` bytes, and the first `copied` bytes of the slices are full.
    fn receive_from(
        &self,
        skipped: usize,
        slices: &mut [IoSliceMut<'_>],
        mut copied: usize,
        flags: i32,
    ) -> Result<usize, Errno> {
        if flags & libc::MSG_OOB != 0 {
            return self.receive_urgent(slices, flags);
        }
        if flags & libc::MSG_ERRQUEUE != 0 {
            return error_queue::take_of(self, slices, 0).map(|entry| entry.copied);
        }
        let total = total_mut(slices);
        if total == 0 && self.stream.readable_bytes() > 0 {
            return Ok(0);
        }
        let wanted = self.wanted(total, flags);
        let mut wait = Wait::for_data(flags & libc::MSG_DONTWAIT != 0);
        if self.socket.is_signalled() {
            self.stream.expect_signal();
        }
        loop {
            let peeking = flags & libc::MSG_PEEK != 0;
            let available = if peeking {
                let there = self.stream.readable_bytes().saturating_sub(skipped);
                there.min(total)
            } else {
                copied += self.take(slices, copied, total, flags)?;
                copied
            };
            let stops = || self.no_more_comes() || (!peeking && self.stream.is_at_mark());
            let done = available >= wanted || (available > 0 && stops());
            if !done
                && available == 0
                && let Some(end) = self.end_of_data(skipped)?
            {
                return Ok(end);
            }
            if !done && available == 0 && !wait.may_block(self)? {
                // A program that asks again and again without ever waiting runs an engine inside it, too.
                self.stream.on_nothing_received()?;
                if total > 0 && self.stream.readable_bytes() > skipped {
                    continue;
                }
            }
            if done {
                return if peeking {
                    self.peek(slices, (skipped, available), flags)
                } else {
                    Ok(copied)
                };
            }
            // What was taken is out of the window: any byte is news. What was peeked is still there.
            let seen = if peeking { skipped + available } else { 0 };
            let timeout = self.socket.receive_timeout();
            let slept = if peeking || flags & libc::MSG_TRUNC != 0 {
                let news = || self.stream.readable_bytes() > seen || self.no_more_comes();
                wait.sleep(self, &news, timeout)
            } else {
                let user_buffer = self.stream.lend(slices, copied)?;
                let slept = wait.sleep_with_buffer(self, &user_buffer, timeout);
                copied += user_buffer.placed();
                slept
            };
            match slept {
                Ok(()) => {}
                Err(_) if available > 0 && peeking => {
                    return self.peek(slices, (skipped, available), flags);
                }
                Err(_) if copied > 0 => return Ok(copied),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the call waits where nothing is in the window, and for nothing but bytes.
    #[inline(always)]
    fn may_receive_at_once(&self) -> Result<bool, Errno> {
        let blocks = self.socket.is_known_blocking() || !self.socket.is_nonblocking(self.fd)?;
        Ok(blocks && self.stream.awaits_bytes())
    }

    /// MSG_OOB never waits (tcp_recv_urg).
    fn receive_urgent(&self, slices: &mut [IoSliceMut<'_>], flags: i32) -> Result<usize, Errno> {
        if self.stream.phase() == Phase::Listening {
            return Err(Errno::NOTCONN);
        }
        let target = slices.iter_mut().find(|slice| !slice.is_empty());
        match self.stream.try_receive_urgent(flags & libc::MSG_PEEK != 0) {
            Err(Errno::AGAIN)
                if self.stream.phase() == Phase::Closed || self.socket.receive_shut() =>
            {
                Ok(0)
            }
            Err(error) => Err(error),
            Ok(byte) => Ok(target.map_or(0, |target| {
                if flags & libc::MSG_TRUNC == 0 {
                    target[0] = byte;
                }
                1
            })),
        }
    }

    /// How many bytes must be there before the call returns (sock_rcvlowat).
    fn wanted(&self, total: usize, flags: i32) -> usize {
        if flags & libc::MSG_WAITALL != 0 {
            return total.max(1);
        }
        usize::try_from(self.socket.low_water())
            .unwrap_or(usize::MAX)
            .min(total)
            .max(1)
    }

    fn take(
        &self,
        slices: &mut [IoSliceMut<'_>],
        copied: usize,
        total: usize,
        flags: i32,
    ) -> Result<usize, Errno> {
        if copied == total {
            return Ok(0);
        }
        // MSG_TRUNC on TCP throws the bytes away (tcp(7)).
        if flags & libc::MSG_TRUNC != 0 {
            return self.stream.discard(total - copied);
        }
        let mut moved = 0;
        // What was read before the mark is returned first (tcp_recvmsg_locked).
        while copied + moved < total && (copied + moved == 0 || !self.stream.is_at_mark()) {
            let part = receive_part(self.stream, slices, copied + moved)?;
            if part == 0 {
                break;
            }
            moved += part;
        }
        Ok(moved)
    }

    fn peek(
        &self,
        slices: &mut [IoSliceMut<'_>],
        (skipped, available): (usize, usize),
        flags: i32,
    ) -> Result<usize, Errno> {
        if flags & libc::MSG_TRUNC != 0 {
            return Ok(available);
        }
        if skipped == 0 {
            return self.stream.try_receive(slices, true);
        }
        let mut all = vec![0; skipped + available];
        let got = self
            .stream
            .try_receive(&mut [IoSliceMut::new(&mut all)], true)?;
        let mut rest = all.get(skipped..got).unwrap_or_default();
        let looked_at = rest.len();
        for slice in slices {
            let (part, left) = rest.split_at(slice.len().min(rest.len()));
            slice[..part.len()].copy_from_slice(part);
            rest = left;
        }
        Ok(looked_at)
    }

    /// Waiting for more would be in vain.
    fn no_more_comes(&self) -> bool {
        if self.stream.is_flowing() {
            return self.socket.receive_shut();
        }
        self.stream.fin_received()
            || self.socket.receive_shut()
            || self.stream.has_error()
            || self.stream.phase() == Phase::Closed
    }

    /// Nothing has arrived: what Linux says in each state, or `None` to wait.
    fn end_of_data(&self, skipped: usize) -> Result<Option<usize>, Errno> {
        if self.stream.is_flowing() && !self.socket.receive_shut() && !self.socket.is_spent() {
            return Ok(None);
        }
        if self.stream.phase() == Phase::Listening {
            return Err(Errno::NOTCONN);
        }
        if self.stream.fin_received() {
            // Bytes may have come between the look at the window and the look at the FIN.
            return Ok((self.stream.readable_bytes() <= skipped).then_some(0));
        }
        // The same of an error, which is told after the bytes before it: what was not told when these were looked for stays.
        let is_told = self.stream.has_error();
        if is_told && self.stream.readable_bytes() > skipped {
            return Ok(None);
        }
        if (is_told || self.stream.is_closed())
            && let Some(error) = self.stream.take_error()
        {
            return Err(error);
        }
        if self.socket.receive_shut() {
            return Ok(Some(0));
        }
        if self.socket.is_spent() {
            return Err(Errno::NOTCONN);
        }
        // A closed connection has its reading side shut (tcp_done), so this is an end, not ENOTCONN.
        if self.stream.phase() == Phase::Closed {
            // Of an error that was told meanwhile the next look says.
            let is_end = self.stream.readable_bytes() <= skipped && !self.stream.has_error();
            return Ok(is_end.then_some(0));
        }
        Ok(None)
    }
}

fn total_mut(slices: &[IoSliceMut<'_>]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
}

/// Receives into what lies `done` bytes after the start of `slices`.
fn receive_part(
    stream: &Stream,
    slices: &mut [IoSliceMut<'_>],
    done: usize,
) -> Result<usize, Errno> {
    let (index, offset) = position(slices.iter().map(|slice| slice.len()), done);
    let rest = &mut slices[index..];
    if offset == 0 {
        return stream.try_receive(rest, false);
    }
    stream.try_receive(&mut [IoSliceMut::new(&mut rest[0][offset..])], false)
}

/// The slice and the offset in it of byte `done`.
fn position(lengths: impl Iterator<Item = usize>, done: usize) -> (usize, usize) {
    let mut left = done;
    let mut count = 0;
    for length in lengths {
        if left < length {
            return (count, left);
        }
        left -= length;
        count += 1;
    }
    (count, 0)
}

#[cfg(test)]
mod tests {
    use super::position;

    #[test]
    fn a_position_skips_empty_slices() {
        assert_eq!(position([0, 3, 0, 2].into_iter(), 0), (1, 0));
        assert_eq!(position([0, 3, 0, 2].into_iter(), 2), (1, 2));
        assert_eq!(position([0, 3, 0, 2].into_iter(), 3), (3, 0));
        assert_eq!(position([0, 3, 0, 2].into_iter(), 5), (4, 0));
    }
}
