//! Where the bytes of a stream lie in its windows, how much of the receive window the peer may fill, and how much of the send
//! window the program.

use core::sync::atomic::Ordering;

use super::SocketHeader;
use crate::descriptor::{high, join, low};
use crate::window::Window;

impl SocketHeader<'_> {
    /// The byte at stream offset `base` (modulo 2^32) lies at the start of the receive window, of which
    /// `offered` bytes are offered to the peer; 0: all. The base changes only while nothing lies there.
    pub fn engine_set_receive_place(&self, base: u32, offered: u32) {
        self.raw
            .receive_place
            .store(join(base, offered), Ordering::Release);
    }

    /// Where stream offset `offset` lies in the receive window, and how much of its `size` bytes is offered.
    /// To be asked with the receive lock held, after `received_end`.
    #[must_use]
    pub fn receive_place(&self, offset: u64, size: u32) -> (u64, u32) {
        let place = self.raw.receive_place.load(Ordering::Acquire);
        let offered = match high(place) {
            0 => size,
            offered => offered.min(size),
        };
        (offset.wrapping_sub(u64::from(low(place))), offered)
    }

    /// The send window, placed as the holder of the send lock has to write into it from `written` on, of which the
    /// `used` bytes before are not acknowledged. A window that is empty begins anew at its start: a connection whose peer keeps up uses
    /// the same few pages again and again, which stay in the caches and are all the memory that it costs.
    #[must_use]
    #[inline(always)]
    pub fn program_place_sent<'a>(
        &self,
        window: Window<'a>,
        written: u64,
        used: u64,
    ) -> Window<'a> {
        if used > 0 {
            return self.place_sent(window);
        }
        // Before the position, and the note, that tell of bytes there.
        self.raw.send_base.store(written, Ordering::Release);
        window.beginning_at(written)
    }

    /// The send window, placed as what is not acknowledged lies in it. The program may move it at any time: what lies there then is its own.
    #[must_use]
    #[inline(always)]
    pub fn place_sent<'a>(&self, window: Window<'a>) -> Window<'a> {
        window.beginning_at(self.raw.send_base.load(Ordering::Acquire))
    }

    /// How much of the send window the program is to use; 0: all of it.
    pub fn engine_set_send_limit(&self, bytes: u32) {
        self.raw.send_limit.store(bytes, Ordering::Release);
    }

    /// How much of a send window of `size` bytes is to be used.
    #[must_use]
    pub fn send_limit(&self, size: u32) -> u32 {
        match self.raw.send_limit.load(Ordering::Acquire) {
            0 => size,
            limit => limit.min(size),
        }
    }
}
