//! The short way of a receive: bytes lie in the window of a connection that stands, and nothing else is to be said. Each question is
//! asked once. In doubt nothing is done, and the long way (`receive.rs`) decides.

use std::io::IoSliceMut;

use hostif::stages::{Mark, mark};

use crate::engines::inline_engine;
use crate::tcp::receive::Step;
use crate::tcp::socket::TcpSocket;

impl TcpSocket {
    /// Receives what lies in the window, as [`TcpSocket::try_recv`] does, and says how many bytes that was. `None`, with nothing
    /// done: that has to say what is the matter.
    #[inline]
    pub fn take_at_once(&self, slices: &mut [IoSliceMut<'_>]) -> Option<usize> {
        let header = self.header();
        let is_empty = header.received_end() == header.consumed();
        (!is_empty).then(|| self.take_there(slices)).flatten()
    }

    // Apart from the call around it, which has its own numbers where nothing is there yet.
    #[inline(never)]
    fn take_there(&self, slices: &mut [IoSliceMut<'_>]) -> Option<usize> {
        let windows = self.known_windows()?;
        let (_, receive) = windows.spans;
        let header = self.header();
        let is_usual = self.is_told_to_flow() && self.meet_byte_channels().is_none();
        let attachment = self.attachment_of_living().filter(|_| is_usual)?;
        inline_engine::flush_small();
        let receives = &attachment.receives;
        let has_capacity = |pending| pending < receives.capacity();
        let window = windows.received.window();
        let lock = header.receive_lock();
        let _held = self.hold_to_copy(attachment, lock).ok()?;
        let start = header.consumed();
        let there = header.received_end().saturating_sub(start);
        // After `received_end`, as both are told before it.
        let is_strange = header.urgent_end() != 0 || self.byte_channels().is_some();
        if is_strange || there > receive.size.into() || !receives.pending().is_ok_and(has_capacity)
        {
            return None;
        }
        mark(Mark::Seen);
        let there = usize::try_from(there).ok()?;
        let (place, offered) = header.receive_place(start, receive.size);
        let mut done = 0;
        for slice in slices {
            let len = slice.len().min(there - done);
            done += window.copy_out(place + done as u64, &mut slice[..len]);
        }
        let step = Step {
            start,
            end: start + done as u64,
            offered,
            in_place: false,
        };
        // Else another process has taken the lock over, and the bytes.
        if done == 0 || !header.program_advance_consumed(start, step.end) {
            return None;
        }
        // Where that fails the engine is gone, which the next call hears.
        if self.note(attachment, &step, done == there) == Ok(true) {
            attachment.ring_engine();
        }
        Some(done)
    }
}
