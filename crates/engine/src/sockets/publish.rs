//! What a socket's header says of it, and the counts of its events: the row keeps both for whoever goes on after a crash. Each changes one
//! word of the row, which has happened or not, so nothing of it has to be undone.

use super::Sockets;
use super::rows::at;
use hostif::Flags;
use stack::AcceptReady;

impl Sockets {
    /// Publishes how many connections of a listener wait, and since when.
    pub fn publish_accept_ready(&mut self, row: u32, ready: AcceptReady) {
        self.with_header(row, |header| {
            header.engine_set_accept_ready(ready.count, ready.since.as_us())
        });
    }

    /// Publishes flags on top of those published before.
    pub fn publish(&mut self, row: u32, flags: Flags) {
        self.publish_exactly(row, self.row(row).published | flags.bits());
    }

    /// Takes back flags that no longer hold.
    pub fn unpublish(&mut self, row: u32, flags: Flags) {
        self.publish_exactly(row, self.row(row).published & !flags.bits());
    }

    fn publish_exactly(&mut self, row: u32, published: u32) {
        self.rows[at(row)].published = published;
        self.with_header(row, |header| {
            header.engine_set_flags(Flags::from_bits_truncate(published))
        });
    }

    /// Something made the socket readable.
    #[inline(always)]
    pub fn count_rx(&mut self, row: u32) {
        self.expect_signal(row);
        let count = self.row(row).rx_events.wrapping_add(1);
        self.rows[at(row)].rx_events = count;
        self.with_header(row, |header| header.engine_set_rx_events(count));
        self.dirty.mark(row);
    }

    /// Something made the socket writable.
    pub fn count_tx(&mut self, row: u32) {
        self.expect_signal(row);
        let count = self.row(row).tx_events.wrapping_add(1);
        self.rows[at(row)].tx_events = count;
        self.with_header(row, |header| header.engine_set_tx_events(count));
        self.dirty.mark(row);
    }
}
