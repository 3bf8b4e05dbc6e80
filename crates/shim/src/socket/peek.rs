//! SO_PEEK_OFF (socket(7)): where MSG_PEEK begins. It moves on with what is looked at, and back with what is read.

use std::sync::atomic::Ordering;

use super::Socket;

impl Socket {
    /// As getsockopt(2) tells it; below 0 it is off, and MSG_PEEK begins with the first byte.
    pub fn peek_offset(&self) -> i32 {
        self.peek_offset.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set_peek_offset(&self, offset: i32) {
        self.peek_offset.store(offset, Ordering::Relaxed);
    }

    /// Where MSG_PEEK begins, if it is on.
    pub fn peek_from(&self) -> Option<u64> {
        u64::try_from(self.peek_offset()).ok()
    }

    /// A call has told of `bytes` (`sk_peek_offset_fwd`, `sk_peek_offset_bwd`).
    pub fn move_peek_offset(&self, bytes: usize, is_peek: bool) {
        let (offset, bytes) = (self.peek_offset(), i32::try_from(bytes).unwrap_or(i32::MAX));
        if offset >= 0 {
            self.set_peek_offset(if is_peek {
                offset.saturating_add(bytes)
            } else {
                (offset - bytes).max(0)
            });
        }
    }

    /// Where in the ring of a UDP socket the part ends that was peeked at.
    pub fn peeked_end(&self) -> u64 {
        self.peeked_end.load(Ordering::Relaxed)
    }

    /// Sets what [`Self::peeked_end`] tells.
    pub fn set_peeked_end(&self, end: u64) {
        self.peeked_end.store(end, Ordering::Relaxed);
    }
}
