//! Receiving: copy out of the window, publish how far, tell the engine; or out of the byte channel of a local peer (`byte_channels.rs`),
//! which no engine hears of. No allocation, no lock but the socket's receive lock.
//!
//! Each note is a cache line that goes to the engine's processor and comes back, so small steps are told together:
//! when the consumed position crosses a sixteenth of what is offered of the window, and where nothing is left, each 4 KiB,
//! since an empty window can begin anew (`engine/src/sockets/place.rs`). The header says the position
//! always; the engine looks there when the connection is idle or closed. It is rung, if it sleeps, only at each
//! quarter: until then the peer still has the other three to fill, so nothing waits for the news.

mod at_once;
pub mod user_buffer;

use std::io::IoSliceMut;

use hostif::byte_channel::ByteChannel;
use hostif::header::SHUT_READ;
use hostif::stages::{Mark, mark};
use hostif::{ChannelPair, Consumed, Flags, LaneNews, SocketHeader, Span, Window};
use rustix::io::Errno;

use crate::engines::attachment::Attachment;
use crate::engines::inline_engine;
use crate::readiness::State;
use crate::socket::{LockGuard, Socket};
use crate::tcp::byte_channels::PIECE_BYTES;
use crate::tcp::send::Doorbell;
use crate::tcp::socket::TcpSocket;
use crate::tcp::sys;

/// How often the engine hears of a window that is empty: each 4 KiB.
const EMPTY_STEP_BITS: u32 = 12;

/// What is done under the receive lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Bytes are copied, which is worth nothing if another process takes the lock over meanwhile.
    Copies,
    /// They are used where they lie, and nobody may take them.
    Keeps,
}

/// Bytes in a receive window, or in the byte channel of a local peer, with the receive lock held.
struct Arrived<'a> {
    socket: &'a TcpSocket,
    attachment: &'static Attachment,
    header: SocketHeader<'a>,
    window: Window<'a>,
    /// The consumed position.
    start: u64,
    /// Others may take the lock over.
    copies: bool,
    /// Where what can be received begins: behind an urgent byte that is skipped.
    consumed: u64,
    available: usize,
    /// Where that lies in the window.
    place: u64,
    /// Bytes of the window that the peer may fill.
    offered: u32,
    /// An urgent byte before `consumed` is skipped.
    skips: bool,
    /// The program reads the bytes where they lie.
    in_place: bool,
    bell: Doorbell,
    /// They are in this byte channel, and not in the window.
    byte_channel: Option<&'a ByteChannel>,
    _held: LockGuard<'a>,
}

impl TcpSocket {
    /// Receives what is there and returns how many bytes that was; 0 is the end of the stream. EAGAIN:
    /// nothing yet; ENOTCONN: never connected; else the pending error. With `peek` the bytes stay.
    pub fn try_recv(&self, slices: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        self.try_recv_in(slices, peek, Doorbell::Now)
    }

