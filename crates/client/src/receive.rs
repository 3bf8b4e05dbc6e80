//! Receiving: copy out of the window, publish how far, tell the engine. No allocation, no lock but the
//! socket's receive lock.
//!
//! The engine is told of every step but rung, if it sleeps, only when the consumed position crosses a
//! quarter of what is offered of the window: until then the peer still has the other three to fill, so nothing waits for
//! the news, and a sleeping engine reads it when the next segment wakes it.

use std::io::IoSliceMut;

use hostif::header::SHUT_READ;
use hostif::{Consumed, SocketHeader, Window};
use rustix::io::Errno;

use crate::attachment::Attachment;
use crate::readiness::State;
use crate::socket::{Held, TcpSocket};

/// Bytes in a receive window, with the receive lock held.
struct Arrived<'a> {
    socket: &'a TcpSocket,
    attachment: &'static Attachment,
    header: SocketHeader<'a>,
    window: Window<'a>,
    /// Where what can be received begins: behind an urgent byte that is skipped.
    consumed: u64,
    available: usize,
    /// Where that lies in the window.
    place: u64,
    /// Bytes of the window that the peer may fill.
    offered: u32,
    /// An urgent byte before `consumed` is skipped.
    skips: bool,
    _held: Held<'a>,
}

impl TcpSocket {
    /// Receives what is there and returns how many bytes that was; 0 is the end of the stream. EAGAIN:
    /// nothing yet; ENOTCONN: never connected; else the pending error. With `peek` the bytes stay.
    pub fn try_recv(&self, slices: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        let Some(arrived) = self.arrived()? else {
            return self.nothing_arrived();
        };
        if arrived.available == 0 {
            arrived.consume(0)?;
            drop(arrived);
            return self.nothing_arrived();
        }
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
        }
        Ok(done)
    }

    /// Throws away up to `max` bytes (MSG_TRUNC). Results as of `try_recv`.
    pub fn discard(&self, max: usize) -> Result<usize, Errno> {
        let Some(arrived) = self.arrived()? else {
            return self.nothing_arrived();
        };
        let bytes = arrived.available.min(max);
        arrived.consume(bytes)?;
        Ok(bytes)
    }

    fn arrived(&self) -> Result<Option<Arrived<'_>>, Errno> {
        let Some((_, receive)) = self.spans() else {
            return Ok(None);
        };
        // An urgent byte alone stays until it was received out of band.
        if self.readable_bytes() == 0 && !self.is_taken(self.header().consumed()) {
            return Ok(None);
        }
        let window = self.region().window(receive).ok_or(Errno::PROTO)?;
        let attachment = self.attachment()?;
        if !attachment.is_dead() {
            attachment.await_room(&attachment.receives)?;
        }
        let header = self.header();
        let held = self.hold(attachment, header.receive_lock())?;
        let consumed = header.consumed();
        let available = header
            .received_end()
            .saturating_sub(consumed)
            .min(u64::from(receive.size));
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
            consumed: start,
            available: usize::try_from(available).unwrap_or(0),
            skips: start > consumed,
            _held: held,
        }))
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
        if let Some(error) = self.take_error() {
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
    fn consume(&self, bytes: usize) -> Result<(), Errno> {
        if bytes == 0 && !self.skips {
            return Ok(());
        }
        let end = self.consumed + bytes as u64;
        self.header.program_set_consumed(end);
        if self.attachment.is_dead() {
            return Ok(());
        }
        let note = Consumed {
            socket: self.socket.id(),
            end,
        };
        let told = self.attachment.push(&self.attachment.receives, &note);
        let quarter = u64::from(self.offered / 4).max(1);
        if self.consumed / quarter != end / quarter {
            self.attachment.ring_engine();
        }
        told
    }
}
