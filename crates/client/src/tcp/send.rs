//! Sending: copy into the window, or name a file; tell the engine, publish how far. No allocation, no lock but the
//! socket's send lock, a system call only to ring an engine that sleeps.

mod at_once;

use std::io::IoSlice;

use hostif::header::SHUT_WRITE;
use hostif::stages::{Mark, mark};
use hostif::{FileSource, SocketHeader, Span, WindowSpan, WriteMode, Written};
use rustix::io::Errno;

use crate::engines::attachment::SMALL_BYTES;
use crate::readiness::State;
use crate::socket::{LockedWindow, Socket};
use crate::tcp::byte_channels::ChannelSpace;
use crate::tcp::files::SharedFile;
use crate::tcp::socket::TcpSocket;
use crate::tcp::sys;

/// The engine hears of a long write piece by piece, so that it sends one piece while the next is copied.
const CHUNK_BYTES: usize = 64 * 1024;

/// Free bytes of a send window, with the send lock held.
struct FreeSpace<'a> {
    socket: &'a TcpSocket,
    locked: LockedWindow<'a>,
    written: u64,
    free: usize,
    mode: WriteMode,
    /// The program makes the bytes where they lie.
    in_place: bool,
    /// Which times of the last byte the program asks for: bits of [`hostif::stamp`].
    stamps: u8,
    bell: Doorbell,
}

/// When an engine that sleeps hears of what a call did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doorbell {
    /// At once.
    #[default]
    Now,
    /// When the caller calls [`Session::ring`](crate::Session::ring): for several calls together.
    Later,
}

impl TcpSocket {
    /// Sends what fits now and returns how many bytes that was. EAGAIN: the window is full, or still connecting;
    /// EPIPE: nothing can be sent (any more); else the pending error.
    pub fn try_send(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        self.try_send_as(slices, WriteMode::Plain)
    }

