//! Who has seen an event has been signalled of it, as of the kernel, which does both under the socket's lock: the engine counts before it
//! publishes, and when the signals are sent; a call that has taken something waits for the second count.
//! See docs/decisions/0044-signals-by-a-pair.md.

use core::sync::atomic::Ordering;

use rustix::thread::futex::{self, Flags, Timespec};

use super::SocketHeader;

/// How often a waiter looks whether waiting still makes sense.
const RECHECK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};
/// Looks after which a call goes on without the signals: a second.
const LOOKS: u32 = 200;
const SPINS: u32 = 64;

impl SocketHeader<'_> {
    /// Something is about to be published for which a signal may be due; `count`: how often that was so far.
    pub fn engine_set_signals_due(&self, count: u32) {
        self.raw.signals_due.store(count, Ordering::Release);
    }

    /// For so many of them signals were sent, or none was needed.
    pub fn engine_set_signals_sent(&self, count: u32) {
        self.raw.signals_sent.store(count, Ordering::Release);
        let _ = futex::wake(&self.raw.signals_sent, Flags::empty(), u32::MAX >> 1);
    }

    /// Whether the signals for all that was published were sent.
    #[must_use]
    pub fn has_sent_signals(&self) -> bool {
        let due = self.raw.signals_due.load(Ordering::Acquire);
        is_reached(self.raw.signals_sent.load(Ordering::Acquire), due)
    }

    /// Waits until the signals for all published so far were sent, as long as `keep_waiting` says so (asked every few
    /// milliseconds).
    pub fn program_await_signals(&self, keep_waiting: &mut dyn FnMut() -> bool) {
        let due = self.raw.signals_due.load(Ordering::Acquire);
        let word = &self.raw.signals_sent;
        for _ in 0..SPINS {
            if is_reached(word.load(Ordering::Acquire), due) {
                return;
            }
            core::hint::spin_loop();
        }
        for _ in 0..LOOKS {
            let sent = word.load(Ordering::Acquire);
            if is_reached(sent, due) {
                return;
            }
            let waited = futex::wait(word, Flags::empty(), sent, Some(&RECHECK));
            if waited == Err(rustix::io::Errno::TIMEDOUT) && !keep_waiting() {
                return;
            }
        }
    }
}

/// Counts wrap around.
fn is_reached(count: u32, wanted: u32) -> bool {
    wanted.wrapping_sub(count).cast_signed() <= 0
}

#[cfg(test)]
mod tests {
    use super::is_reached;

    #[test]
    fn a_count_that_goes_round_is_reached_in_order() {
        assert!(is_reached(7, 7) && is_reached(8, 7) && !is_reached(6, 7));
        assert!(!is_reached(u32::MAX, 0) && is_reached(0, u32::MAX));
    }
}
