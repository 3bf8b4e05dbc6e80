//! SO_TIMESTAMPING of what is sent: when it was handed on, left, and was acknowledged. Entries of the error queue tell it. Read
//! first: `Documentation/networking/timestamping.rst` of the kernel, `tcp_tx_timestamp` and `__skb_tstamp_tx`.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use client::Told;
use client::stamp::{ACKNOWLEDGED, SCHEDULED, SENT, WITH_BYTES};

/// linux/net_tstamp.h.
const TX_HARDWARE: u32 = 1;
const TX_SOFTWARE: u32 = 1 << 1;
const TX_SCHED: u32 = 1 << 8;
const TX_ACK: u32 = 1 << 9;
const TX_COMPLETION: u32 = 1 << 18;
/// SOF_TIMESTAMPING_TX_RECORD_MASK: what a call may ask for by itself.
const RECORDS: u32 = TX_HARDWARE | TX_SOFTWARE | TX_SCHED | TX_ACK | TX_COMPLETION;
/// What is counted where datagrams are (SKBTX_ANY_TSTAMP).
const COUNTED: u32 = TX_HARDWARE | TX_SOFTWARE | TX_SCHED;
/// SOF_TIMESTAMPING_OPT_ID.
pub const OPT_ID: u32 = 1 << 7;
/// SOF_TIMESTAMPING_OPT_ID_TCP.
pub const OPT_ID_TCP: u32 = 1 << 16;
const OPT_TSONLY: u32 = 1 << 11;

/// Which times a socket's program asks for, and how its bytes or datagrams are numbered.
#[derive(Debug, Default)]
pub struct Stamping {
    /// As SO_TIMESTAMPING was set.
    flags: AtomicU32,
    /// Some call has asked for times.
    is_used: AtomicBool,
    /// Of a TCP socket: the byte that is called 0.
    base: AtomicU64,
    /// Of a UDP socket: the key of the next datagram.
    next: AtomicU32,
}

/// Which times one call asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Bits of `hostif::stamp`.
    pub stamps: u8,
    /// The key of a datagram.
    pub key: u32,
    /// The key was counted for it.
    is_counted: bool,
}

impl Stamping {
    /// As SO_TIMESTAMPING was set.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// It was set; `base`: of a connection, the byte that is called 0 then, the next one or the first that is not acknowledged.
    pub fn follow(&self, flags: u32, base: &dyn Fn(bool) -> u64) {
        let before = self.flags.swap(flags, Ordering::Relaxed);
        if flags & OPT_ID != 0 && before & OPT_ID == 0 {
            self.base
                .store(base(flags & OPT_ID_TCP != 0), Ordering::Relaxed);
            self.next.store(0, Ordering::Relaxed);
        }
    }

    /// An accepted connection has what its listener had.
    pub fn adopt(&self, listener: &Stamping) {
        self.flags.store(listener.flags(), Ordering::Relaxed);
    }

    /// Which times a call on a stream asks for, where `asked` came with it.
    #[inline]
    pub fn of_stream(&self, asked: Option<u32>) -> u8 {
        match (self.flags(), asked) {
            (0, None) => 0,
            (flags, asked) => self.of_asking_stream(flags, asked),
        }
    }

    #[inline(never)]
    fn of_asking_stream(&self, flags: u32, asked: Option<u32>) -> u8 {
        let stamps = stamps(of_call(flags, asked));
        if stamps != 0 && !self.is_used() {
            self.is_used.store(true, Ordering::Relaxed);
        }
        stamps
    }

    /// Whether some call has asked.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Which times a datagram's call asks for; the datagram is counted, or has the key that the call names.
    pub fn of_datagram(&self, asked: Option<u32>, key: Option<u32>) -> Wanted {
        let flags = of_call(self.flags(), asked);
        let is_counted = flags & COUNTED != 0 && flags & OPT_ID != 0 && key.is_none();
        let key = match key {
            Some(key) => key,
            None if is_counted => self.next.fetch_add(1, Ordering::Relaxed),
            None => 0,
        };
        Wanted {
            stamps: stamps(flags) & !ACKNOWLEDGED,
            key,
            is_counted,
        }
    }