    /// As `try_recv`, and says when the engine is rung.
    pub fn try_recv_in(
        &self,
        slices: &mut [IoSliceMut<'_>],
        peek: bool,
        bell: Doorbell,
    ) -> Result<usize, Errno> {
        inline_engine::flush_small();
        loop {
            match self.receive_once(slices, peek, bell) {
                // Another process has taken the lock over, and the bytes: those that come next.
                Err(Errno::STALE) => {}
                result => return result,
            }
        }
    }

    /// As `try_recv_in`; ESTALE: what was copied is another process's by now.
    fn receive_once(
        &self,
        slices: &mut [IoSliceMut<'_>],
        peek: bool,
        bell: Doorbell,
    ) -> Result<usize, Errno> {
        let Some(mut arrived) = self.arrived(Use::Copies)? else {
            return self.nothing_arrived();
        };
        arrived.bell = bell;
        if arrived.available == 0 {
            arrived.consume(0)?;
            drop(arrived);
            return self.nothing_arrived();
        }
        if arrived.byte_channel.is_some() {
            return arrived.take_from_byte_channel(slices, peek);
        }
        mark(Mark::Seen);
        let mut done = 0;
        for slice in slices {
            let len = slice.len().min(arrived.available - done);
            done += arrived
                .window
                .copy_out(arrived.place + done as u64, &mut slice[..len]);
            if len < slice.len() {
                break;
            }
        }
        if !peek {
            arrived.consume(done)?;
        } else if arrived.header.consumed() != arrived.start {
            return Err(Errno::STALE);
        }
        Ok(done)
    }

    /// Throws away up to `max` bytes (MSG_TRUNC). Results as of `try_recv`.
    pub fn discard(&self, max: usize) -> Result<usize, Errno> {
        let Some(mut arrived) = self.arrived(Use::Keeps)? else {
            return self.nothing_arrived();
        };
        let bytes = arrived.available.min(max);
        arrived.consume(bytes)?;
        Ok(bytes)
    }

    /// The bytes that are there, `max` at most, as they lie in the window; `None` is the end of the stream.
    /// Errors as of `try_recv`. Holds the socket's receive lock. Does not count as a copy.
    pub fn borrow(&self, max: usize) -> Result<Option<ReceivedBytes<'_>>, Errno> {
        let arrived = match self.arrived(Use::Keeps)? {
            Some(arrived) if arrived.available > 0 => Some(arrived),
            // Only an urgent byte that is skipped.
            Some(mut arrived) => arrived.consume(0).map(|()| None)?,
            None => None,
        };
        let Some(mut arrived) = arrived else {
            return match self.nothing_arrived()? {
                0 => Ok(None),
                _ => Err(Errno::PROTO),
            };
        };
        arrived.in_place = true;
        let len = arrived.available.min(max);
        Ok(Some(ReceivedBytes { arrived, len }))
    }

    fn arrived(&self, using: Use) -> Result<Option<Arrived<'_>>, Errno> {
        let Some((_, receive)) = self.spans() else {
            return Ok(None);
        };
        self.meet_byte_channels();
        // An urgent byte alone stays until it was received out of band.
        if self.readable_bytes() == 0 && !self.is_taken(self.header().consumed()) {
            return Ok(None);
        }
        let window = self.region().window(receive).ok_or(Errno::PROTO)?;
        let attachment = self.attachment()?;
        if !attachment.is_dead() {
            attachment.await_capacity(&attachment.receives)?;
        }
        let header = self.header();
        let (held, copies) = self.hold_received(using, attachment)?;
        let consumed = header.consumed();
        let mut end = header.received_end();
        // After `received_end`: what has come behind a byte channel has come after the byte channel's end was told.
        if let Some(byte_channels) = self.byte_channels()
            && let Some(origin) = byte_channels.back.byte_channel.origin()
        {
            if consumed < origin {
                end = end.min(origin);
            } else if let Some((start, there)) = self.there_in_byte_channel(&byte_channels.back)? {
                return Ok(Some(Arrived {
                    place: start,
                    offered: 0,
                    socket: self,
                    attachment,
                    header,
                    window: byte_channels.back.bytes(),
                    start,
                    copies: false,
                    consumed: start,
                    available: there,
                    skips: false,
                    in_place: false,
                    bell: Doorbell::Now,
                    byte_channel: Some(&byte_channels.back.byte_channel),
                    _held: held,
                }));
            }
        }
        let available = end.saturating_sub(consumed).min(u64::from(receive.size));
        if available == 0 {
            return Ok(None);
        }
        let (start, available) = self.around_urgent(consumed, available);
        let socket = self;
        let (place, offered) = header.receive_place(start, receive.size);
        Ok(Some(Arrived {
            place,
            offered,
            socket,
            attachment,
            header,
            window,
            start: consumed,
            copies,
            consumed: start,
            available: usize::try_from(available).unwrap_or(0),
            skips: start > consumed,
            in_place: false,
            bell: Doorbell::Now,
            byte_channel: None,
            _held: held,
        }))
    }

