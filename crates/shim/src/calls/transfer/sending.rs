//! Sending on a stream, in the order of checks that Linux has in `tcp_sendmsg`.

use std::io::IoSlice;

use rustix::io::Errno;

use super::{Call, Wait, position};
use crate::calls::error_queue;
use crate::sys::{self, Inside};
use client::WriteMode;
use switch::readiness::{ALWAYS, OUT, Phase};

/// Flags that mean nothing for a call that is done at once.
const FOR_WAITS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

impl Call<'_> {
    /// send(2) with its flags; `asked` is what of SO_TIMESTAMPING is for this call alone.
    #[inline(always)]
    pub(super) fn send(
        &self,
        slices: &[IoSlice<'_>],
        flags: i32,
        asked: Option<u32>,
    ) -> Result<usize, Errno> {
        let total = slices.iter().map(|slice| slice.len()).sum();
        let stamps = self.socket.stamping.of_stream(asked);
        // What nearly every call is.
        if flags & !FOR_WAITS == 0
            && stamps == 0
            && !self.socket.send_shut()
            && self.stream.send_at_once(slices, total, Inside::held())
        {
            return Ok(total);
        }
        self.send_any(slices, total, flags, stamps)
    }

    /// The same, whatever is asked for.
    #[inline(never)]
    fn send_any(
        &self,
        slices: &[IoSlice<'_>],
        total: usize,
        flags: i32,
        stamps: u8,
    ) -> Result<usize, Errno> {
        let sent = self.send_all(slices, total, flags, stamps)?;
        if flags & libc::MSG_ZEROCOPY != 0 && sent > 0 {
            error_queue::completed(self.fd, self.socket);
        }
        Ok(sent)
    }

    fn send_all(
        &self,
        slices: &[IoSlice<'_>],
        total: usize,
        flags: i32,
        stamps: u8,
    ) -> Result<usize, Errno> {
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
        let signal = flags & libc::MSG_NOSIGNAL == 0;
        let dont_wait = flags & libc::MSG_DONTWAIT != 0;
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

    /// Moves `total` bytes with `part`, which gets the count so far and what is left. Waits for free space as the socket's
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
