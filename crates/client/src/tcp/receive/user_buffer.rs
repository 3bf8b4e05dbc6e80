//! A thread that waits for bytes and polls the engine of its process meanwhile passes its buffer: what arrives on its
//! socket, in order, is placed there at once instead of in the receive window.
//!
//! In all doubtful cases it polls without the buffer: where something is in the window, another thread has
//! the socket's receive lock, the connection has seen urgent data or has a byte channel, the engine is in another process.
//! What is placed is consumed, and noted exactly as if it had been read out of the window.

use core::cell::{Cell, RefCell};
use std::io::IoSliceMut;

use hostif::SocketHeader;
use hostif::header::SHUT_READ;
use hostif::stages::{Mark, mark};
use rustix::io::Errno;

use crate::engines::attachment::Attachment;
use crate::engines::inline_engine::{self, DirectReceive, Held, InlineEngine};
use crate::engines::session::Session;
use crate::socket::LockGuard;
use crate::tcp::receive::Step;
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
        let mut slices = self.slices.borrow_mut();
        let arrived = self
            .socket
            .poll_into(inline_engine, &mut slices, self.filled.get())?;
        self.filled.set(self.filled.get() + arrived.placed);
        self.placed.set(self.placed.get() + arrived.placed);
        Some(arrived.is_urging)
    }
}

/// What a poll with a buffer has brought.
struct Placed {
    /// Bytes in the buffer.
    placed: usize,
    /// The engine has to be told at once that they were consumed.
    is_urging: bool,
    /// More has arrived, and lies in the window.
    has_more: bool,
}

/// The receive side with its lock, where all that has arrived was consumed.
struct EmptyWindow<'a> {
    attachment: &'static Attachment,
    header: SocketHeader<'a>,
    start: u64,
    /// Bytes of the window that the peer may fill.
    offered: u32,
    _held: LockGuard<'a>,
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
    /// placed there, and whether that is all that has arrived.
    #[inline(always)]
    pub fn receive_at_once(&self, slices: &mut [IoSliceMut<'_>], _held: Held) -> (usize, bool) {
        let Some(inline_engine) = inline_engine::current() else {
            return (0, false);
        };
        let Some(arrived) = self.poll_into(inline_engine, slices, 0) else {
            inline_engine.poll();
            return (0, false);
        };
        if arrived.is_urging {
            inline_engine.notify();
        }
        if arrived.placed > 0 {
            // No time was spent on waiting.
            self.session().poll_budget.on_found_at_once();
        }
        (arrived.placed, !arrived.has_more)
    }

    /// Polls with what follows the first `filled` bytes of `slices` as the buffer; `None`: did not poll.
    #[inline(always)]
    fn poll_into(
        &self,
        inline_engine: &dyn InlineEngine,
        slices: &mut [IoSliceMut<'_>],
        filled: usize,
    ) -> Option<Placed> {
        let empty = self.hold_empty_window()?;
        let (session, start) = (empty.attachment.session, empty.start);
        let placed = inline_engine.poll_into((session, self.id()), start, slices, filled)?;
        let mut arrived = Placed {
            placed,
            is_urging: false,
            has_more: false,
        };
        if placed > 0 {
            mark(Mark::Seen);
            let step = Step {
                start,
                end: start + placed as u64,
                offered: empty.offered,
                in_place: false,
            };
            arrived.has_more = empty.header.received_end() > step.end;
            empty.header.program_set_consumed(step.end);
            // Where that fails the engine is gone, which the next call hears.
            let noted = self.note(empty.attachment, &step, !arrived.has_more);
            arrived.is_urging = noted.unwrap_or(false);
        }
        Some(arrived)
    }

    /// The receive side with its lock, where all that has arrived was consumed and nothing but the next bytes can come
    /// next.
    #[inline(always)]
    fn hold_empty_window(&self) -> Option<EmptyWindow<'_>> {
        let (_, receive) = self.spans()?;
        let attachment = self.attachment_of_living()?;
        let header = self.header();
        let receives = &attachment.receives;
        let is_strange = self.meet_byte_channels().is_some()
            || header.urgent_end() != 0
            || header.shut() & SHUT_READ != 0
            || receives
                .pending()
                .is_ok_and(|pending| pending >= receives.capacity());
        if is_strange {
            return None;
        }
        let held = self.try_hold(attachment, header.receive_lock())?;
        let start = header.consumed();
        if header.received_end() != start || !header.is_of(self.id()) {
            return None;
        }
        let (_, offered) = header.receive_place(start, receive.size);
        Some(EmptyWindow {
            attachment,
            header,
            start,
            offered,
            _held: held,
        })
    }
}
