//! Where a connection's bytes lie in its receive window, and how much of that is offered.
//!
//! A window that the program has emptied begins anew at its start. So a connection whose program keeps up
//! uses the same few pages again and again, which stay in the caches, and a large window costs memory
//! only while somebody lets it fill.

use super::Sockets;
use super::rows::at;
use stack::ReceiveUse;

/// An empty window begins anew after this many bytes, a page: the words that say so are shared.
const WORTHWHILE_BYTES: u32 = 4096;

impl Sockets {
    /// While memory is short, no offer and no free space grows above `bytes`; `u32::MAX`: it is not short.
    pub fn set_window_ceiling(&mut self, bytes: u32) {
        self.window_ceiling = bytes;
    }

    /// A receive window of `size` bytes was given: the stack will offer so much of it at first.
    pub(super) fn offer_first(&mut self, row: u32, size: u32) {
        let offered = match self.row(row).options.receive_limit {
            0 => self.first_offer.min(self.window_ceiling),
            limit => limit,
        };
        self.publish_place(row, 0, offered.min(size));
    }

    /// The program has consumed, or has set `SO_RCVBUF`.
    pub fn place_window(&mut self, row: u32, used: &ReceiveUse) {
        let end = low(used.readable_end);
        let base = self.row(row).receive_base;
        let is_worthwhile = end.wrapping_sub(base) >= WORTHWHILE_BYTES;
        let base = if used.is_drained && is_worthwhile {
            end
        } else {
            base
        };
        if (base, used.offered) != (self.row(row).receive_base, self.companions[at(row)].offered) {
            self.publish_place(row, base, used.offered);
        }
    }

    fn publish_place(&mut self, row: u32, base: u32, offered: u32) {
        self.companions[at(row)].offered = offered;
        self.change(row, |record| record.receive_base = base);
        self.with_header(row, |header| header.engine_set_receive_place(base, offered));
    }
}

fn low(offset: u64) -> u32 {
    let [a, b, c, d, ..] = offset.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