    /// As `try_send`, in a mode that holds for what the call sends last. Where not all
    /// of it fits, nothing of what is sent is urgent.
    pub fn try_send_as(&self, slices: &[IoSlice<'_>], mode: WriteMode) -> Result<usize, Errno> {
        self.try_send_in(slices, mode, Doorbell::Now)
    }

    /// As `try_send_as`, and says when the engine is rung.
    pub fn try_send_in(
        &self,
        slices: &[IoSlice<'_>],
        mode: WriteMode,
        bell: Doorbell,
    ) -> Result<usize, Errno> {
        self.send_stamped(slices, (mode, 0), bell)
    }

    /// As `try_send_as`, for a program that asks when the last byte leaves (bits of [`hostif::stamp`]). Where not
    /// all of it fits, and for what goes to a local peer, [`TcpSocket::stamp_written`] asks for that.
    pub fn try_send_stamped(
        &self,
        slices: &[IoSlice<'_>],
        mode: WriteMode,
        stamps: u8,
    ) -> Result<usize, Errno> {
        self.send_stamped(slices, (mode, stamps), Doorbell::Now)
    }

    fn send_stamped(
        &self,
        slices: &[IoSlice<'_>],
        (mode, stamps): (WriteMode, u8),
        bell: Doorbell,
    ) -> Result<usize, Errno> {
        if let Some(sent) = self.try_send_byte_channel(slices, mode)? {
            return Ok(sent);
        }
        let mut room = self.free_space()?;
        room.mode = mode;
        room.stamps = stamps;
        room.bell = bell;
        let (mut done, mut told) = (0, 0);
        for slice in slices {
            let len = slice.len().min(room.free - done);
            for piece in slice[..len].chunks(CHUNK_BYTES) {
                if done - told + piece.len() > CHUNK_BYTES {
                    room.tell_more(told, done)?;
                    told = done;
                }
                done += room
                    .locked
                    .window
                    .copy_in(room.written + done as u64, piece);
            }
            if len < slice.len() {
                // A short send shows up as not writable, as in Linux (SOCK_NOSPACE).
                room.locked.header.program_want_tx();
                // What follows will be sent by another call, which says how.
                room.mode = WriteMode::Plain;
                room.stamps = 0;
                break;
            }
        }
        room.tell(told, done, None)?;
        Ok(done)
    }

    /// Sends up to `max` bytes of a shared file from `offset`, as far as the window has space, and returns how
    /// many. They are read when they leave, so they must be there until they are acknowledged. Errors
    /// as of `try_send`; ESTALE: the file was shared with another engine, or by the parent process, or the engine does
    /// not see the bytes of this connection.
    pub fn send_file(&self, file: &SharedFile, offset: u64, max: usize) -> Result<usize, Errno> {
        if self.byte_channel_use().is_some() {
            return Err(Errno::STALE);
        }
        let room = self.free_space()?;
        if !file.is_of(room.locked.attachment) {
            return Err(Errno::STALE);
        }
        let bytes = room.free.min(max);
        let end = offset.checked_add(bytes as u64).ok_or(Errno::OVERFLOW)?;
        i64::try_from(end).map_err(|_| Errno::OVERFLOW)?;
        if bytes < max {
            room.locked.header.program_want_tx();
        }
        let handle = file.handle();
        room.tell(0, bytes, Some(FileSource { handle, offset }))?;
        Ok(bytes)
    }

    /// Free space of the send window, to be filled in place: at most `max` bytes of it and no more than one
    /// chunk (for sendfile). Errors as of `try_send`. Holds the socket's send lock.
    pub fn send_space(&self, max: usize) -> Result<SendSpace<'_>, Errno> {
        let max = max.min(CHUNK_BYTES);
        if let Some(room) = self.byte_channel_space(max)? {
            return Ok(room);
        }
        let mut room = self.free_space()?;
        room.free = room.free.min(max);
        Ok(SendSpace {
            room: Space::Window(room),
        })
    }

    /// As `send_space`, for a program that makes its bytes there: up to `max` bytes of free space. Nothing of it is
    /// copied, and the engine counts it so.
    pub fn reserve(&self, max: usize) -> Result<SendSpace<'_>, Errno> {
        if let Some(room) = self.byte_channel_space(max)? {
            return Ok(room);
        }
        let mut room = self.free_space()?;
        room.free = room.free.min(max);
        room.in_place = true;
        Ok(SendSpace {
            room: Space::Window(room),
        })
    }

    fn byte_channel_space(&self, max: usize) -> Result<Option<SendSpace<'_>>, Errno> {
        let Some(room) = self.free_in_byte_channel(WriteMode::Plain)? else {
            return Ok(None);
        };
        let mut room = room.or_look()?;
        room.free = room.free.min(max);
        Ok(Some(SendSpace {
            room: Space::ByteChannel(room),
        }))
    }

    pub(crate) fn sendable(&self) -> Result<WindowSpan, Errno> {
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        if self.header().shut() & SHUT_WRITE != 0 {
            return Err(Errno::PIPE);
        }
        match self.state() {
            State::Connected => self.spans().map(|(send, _)| send).ok_or(Errno::PROTO),
            State::Connecting if self.syn_capacity() > 0 => {
                self.spans().map(|(send, _)| send).ok_or(Errno::PROTO)
            }
            State::Connecting => Err(Errno::AGAIN),
            State::Idle | State::Listening | State::Closed => Err(Errno::PIPE),
        }
    }

    fn free_space(&self) -> Result<FreeSpace<'_>, Errno> {
        let attachment = self.attachment()?;
        let send = self.sendable()?;
        let mut locked = self.lock_send_window(attachment, send)?;
        let header = locked.header;
        if header.shut() & SHUT_WRITE != 0 {
            return Err(Errno::PIPE);
        }
        let written = header.written();
        let used = |header: &SocketHeader<'_>| written.saturating_sub(header.acknowledged());
        let free = |header: &SocketHeader<'_>| {
            let used = used(header);
            let size = header.send_limit(send.size);
            let room = usize::try_from(u64::from(size).saturating_sub(used)).unwrap_or(0);
            match self.unsent(header) {
                Some((unsent, limit)) => room.min(capacity_below(limit, unsent)),
                None => room,
            }
        };
        let mut room = free(&header);
        if room == 0 {
            header.program_want_tx();
            room = free(&header);
        }
        if room == 0 {
            drop(locked);
            self.session().on_idle_call(attachment, None);
            return Err(Errno::AGAIN);
        }
        let syn_capacity = self.syn_capacity();
        if syn_capacity > 0 {
            room = room.min(syn_capacity);
        }
        locked.window = header.program_place_sent(locked.window, written, used(&header));
        Ok(FreeSpace {
            socket: self,
            locked,
            written,
            free: room,
            mode: WriteMode::Plain,
            in_place: false,
            stamps: 0,
            bell: Doorbell::Now,
        })
    }
}

