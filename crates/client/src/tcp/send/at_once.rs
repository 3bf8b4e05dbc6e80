//! The short way of a send: a few bytes, all of which fit, on a connection that stands and of which nothing else is to be said. Each
//! question is asked once. In doubt nothing is done, and the long way (`send.rs`) decides.

use core::sync::atomic::Ordering;
use std::io::IoSlice;

use hostif::header::SHUT_WRITE;
use hostif::stages::{Mark, mark};
use hostif::{Flags, SocketHeader, Written};

use crate::engines::attachment::SMALL_BYTES;
use crate::engines::inline_engine::Held;
use crate::tcp::socket::TcpSocket;

impl TcpSocket {
    /// Sends all `total` bytes of `slices`, as [`TcpSocket::try_send`] does. False, with nothing done: that has to say
    /// what is the matter.
    #[inline(always)]
    pub fn send_at_once(&self, slices: &[IoSlice<'_>], total: usize, held: Held) -> bool {
        self.try_send_at_once(slices, total, held).is_some()
    }

    #[inline(always)]
    fn try_send_at_once(&self, slices: &[IoSlice<'_>], total: usize, held: Held) -> Option<()> {
        let bytes = u32::try_from(total).ok().filter(|bytes| *bytes > 0)?;
        let header = self.header();
        let is_usual = total < SMALL_BYTES
            && self.unsent_limit.load(Ordering::Relaxed) == 0
            && self.syn_capacity.load(Ordering::Relaxed) == 0
            && self.meet_byte_channels().is_none()
            && is_sending(&header);
        let windows = self.known_windows().filter(|_| is_usual)?;
        let attachment = self.attachment_of_living()?;
        let window = windows.sent.window();
        let _held = self.try_hold(attachment, header.send_lock())?;
        let written = header.written();
        let used = written.saturating_sub(header.acknowledged());
        let has_capacity =
            used + u64::from(bytes) <= u64::from(header.send_limit(windows.spans.0.size));
        if !has_capacity || header.shut() & SHUT_WRITE != 0 {
            return None;
        }
        let window = header.program_place_sent(window, written, used);
        let mut end = written;
        for slice in slices {
            end += window.copy_in(end, slice) as u64;
        }
        let note = Written::plain(self.id(), written, end);
        mark(Mark::Pushed);
        // Before the position moves on, as in the long way. Where the ring is full nobody knows of the bytes, and the long
        // way waits for room.
        if !attachment.tell_written(&note, held) {
            return None;
        }
        header.program_set_written(end);
        header.program_count_write();
        Some(())
    }
}

/// Whether the connection stands, has no error, and may send.
fn is_sending(header: &SocketHeader<'_>) -> bool {
    const LOOKED_AT: Flags = Flags::CONNECTED
        .union(Flags::LISTENING)
        .union(Flags::ERROR)
        .union(Flags::HUP)
        .union(Flags::CLOSED);
    header.flags().intersection(LOOKED_AT) == Flags::CONNECTED
}
