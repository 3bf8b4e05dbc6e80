//! SIOCGSTAMP and SIOCGSTAMPNS: when the datagram that a UDP socket received last has arrived (socket(7), Linux
//! `sock_gettstamp` and `sock_recv_cmsgs`). Arrivals are stamped for it from the first question on: what was received before
//! has the time of that question. What comes with a stamp as a control message (SO_TIMESTAMP and its kin) leaves no other.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

use super::Call;
use crate::outcome::Switched;
use client::datagram_messages::want;

/// linux/sockios.h: the numbers from before 2038 mattered, and those that name a size.
const SIOCGSTAMP: [u64; 2] = [0x8906, 0x8010_8906];
const SIOCGSTAMPNS: [u64; 2] = [0x8907, 0x8010_8907];

/// In place of a time: nothing was received.
const NONE: u64 = 0;
/// Something was, while nobody asked.
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
enum Answer {
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

    /// A datagram was received from an engine, or an entry of the error queue. `wanted`: what the program hears with it.
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

    fn answer(&self) -> Answer {
        match self.at.load(Ordering::Relaxed) {
            NONE | BY_KERNEL => Answer::Kernels,
            UNSTAMPED => Answer::Now,
            at => Answer::Time(at),
        }
    }
}

/// The two numbers that one of the requests is answered with; `None`: it is none of them, or the kernel's.
pub fn last_arrival(fd: RawFd, request: u64) -> Switched<[u8; 16]> {
    let units_of_ns = if SIOCGSTAMP.contains(&request) {
        1_000
    } else if SIOCGSTAMPNS.contains(&request) {
        1
    } else {
        return Ok(None);
    };
    let Some(call) = Call::begin(fd) else {
        return Ok(None);
    };
    let Some(last) = call.socket().map(|socket| &socket.last_arrival) else {
        return Ok(None);
    };
    if last.ask() {
        // So that it stamps what it will have of the socket.
        super::sys::begin_stamps(fd);
    }
    let at = match last.answer() {
        Answer::Kernels => return Ok(None),
        Answer::Time(at) => at,
        Answer::Now => {
            let at = now_ns();
            last.at.store(at, Ordering::Relaxed);
            at
        }
    };
    let time = [at / 1_000_000_000, at % 1_000_000_000 / units_of_ns];
    let mut answer = [0; 16];
    for (place, part) in answer.chunks_exact_mut(8).zip(time) {
        place.copy_from_slice(&part.to_ne_bytes());
    }
    Ok(Some(answer))
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
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
