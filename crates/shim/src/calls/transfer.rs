//! send(2), recv(2) and all their kin on an accelerated socket, in the order of checks that Linux has
//! in `tcp_recvmsg` and `tcp_sendmsg`, so that a program sees the same errno in the same state.
//!
//! Nothing here allocates or takes a lock of the process; a call that must sleep asks the kernel file
//! for O_NONBLOCK only then.

mod call;
mod wait;

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::accelerated::{Stream, WriteMode};
use crate::addresses;
use crate::calls::datagram::{self, Control, want};
use crate::calls::error_queue;
use crate::outcome::Switched;
use crate::sys;
use crate::wait::readiness::{ALWAYS, OUT, Phase};

pub use self::call::{Call, with_stream};
pub use self::wait::Wait;

/// recv(2) with its flags; `slices` is where the bytes go.
pub fn receive(fd: RawFd, slices: &mut [IoSliceMut<'_>], flags: i32) -> Switched<usize> {
    match with_stream(fd, |call| call.receive(slices, flags))? {
        None => receive_datagram(fd, slices, flags),
        received => Ok(received),
    }
}

fn receive_datagram(fd: RawFd, slices: &mut [IoSliceMut<'_>], flags: i32) -> Switched<usize> {
    match datagram::receive(fd, slices, flags)? {
        None => addresses::receive(fd, slices, flags),
        received => Ok(received),
    }
}

/// read(2) and readv(2): as recv without flags, but nothing asked for is nothing done.
pub fn read(fd: RawFd, slices: &mut [IoSliceMut<'_>]) -> Switched<usize> {
    let received = with_stream(fd, |call| {
        if total_mut(slices) == 0 {
            Ok(0)
        } else {
            call.receive(slices, 0)
        }
    })?;
    match received {
        None if total_mut(slices) > 0 => receive_datagram(fd, slices, 0),
        received => Ok(received),
    }
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
    let sent = with_stream(fd, |call| {
        let sent = call.send(slices, flags, asked)?;
        if flags & libc::MSG_ZEROCOPY != 0 && sent > 0 {
            error_queue::completed(fd, call.socket);
        }
        Ok(sent)
    });
    let sent = match sent? {
        None => datagram::send(fd, slices, flags)?,
        sent => sent,
    };
    if sent.is_none() {
        addresses::observe(fd, slices);
    }
    Ok(sent)
}

/// What the program wants to hear with `received` bytes, as control messages (Linux `tcp_recvmsg`): when the latest arrived,
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
    pub fn receive(&self, slices: &mut [IoSliceMut<'_>], flags: i32) -> Result<usize, Errno> {
        let offset = self.socket.peek_offset();
        if offset < 0 || flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
            return self.receive_from(0, slices, flags);
        }
        let peeking = flags & libc::MSG_PEEK != 0;
        let skipped = if peeking {
            usize::try_from(offset).unwrap_or(0)
        } else {
            0
        };
        let got = self.receive_from(skipped, slices, flags)?;
        self.socket.move_peek_offset(got, peeking);
        Ok(got)
    }

    /// The same, where what is only looked at begins after `skipped` bytes.
    fn receive_from(
        &self,
        skipped: usize,
        slices: &mut [IoSliceMut<'_>],
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
        let mut copied = 0;
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
                let slept = wait.sleep_lending(self, &user_buffer, timeout);
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

    /// Nothing is there: what Linux says in each state, or `None` to wait.
    fn end_of_data(&self, skipped: usize) -> Result<Option<usize>, Errno> {
        if self.stream.is_flowing() && !self.socket.receive_shut() && !self.socket.is_spent() {
            self.stream.on_nothing_received()?;
            return Ok(None);
        }
        if self.stream.phase() == Phase::Listening {
            return Err(Errno::NOTCONN);
        }
        if self.stream.fin_received() {
            // Bytes may have come between the look at the window and the look at the FIN.
            return Ok((self.stream.readable_bytes() <= skipped).then_some(0));
        }
        if let Some(error) = self.stream.take_error() {
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
            return Ok((self.stream.readable_bytes() <= skipped).then_some(0));
        }
        self.stream.on_nothing_received()?;
        Ok(None)
    }

    fn send(&self, slices: &[IoSlice<'_>], flags: i32, asked: Option<u32>) -> Result<usize, Errno> {
        let mode = if flags & libc::MSG_OOB != 0 {
            WriteMode::Urgent
        } else if flags & libc::MSG_EOR != 0 {
            WriteMode::EndOfRecord
        } else if flags & libc::MSG_MORE != 0 {
            WriteMode::More
        } else {
            WriteMode::Plain
        };
        if flags & libc::MSG_FASTOPEN != 0 && !self.stream.holds_syn() {
            match self.stream.phase() {
                Phase::Connecting => return Err(Errno::ALREADY),
                // As connect: the first call after the handshake finds it done.
                Phase::Connected if self.socket.report_connected() => return Err(Errno::ISCONN),
                _ => {}
            }
        }
        let total = slices.iter().map(|slice| slice.len()).sum();
        let signal = flags & libc::MSG_NOSIGNAL == 0;
        let dont_wait = flags & libc::MSG_DONTWAIT != 0;
        let stamps = self.socket.stamping.of_stream(asked);
        if stamps == 0 {
            return self.push(total, signal, dont_wait, &mut |done, _| {
                send_part(slices, done, &|part| self.stream.try_send(part, mode))
            });
        }
        let by_byte_channel = self.stream.sends_by_byte_channel();
        let sent = self.push(total, signal, dont_wait, &mut |done, _| {
            send_part(slices, done, &|part| {
                self.stream.try_send_stamped(part, mode, stamps)
            })
        })?;
        if sent > 0 && (sent < total || by_byte_channel || self.stream.sends_by_byte_channel()) {
            self.stream.stamp_written(stamps);
        }
        Ok(sent)
    }

    /// Moves `total` bytes with `part`, which gets the count so far and what is left. Waits for room as the socket's
    /// flags say.
    pub fn push(
        &self,
        total: usize,
        signal: bool,
        dont_wait: bool,
        part: &mut dyn FnMut(usize, usize) -> Result<SendStep, Errno>,
    ) -> Result<usize, Errno> {
        let mut wait = Wait::new(dont_wait);
        let mut moved = 0;
        // What only a SYN has taken is not sent if the connection never stands.
        let mut with_syn = self.stream.holds_syn();
        loop {
            with_syn &= self.stream.phase() != Phase::Connected;
            match self.may_send() {
                Ok(true) if moved == total => return Ok(moved),
                Ok(true) => match part(moved, total - moved) {
                    Ok(SendStep::Moved(bytes)) => {
                        moved += bytes;
                        let is_all = moved == total && !with_syn;
                        // However fast the answer to a SYN came: as connect.
                        if is_all
                            || with_syn && (dont_wait || self.socket.is_nonblocking(self.fd)?)
                        {
                            return Ok(moved);
                        }
                        continue;
                    }
                    Ok(SendStep::Full) => {}
                    Ok(SendStep::End) => return Ok(moved),
                    Err(_) if moved > 0 => return Ok(moved),
                    Err(Errno::PIPE) => return Err(self.send_error(signal)),
                    Err(error) => return Err(error),
                },
                Ok(false) => {}
                Err(_) if moved > 0 && !with_syn => return Ok(moved),
                Err(_) => return Err(self.send_error(signal)),
            }
            let news = || self.events() & (OUT | ALWAYS) != 0;
            match wait.sleep(self, &news, self.socket.send_timeout()) {
                Ok(()) => {}
                Err(error) => {
                    // As SOCK_NOSPACE: whoever watches hears when there is room.
                    let _ = self.events();
                    return if moved > 0 { Ok(moved) } else { Err(error) };
                }
            }
        }
    }

    /// Whether bytes may go now; `false` while connecting. `Err` where they never may again; what is
    /// the matter is left for [`Self::send_error`] to fetch.
    fn may_send(&self) -> Result<bool, Errno> {
        if self.stream.has_error() || self.socket.send_shut() {
            return Err(Errno::PIPE);
        }
        match self.stream.phase() {
            Phase::Connected => Ok(true),
            Phase::Connecting => Ok(self.stream.holds_syn()),
            Phase::Closed | Phase::Listening => Err(Errno::PIPE),
        }
    }

    /// sk_stream_error: a pending error comes first and raises no signal, unless it is EPIPE itself.
    fn send_error(&self, signal: bool) -> Errno {
        let error = self.stream.take_error().unwrap_or(Errno::PIPE);
        if signal && error == Errno::PIPE {
            sys::raise_broken_pipe();
        }
        error
    }
}

/// What one step of a sending call did.
pub enum SendStep {
    /// So many bytes are in the window; more than 0.
    Moved(usize),
    /// The window is full.
    Full,
    /// The source has no more.
    End,
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

/// Sends what lies `done` bytes after the start of `slices`.
fn send_part(
    slices: &[IoSlice<'_>],
    done: usize,
    send: &dyn Fn(&[IoSlice<'_>]) -> Result<usize, Errno>,
) -> Result<SendStep, Errno> {
    let (index, offset) = position(slices.iter().map(|slice| slice.len()), done);
    let rest = &slices[index..];
    let sent = if offset == 0 {
        send(rest)?
    } else {
        send(&[IoSlice::new(&rest[0][offset..])])?
    };
    Ok(if sent == 0 {
        SendStep::Full
    } else {
        SendStep::Moved(sent)
    })
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