    /// Takes the receive lock. Whether others may take it over.
    fn hold_received(
        &self,
        using: Use,
        attachment: &'static Attachment,
    ) -> Result<(LockGuard<'_>, bool), Errno> {
        let lock = self.header().receive_lock();
        // The position in a byte channel is not published by comparing: both of its processes are of one user, and rarely several.
        if using == Use::Keeps || self.byte_channels().is_some() {
            return Ok((self.hold(attachment, lock)?, false));
        }
        let held = self.hold_to_copy(attachment, lock)?;
        if self.byte_channels().is_some() {
            return Err(Errno::STALE);
        }
        Ok((held, true))
    }

    /// Where what can be read of a byte channel begins, and how much that is, if anything.
    fn there_in_byte_channel(&self, back: &ChannelPair) -> Result<Option<(u64, usize)>, Errno> {
        let start = self.header().byte_channel_consumed();
        let there = back.byte_channel.available(start);
        let there = there.map_err(|_| self.on_byte_channel_nonsense())?;
        let there = usize::try_from(there).unwrap_or(0);
        Ok((there > 0).then_some((start, there)))
    }

    /// A read stops before the urgent byte, and the next begins behind it, or with it where the program
    /// wants it in line (`tcp_recvmsg_locked` of Linux). Takes and gives start and length.
    fn around_urgent(&self, start: u64, len: u64) -> (u64, u64) {
        if self.is_skipped(start) {
            return (start + 1, len - 1);
        }
        match self.urgent().map(|byte| byte.position) {
            Some(position) if position > start => (start, len.min(position - start)),
            _ => (start, len),
        }
    }

    /// What an empty window means.
    fn nothing_arrived(&self) -> Result<usize, Errno> {
        let state = self.state();
        if state == State::Connected && self.fin_received() {
            // Bytes may have come between the look at the window and the look at the FIN.
            return if self.readable_bytes() == 0 {
                Ok(0)
            } else {
                Err(Errno::AGAIN)
            };
        }
        // The same of an error, which is told after the bytes before it: what was not told when these were looked for stays.
        let is_told = self.has_error();
        if is_told && self.readable_bytes() > 0 {
            return Err(Errno::AGAIN);
        }
        if (is_told || self.is_closed())
            && let Some(error) = self.take_error()
        {
            return Err(error);
        }
        match state {
            State::Idle | State::Listening => Err(Errno::NOTCONN),
            State::Closed if self.readable_bytes() == 0 => Ok(0),
            State::Connected if self.header().shut() & SHUT_READ != 0 => Ok(0),
            State::Connecting | State::Connected | State::Closed => {
                self.on_idle_call();
                Err(Errno::AGAIN)
            }
        }
    }
}

impl Arrived<'_> {
    /// Receives from the byte channel, piece by piece, so that its sender goes on meanwhile.
    fn take_from_byte_channel(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<usize, Errno> {
        let (mut done, mut freed) = (0, 0);
        for piece in slices
            .iter_mut()
            .flat_map(|one| one.chunks_mut(PIECE_BYTES))
        {
            let len = piece.len().min(self.available + freed - done);
            self.window
                .copy_out(self.place + done as u64, &mut piece[..len]);
            done += len;
            if !peek && done - freed >= PIECE_BYTES {
                self.advance(done - freed)?;
                freed = done;
            }
            if len < piece.len() {
                break;
            }
        }
        if !peek && done > freed {
            self.advance(done - freed)?;
        }
        if !peek && done > 0 {
            self.header.program_count_read();
        }
        Ok(done)
    }

    /// Consumes the next bytes of the byte channel.
    fn advance(&mut self, bytes: usize) -> Result<(), Errno> {
        let Some(byte_channel) = self.byte_channel else {
            return Ok(());
        };
        let before = self.available;
        self.available -= bytes;
        self.consumed += bytes as u64;
        self.header.program_set_byte_channel_consumed(self.consumed);
        if byte_channel.free(self.consumed, before as u64, self.available as u64) {
            self.socket.tell_byte_channel(LaneNews::Room)?;
        }
        Ok(())
    }

    fn consume(&mut self, bytes: usize) -> Result<(), Errno> {
        if self.byte_channel.is_some() {
            if bytes > 0 {
                self.header.program_count_read();
            }
            return self.advance(bytes);
        }
        if bytes == 0 && !self.skips {
            return Ok(());
        }
        let is_urging = self.note(bytes)?;
        if is_urging && self.bell == Doorbell::Now {
            self.attachment.ring_engine();
        }
        Ok(())
    }

    /// Moves the position and tells the engine where that is due. Whether it has to be rung for that.
    fn note(&mut self, bytes: usize) -> Result<bool, Errno> {
        let step = Step {
            start: self.consumed,
            end: self.consumed + bytes as u64,
            offered: self.offered,
            in_place: self.in_place,
        };
        if !self.copies {
            self.header.program_set_consumed(step.end);
        } else if !self.header.program_advance_consumed(self.start, step.end) {
            return Err(Errno::STALE);
        }
        self.socket
            .note(self.attachment, &step, bytes == self.available)
    }
}

