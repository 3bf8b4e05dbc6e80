//! Where the bytes of a stream lie in its receive window, how much of that the peer may fill, and how much of the send
//! window the program.

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
