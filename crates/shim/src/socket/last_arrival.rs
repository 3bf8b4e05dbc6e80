//! When the datagram that a UDP socket received last has arrived, as far as somebody has asked (`calls::datagram::stamp`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use client::datagram_messages::want;

/// In place of a time: nothing was received.
const NONE: u64 = 0;
/// Something was received, before times were asked for.
const UNSTAMPED: u64 = 1;
/// The kernel had it, and knows when it came.
const BY_KERNEL: u64 = 2;

/// What a socket remembers of it.
#[derive(Default)]
pub struct LastArrival {
    /// Times are asked for: by one of the requests, or as control messages at some time.
    is_asked: AtomicBool,
    /// Nanoseconds since 1970, or one of the above.
    at: AtomicU64,
}

/// What to answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel answers; nothing, where nothing was received.
    Kernels,
    /// Nanoseconds since 1970.
    Time(u64),
    /// The time of now, which is remembered.
    Now,
}

impl LastArrival {
    /// Arrivals are stamped from now on. Whether they were not before.
    pub fn ask(&self) -> bool {
        !self.is_asked.swap(true, Ordering::Relaxed)
    }

    /// A datagram was received from an engine, or an entry of the error queue. `wanted`: what the program is told with it.
    pub fn note(&self, arrived_ns: u64, wanted: u32) {
        self.note_as(arrived_ns.max(BY_KERNEL + 1), wanted);
    }

    /// A datagram was received from the kernel.
    pub fn note_kernels(&self, wanted: u32) {
        self.note_as(BY_KERNEL, wanted);
    }

    fn note_as(&self, at: u64, wanted: u32) {
        if wanted & (want::TIMESTAMP | want::TIMESTAMP_NS | want::TIMESTAMPING) != 0 {
            return;
        }
        if self.is_asked.load(Ordering::Relaxed) {
            self.at.store(at, Ordering::Relaxed);
        } else if self.at.load(Ordering::Relaxed) == NONE {
            self.at.store(UNSTAMPED, Ordering::Relaxed);
        }
    }

    /// What the request for the time is answered with.
    pub fn answer(&self) -> Answer {
        match self.at.load(Ordering::Relaxed) {
            NONE | BY_KERNEL => Answer::Kernels,
            UNSTAMPED => Answer::Now,
            at => Answer::Time(at),
        }
    }

    /// The time that was answered stays the answer.
    pub fn keep(&self, at_ns: u64) {
        self.at.store(at_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_stamped_from_the_first_question_on() {
        let last = LastArrival::default();
        assert_eq!(last.answer(), Answer::Kernels);
        last.note(5_000, 0);
        assert!(last.ask() && !last.ask());
        assert_eq!(last.answer(), Answer::Now);
        last.note(6_000, 0);
        assert_eq!(last.answer(), Answer::Time(6_000));
        last.note_kernels(0);
        assert_eq!(last.answer(), Answer::Kernels);
    }

    #[test]
    fn what_is_told_with_a_datagram_is_not_told_again() {
        let last = LastArrival::default();
        last.ask();
        last.note(5_000, want::TTL);
        last.note(6_000, want::TIMESTAMP | want::TTL);
        last.note_kernels(want::TIMESTAMPING);
        assert_eq!(last.answer(), Answer::Time(5_000));
    }
}