/// What may be written where TCP_NOTSENT_LOWAT is `limit`: a piece is begun as long as less than that has not left, as
/// Linux begins a buffer.
fn capacity_below(limit: u64, unsent: u64) -> usize {
    let left = usize::try_from(limit.saturating_sub(unsent)).unwrap_or(usize::MAX);
    left.div_ceil(CHUNK_BYTES).saturating_mul(CHUNK_BYTES)
}

impl FreeSpace<'_> {
    /// Tells the engine of bytes `from` to `to` of this space, if any.
    fn tell(&self, from: usize, to: usize, source: Option<FileSource>) -> Result<(), Errno> {
        self.tell_as(from, to, source, (self.mode, self.stamps))?;
        if from != to {
            self.locked.header.program_count_write();
        }
        Ok(())
    }

    /// As `tell`, for a piece that is not the last.
    fn tell_more(&self, from: usize, to: usize) -> Result<(), Errno> {
        self.tell_as(from, to, None, (WriteMode::Plain, 0))
    }

    fn tell_as(
        &self,
        from: usize,
        to: usize,
        source: Option<FileSource>,
        (mode, stamps): (WriteMode, u8),
    ) -> Result<(), Errno> {
        if from == to {
            return Ok(());
        }
        let end = self.written + to as u64;
        let note = Written {
            socket: self.socket.id(),
            start: self.written + from as u64,
            end,
            source,
            mode,
            in_place: self.in_place,
            stamps,
        };
        mark(Mark::Pushed);
        // Still under the lock, and before the position moves on: where the bytes are is known from the
        // note alone, so no process may see, and act on, a position whose note is in no ring.
        self.locked
            .attachment
            .push(&self.locked.attachment.sends, &note)?;
        self.locked.header.program_set_written(end);
        self.socket.end_waiting_of_syn();
        if self.bell == Doorbell::Later {
            return Ok(());
        }
        let is_urgent = mode == WriteMode::Urgent;
        if to - from < SMALL_BYTES && source.is_none() && !is_urgent {
            self.locked.attachment.ring_engine_small(self.socket.id());
        } else {
            self.locked.attachment.ring_engine();
        }
        Ok(())
    }
}

/// Free space in a send window, or in a byte channel to a local peer. Nothing is sent unless it is committed.
pub struct SendSpace<'a> {
    room: Space<'a>,
}

enum Space<'a> {
    Window(FreeSpace<'a>),
    ByteChannel(ChannelSpace<'a>),
}

impl SendSpace<'_> {
    /// Bytes that fit; at least 1 unless 0 were asked for.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.room {
            Space::Window(room) => room.free,
            Space::ByteChannel(room) => room.free,
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where to write: first span, then the one after the wrap (perhaps empty). The addresses are good
    /// until the space is committed or dropped.
    #[must_use]
    pub fn spans(&self) -> [(*mut u8, usize); 2] {
        match &self.room {
            Space::Window(room) => room
                .locked
                .window
                .spans(room.written, room.free)
                .map(Span::raw),
            Space::ByteChannel(room) => room.spans(),
        }
    }

    /// The bytes themselves, in two slices as in `spans`. What is in them before is of no meaning.
    #[must_use]
    pub fn slices(&mut self) -> [&mut [u8]; 2] {
        sys::reserved(self)
    }

    /// Says how the bytes are written.
    pub fn set_mode(&mut self, mode: WriteMode) {
        match &mut self.room {
            Space::Window(room) => room.mode = mode,
            Space::ByteChannel(room) => room.mode = mode,
        }
    }

    /// Sends the first `bytes` of it.
    pub fn commit(self, bytes: usize) -> Result<usize, Errno> {
        let bytes = bytes.min(self.len());
        match self.room {
            Space::Window(room) => {
                room.tell(0, bytes, None)?;
                Ok(bytes)
            }
            Space::ByteChannel(room) => room.commit(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_begun_while_less_than_the_limit_has_not_left() {
        let rows = [
            (1, 0, CHUNK_BYTES),
            (1, 1, 0),
            (16_384, 16_383, CHUNK_BYTES),
            (16_384, 16_384, 0),
            (100_000, 0, 2 * CHUNK_BYTES),
            (100_000, 90_000, CHUNK_BYTES),
            (4, 1_000_000, 0),
        ];
        for (limit, unsent, room) in rows {
            assert_eq!(capacity_below(limit, unsent), room, "{limit} {unsent}");
        }
    }
}
