//! A thread that waits for bytes and polls the engine of its process meanwhile passes its buffer: what arrives on its
//! socket, in order, is placed there at once instead of in the receive window.
//!
//! In all doubtful cases it polls without the buffer: where something is in the window, another thread has
//! the socket's receive lock, the connection has seen urgent data or has a byte channel, the engine is in another process.
//! What is placed is consumed, and noted exactly as if it had been read out of the window.

use core::cell::{Cell, RefCell};
use std::io::IoSliceMut;

use hostif::header::SHUT_READ;
use hostif::stages::{Mark, mark};
use rustix::io::Errno;

use crate::engines::inline_engine::{self, DirectReceive, InlineEngine};
use crate::engines::session::Session;
use crate::tcp::receive::Arrived;
use crate::tcp::send::Doorbell;
use crate::tcp::socket::TcpSocket;
use crate::wait::sleep::Woken;
use crate::wait::{Until, wait_with_buffer};

/// See the file's head.
pub struct UserBuffer<'a, 'b> {
    socket: &'a TcpSocket,
    slices: RefCell<&'a mut [IoSliceMut<'b>]>,
    /// Bytes at their start that are full.
    filled: Cell<usize>,
    placed: Cell<usize>,
}

impl<'a, 'b> UserBuffer<'a, 'b> {
    /// Of what lies behind the first `filled` bytes of `slices`.
    pub fn new(
        socket: &'a TcpSocket,
        slices: &'a mut [IoSliceMut<'b>],
        filled: usize,
    ) -> UserBuffer<'a, 'b> {
        UserBuffer {
            socket,
            slices: RefCell::new(slices),
            filled: Cell::new(filled),
            placed: Cell::new(0),
        }
    }

    /// How many bytes have been placed.
    #[must_use]
    pub fn placed(&self) -> usize {
        self.placed.get()
    }

    /// Polls with the buffer passed; `None`: did not poll. Else whether the engine has to be told at once of what was
    /// placed and consumed: the peer waits for a larger window.
    fn try_poll(&self, inline_engine: &dyn InlineEngine) -> Option<bool> {
        let mut arrived = self.socket.nothing_in_window().ok()?;
        let socket = (arrived.attachment.session, self.socket.id());
        let start = arrived.consumed;
        let mut slices = self.slices.borrow_mut();
        let placed = inline_engine.poll_into(socket, start, &mut slices, self.filled.get())?;
        if placed == 0 {
            return Some(false);
        }
        mark(Mark::Seen);
        self.filled.set(self.filled.get() + placed);
        self.placed.set(self.placed.get() + placed);
        let there = arrived.header.received_end().saturating_sub(start);
        arrived.available = usize::try_from(there).unwrap_or(placed);
        // Where that fails the engine is gone, which the next call hears.
        Some(arrived.note(placed).unwrap_or(false))
    }
}

/// As [`wait_on`], for the socket of the user buffer: what arrives may already lie in its buffer afterwards, which `until` has
/// to take for news ([`UserBuffer::placed`]).
pub fn wait_to_receive(
    sessions: &[&Session],
    user_buffer: &UserBuffer<'_, '_>,
    until: Until<'_>,
) -> Result<Woken, Errno> {
    wait_with_buffer(
        sessions,
        &[user_buffer.socket],
        &mut [],
        None,
        until,
        Some(user_buffer),
    )
}

impl DirectReceive for UserBuffer<'_, '_> {
    fn poll(&self, inline_engine: &dyn InlineEngine) {
        let mut is_urging = false;
        loop {
            match self.try_poll(inline_engine) {
                Some(true) => is_urging = true,
                Some(false) => return,
                None => break,
            }
        }
        if is_urging {
            inline_engine.notify();
        } else {
            inline_engine.poll();
        }
    }
}

impl TcpSocket {
    /// Polls an engine inside this process once, for a thread that waits otherwise, with `slices` as its buffer. How many bytes were
    /// placed there.
    pub fn receive_at_once(&self, slices: &mut [IoSliceMut<'_>]) -> usize {
        let Some(inline_engine) = inline_engine::current() else {
            return 0;
        };
        let user_buffer = UserBuffer::new(self, slices, 0);
        inline_engine::poll(inline_engine, Some(&user_buffer));
        let placed = user_buffer.placed();
        if placed > 0 {
            // No time was spent on waiting.
            self.session().poll_budget.on_found_at_once();
        }
        placed
    }

    /// The receive side with its lock, where all that has arrived was consumed and nothing but the next bytes can come
    /// next.
    fn nothing_in_window(&self) -> Result<Arrived<'_>, Errno> {
        let (_, receive) = self.spans().ok_or(Errno::NOTCONN)?;
        let window = self.region().window(receive).ok_or(Errno::PROTO)?;
        let attachment = self.attachment()?;
        let header = self.header();
        let is_strange = self.meet_byte_channels().is_some()
            || header.urgent_end() != 0
            || header.shut() & SHUT_READ != 0
            || attachment.is_dead()
            || attachment
                .receives
                .pending()
                .is_ok_and(|pending| pending >= attachment.receives.capacity());
        let held = self.try_hold(attachment, header.receive_lock());
        let (false, Some(held)) = (is_strange, held) else {
            return Err(Errno::AGAIN);
        };
        let consumed = header.consumed();
        if header.received_end() != consumed || !header.is_of(self.id()) {
            return Err(Errno::AGAIN);
        }
        let (place, offered) = header.receive_place(consumed, receive.size);
        Ok(Arrived {
            socket: self,
            attachment,
            header,
            window,
            start: consumed,
            copies: false,
            consumed,
            available: 0,
            place,
            offered,
            skips: false,
            in_place: false,
            bell: Doorbell::Later,
            byte_channel: None,
            _held: held,
        })
    }
}