    /// The datagram was not sent after all.
    pub fn take_back(&self, wanted: Wanted) {
        if wanted.is_counted {
            self.next.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The key of a byte of a stream (`ee_data`).
    pub fn key_of(&self, told: &Told) -> u32 {
        let [a, b, c, d, ..] = told
            .byte
            .wrapping_sub(self.base.load(Ordering::Relaxed))
            .to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}

/// The flags that count in a call: how times are told is the socket's, which are told the call's if it says so.
fn of_call(flags: u32, asked: Option<u32>) -> u32 {
    asked.map_or(flags, |asked| flags & !RECORDS | asked & RECORDS)
}

fn stamps(flags: u32) -> u8 {
    let bit = |flag: u32, bit: u8| if flags & flag != 0 { bit } else { 0 };
    match bit(TX_SCHED, SCHEDULED) | bit(TX_SOFTWARE, SENT) | bit(TX_ACK, ACKNOWLEDGED) {
        0 => 0,
        wanted => {
            wanted
                | if flags & OPT_TSONLY == 0 {
                    WITH_BYTES
                } else {
                    0
                }
        }
    }
}

/// What the backing socket of a connection may be told: it has none itself, and refuses to count bytes.
pub fn for_backing(value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    if let Some(flags) = value.first_chunk_mut::<4>() {
        let number = u32::from_ne_bytes(*flags);
        if number & OPT_ID != 0 {
            *flags = (number & !(OPT_ID | OPT_ID_TCP)).to_ne_bytes();
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_counted_where_something_is_told_of_them() {
        let stamping = Stamping::default();
        stamping.follow(TX_SOFTWARE | OPT_ID | OPT_TSONLY, &|_| 0);
        let first = stamping.of_datagram(None, None);
        assert_eq!((first.stamps, first.key), (SENT, 0));
        assert_eq!(stamping.of_datagram(Some(0), None).stamps, 0);
        assert_eq!(stamping.of_datagram(Some(TX_ACK), None).stamps, 0);
        let second = stamping.of_datagram(Some(TX_SCHED), None);
        assert_eq!((second.stamps, second.key), (SCHEDULED, 1));
        stamping.take_back(second);
        let named = stamping.of_datagram(None, Some(77));
        assert_eq!(named.key, 77);
        stamping.take_back(named);
        assert_eq!(stamping.of_datagram(None, None).key, 1);
        stamping.follow(TX_SOFTWARE | OPT_ID, &|_| 0);
        assert_eq!(stamping.of_datagram(None, None).key, 2);
        stamping.follow(TX_SOFTWARE, &|_| 0);
        stamping.follow(TX_SOFTWARE | OPT_ID, &|_| 0);
        let again = stamping.of_datagram(None, None);
        assert_eq!((again.stamps, again.key), (SENT | WITH_BYTES, 0));
    }

    #[test]
    fn bytes_are_called_by_how_far_they_are_behind_the_first() {
        let stamping = Stamping::default();
        stamping.base.store(u64::from(u32::MAX), Ordering::Relaxed);
        let told = |byte| Told {
            byte,
            ..Told::default()
        };
        assert_eq!(stamping.key_of(&told(u64::from(u32::MAX) + 5)), 5);
        assert_eq!(stamping.key_of(&told(2 * u64::from(u32::MAX) + 2)), 1);
    }

    #[test]
    fn a_backing_socket_does_not_count_bytes() {
        let flags = |number: u32| number.to_ne_bytes().to_vec();
        assert_eq!(for_backing(&flags(TX_ACK | OPT_ID)), flags(TX_ACK));
        assert_eq!(for_backing(&flags(OPT_ID_TCP)), flags(OPT_ID_TCP));
        assert_eq!(for_backing(&[1]), [1]);
    }
}