/// Bytes that a program has consumed: the position was moved.
struct Step {
    start: u64,
    end: u64,
    /// Bytes of the window that the peer may fill.
    offered: u32,
    /// They were read where they lie.
    in_place: bool,
}

impl Step {
    /// Whether it reaches or passes a multiple of 2^`bits`.
    #[inline]
    fn crosses(&self, bits: u32) -> bool {
        (self.start ^ self.end) >> bits != 0
    }
}

impl TcpSocket {
    /// Tells the engine of a step where that is due. Whether it has to be rung for that. `is_empty`: nothing is left to be read.
    #[inline(always)]
    fn note(
        &self,
        attachment: &'static Attachment,
        step: &Step,
        is_empty: bool,
    ) -> Result<bool, Errno> {
        let header = self.header();
        header.program_set_consumed_in_place(step.in_place);
        if step.end > step.start {
            header.program_count_read();
        }
        if attachment.is_dead() {
            return Ok(false);
        }
        let offered_bits = step.offered.max(16).ilog2();
        let is_awaited = is_empty && header.flags().contains(Flags::ACK_WAITS);
        let is_due = is_awaited
            || step.crosses(offered_bits - 4)
            || is_empty && step.crosses(EMPTY_STEP_BITS);
        if !is_due {
            return Ok(false);
        }
        let crosses_quarter = step.crosses(offered_bits - 2);
        let note = Consumed {
            socket: self.id(),
            end: step.end,
            in_place: step.in_place,
        };
        attachment.push(&attachment.receives, &note)?;
        Ok(crosses_quarter || is_awaited)
    }
}

/// Bytes of a receive window or a byte channel, which the program reads in place. They stay there unless they are consumed.
pub struct ReceivedBytes<'a> {
    arrived: Arrived<'a>,
    len: usize,
}

impl ReceivedBytes<'_> {
    /// How many there are; at least 1 unless 0 were asked for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where they lie: first span, then the one after the wrap (perhaps empty). The addresses are good until
    /// the bytes are consumed or given back.
    #[must_use]
    pub fn spans(&self) -> [(*mut u8, usize); 2] {
        self.arrived
            .window
            .spans(self.arrived.place, self.len)
            .map(Span::raw)
    }

    /// The bytes themselves, in two slices as in `spans`.
    #[must_use]
    pub fn slices(&self) -> [&[u8]; 2] {
        sys::received(self)
    }

    /// The caller has the kernel copy them, into a file say: they are counted so.
    pub fn count_as_copied(&mut self) {
        self.arrived.in_place = false;
    }

    /// The first `bytes` of them are done with, and the window has their space again; returns how many.
    pub fn consume(mut self, bytes: usize) -> Result<usize, Errno> {
        let bytes = bytes.min(self.len);
        self.arrived.consume(bytes)?;
        Ok(bytes)
    }
}
