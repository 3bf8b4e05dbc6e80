//! How much of its send window a program may fill: send buffer autotuning (`tcp_sndbuf_expand` of Linux).
//!
//! A connection begins with little, so that a program does not queue megabytes in front of a slow path, and
//! is given twice its congestion window: one for what is in flight, one to be there when that is acknowledged. On
//! short paths a program takes longer to come back than a round trip; one that finds nothing left
//! unsent when it does gets twice as much. What was given is never taken back. `SO_SNDBUF` fixes it.

use super::Sockets;
use super::rows::at;

/// What a connection begins with.
const FIRST_BYTES: u32 = 256 * 1024;

impl Sockets {
    /// The windows were given, or the program has set `SO_SNDBUF`.
    pub fn publish_capacity(&mut self, row: u32) {
        if self.row(row).send_room == 0 {
            let first = FIRST_BYTES.min(self.window_ceiling);
            self.change(row, |record| record.send_room = first);
        }
        let record = self.row(row);
        let room = match record.send_limit {
            0 => record.send_room,
            limit => limit,
        };
        self.with_header(row, |header| header.engine_set_send_limit(room));
    }

    /// It may have room now without an acknowledgment: who waits for some looks again.
    pub fn wake_writer(&mut self, row: u32) {
        if self.with_header(row, |header| header.engine_take_tx_wanted()) == Some(true) {
            self.count_tx(row);
        }
    }

    /// The program asked for news of its send window: the window has no free space.
    pub(super) fn note_lack_of_capacity(&mut self, row: u32) {
        self.companions[at(row)].lacked_capacity = true;
    }

    /// Whether the window was full when the program wrote last.
    pub fn lacked_capacity(&self, row: u32) -> bool {
        self.companions[at(row)].lacked_capacity
    }

    /// Whether the program writes again after the window was full; forgets that it was.
    pub fn take_lack_of_capacity(&mut self, row: u32) -> bool {
        core::mem::take(&mut self.companions[at(row)].lacked_capacity)
    }

    /// So far a connection whose program has set `TCP_NOTSENT_LOWAT` has sent.
    pub fn note_sent(&mut self, row: u32, sent: u64) {
        let is_wanted = self.with_header(row, |header| {
            header.engine_set_sent(sent);
            header.engine_take_tx_wanted()
        });
        if is_wanted == Some(true) {
            self.count_tx(row);
        }
    }

    /// That program's connection has this congestion window, and before it wrote, `unsent` bytes were left.
    pub fn grow_capacity(&mut self, row: u32, congestion_window: u32, unsent: u64) {
        let (limit, room) = (self.row(row).send_limit, self.row(row).send_room);
        let Some((send, _)) = self.windows(row).filter(|_| limit == 0) else {
            return;
        };
        let mut wanted = congestion_window.saturating_mul(2);
        if unsent == 0 {
            wanted = wanted.max(room.saturating_mul(2));
        }
        let wanted = wanted.min(send.size).min(self.window_ceiling);
        if wanted > room {
            self.change(row, |record| record.send_room = wanted);
            self.publish_capacity(row);
        }
    }
}
