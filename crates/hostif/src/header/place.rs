//! Where the bytes of a stream lie in its receive window, and how much of that the peer may fill.

use core::sync::atomic::Ordering;

use super::SocketHeader;
use crate::descriptor::{high, join, low};

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
}
