//! Sending: copy into the window, publish how far, tell the engine. No allocation, no lock but the
//! socket's send lock, a system call only to ring an engine that sleeps.

use std::io::IoSlice;

use hostif::header::SHUT_WRITE;
use hostif::{SocketHeader, Window, WindowSpan, Written};
use rustix::io::Errno;

use crate::attachment::Attachment;
use crate::readiness::State;
use crate::socket::{Held, TcpSocket};

/// The engine hears of a long write piece by piece, so that it sends one piece while the next is copied.
const CHUNK_BYTES: usize = 64 * 1024;

/// Free bytes of a send window, with the send lock held.
struct Room<'a> {
    socket: &'a TcpSocket,
    attachment: &'static Attachment,
    header: SocketHeader<'a>,
    window: Window<'a>,
    written: u64,
    free: usize,
    _held: Held<'a>,
}

impl TcpSocket {
    /// Sends what fits now and returns how many bytes that was. EAGAIN: no room, or still connecting;
    /// EPIPE: nothing can be sent (any more); else the pending error.
    pub fn try_send(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let room = self.room()?;
        let (mut done, mut told) = (0, 0);
        for slice in slices {
            let len = slice.len().min(room.free - done);
            for piece in slice[..len].chunks(CHUNK_BYTES) {
                if done - told + piece.len() > CHUNK_BYTES {
                    room.tell(done)?;
                    told = done;
                }
                done += room.window.copy_in(room.written + done as u64, piece);
            }
            if len < slice.len() {
                // A short send shows up as not writable, as in Linux (SOCK_NOSPACE).
                room.header.program_want_tx();
                break;
            }
        }
        room.publish(done)?;
        Ok(done)
    }

    /// Room in the send window to be filled in place, at most `max` bytes of it and no more than one
    /// chunk (for sendfile). Errors as of `try_send`. Holds the socket's send lock.
    pub fn send_space(&self, max: usize) -> Result<SendSpace<'_>, Errno> {
        let mut room = self.room()?;
        room.free = room.free.min(max).min(CHUNK_BYTES);
        Ok(SendSpace { room })
    }

    fn sendable(&self) -> Result<WindowSpan, Errno> {
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        if self.header().shut() & SHUT_WRITE != 0 {
            return Err(Errno::PIPE);
        }
        match self.state() {
            State::Connected => self.spans().map(|(send, _)| send).ok_or(Errno::PROTO),
            State::Connecting => Err(Errno::AGAIN),
            State::Idle | State::Listening | State::Closed => Err(Errno::PIPE),
        }
    }

    fn room(&self) -> Result<Room<'_>, Errno> {
        let attachment = self.session().attachment()?;
        let send = self.sendable()?;
        let window = self.region().window(send).ok_or(Errno::PROTO)?;
        attachment.await_room(&attachment.sends)?;
        let header = self.header();
        let held = self.hold(attachment, header.send_lock())?;
        if header.shut() & SHUT_WRITE != 0 {
            return Err(Errno::PIPE);
        }
        let written = header.written();
        let free = |header: &SocketHeader<'_>| {
            let used = written.saturating_sub(header.acknowledged());
            usize::try_from(u64::from(send.size).saturating_sub(used)).unwrap_or(0)
        };
        let mut room = free(&header);
        if room == 0 {
            header.program_want_tx();
            room = free(&header);
        }
        if room == 0 {
            drop(held);
            self.session().on_idle_call(attachment);
            return Err(Errno::AGAIN);
        }
        Ok(Room {
            socket: self,
            attachment,
            header,
            window,
            written,
            free: room,
            _held: held,
        })
    }
}

impl Room<'_> {
    /// Tells the engine of the first `bytes` that were placed.
    fn tell(&self, bytes: usize) -> Result<(), Errno> {
        let end = self.written + bytes as u64;
        self.header.program_set_written(end);
        let note = Written {
            socket: self.socket.id(),
            end,
        };
        // Still under the lock: whoever shuts down or closes next sees the position that was told.
        self.attachment.push(&self.attachment.sends, &note)?;
        self.attachment.ring_engine();
        Ok(())
    }

    fn publish(self, bytes: usize) -> Result<(), Errno> {
        if bytes == 0 {
            return Ok(());
        }
        self.tell(bytes)
    }
}

/// Room in a send window. Nothing is sent unless it is committed.
pub struct SendSpace<'a> {
    room: Room<'a>,
}

impl SendSpace<'_> {
    /// Bytes that fit; at least 1 unless 0 were asked for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.room.free
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.room.free == 0
    }

    /// Where to write: first span, then the one after the wrap (perhaps empty). The addresses are good
    /// until the space is committed or dropped.
    #[must_use]
    pub fn spans(&self) -> [(*mut u8, usize); 2] {
        self.room.window.spans(self.room.written, self.room.free)
    }

    /// Sends the first `bytes` of it.
    pub fn commit(self, bytes: usize) -> Result<usize, Errno> {
        let bytes = bytes.min(self.room.free);
        if bytes == 0 {
            return Ok(0);
        }
        self.room.publish(bytes)?;
        Ok(bytes)
    }
}
