//! What the header of a datagram socket says besides: errors that come again and again, and the error
//! queue. The error word holds an errno and how many errors there were, so that each is seen once.

use core::sync::atomic::{AtomicU32, Ordering, fence};

use super::SocketHeader;

impl SocketHeader<'_> {
    /// Engine: an error happened, the `count`th of this socket (the engine keeps the count).
    pub fn engine_set_soft_error(&self, errno: u16, count: u16) {
        let word = u32::from(errno) | (u32::from(count) << 16);
        self.raw.error.store(word, Ordering::Release);
    }

    /// Engine: records of the error queue end here.
    pub fn engine_set_failures_end(&self, end: u64) {
        self.raw.failures_end.store(end, Ordering::Release);
    }

    /// Engine: up to where the program says to have taken its error queue. Believed for nothing but
    /// what is written there next.
    #[must_use]
    pub fn engine_failures_taken(&self) -> u64 {
        self.raw.failures_taken.load(Ordering::Acquire)
    }

    /// Whether an error waits to be reported.
    #[must_use]
    pub fn soft_error_pending(&self) -> bool {
        let word = self.raw.error.load(Ordering::Acquire);
        word != 0 && word != self.raw.error_taken.load(Ordering::Acquire)
    }

    /// Takes the pending error; only one of several callers gets it.
    #[must_use]
    pub fn program_take_soft_error(&self) -> Option<u16> {
        let word = self.raw.error.load(Ordering::Acquire);
        let taken = self.raw.error_taken.load(Ordering::Acquire);
        let is_mine = word != 0 && word != taken && exchange(&self.raw.error_taken, taken, word);
        is_mine.then(|| u16::try_from(word & 0xffff).expect("invariant: 16 bits remain"))
    }

    /// Where the error queue ends, and up to where it was taken.
    #[must_use]
    pub fn failures(&self) -> (u64, u64) {
        let end = self.raw.failures_end.load(Ordering::Acquire);
        (end, self.raw.failures_taken.load(Ordering::Acquire))
    }

    /// Holder of the receive lock: moves the taken position.
    pub fn program_set_failures_taken(&self, end: u64) {
        self.raw.failures_taken.store(end, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

fn exchange(word: &AtomicU32, from: u32, to: u32) -> bool {
    word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

#[cfg(test)]
mod tests {
    use crate::{Layout, Region, SocketId};

    #[test]
    fn each_error_is_taken_once_and_the_same_errno_counts_again() {
        let region = Region::create(Layout::default(), 1, 1).unwrap();
        let header = region.socket_header(0).unwrap();
        header.engine_reset(SocketId::new(1, 1).unwrap());
        assert!(!header.soft_error_pending());
        assert_eq!(header.program_take_soft_error(), None);
        for count in 1..4 {
            header.engine_set_soft_error(111, count);
            assert!(header.soft_error_pending());
            assert_eq!(header.program_take_soft_error(), Some(111));
            assert_eq!(header.program_take_soft_error(), None);
        }
    }
}
