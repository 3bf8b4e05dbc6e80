//! Times of sending (`SO_TIMESTAMPING`): when the last byte of a call was handed to the device, left, and was acknowledged.
//! Read first: `Documentation/networking/timestamping.rst` of the kernel. Frames are looked at only in polls in which some byte
//! is waited for (`stamping`). What was asked for does not outlive the engine's process.

mod stamping;

use hostif::SocketId;
use hostif::stamp::{
    ACKNOWLEDGED, SCHEDULED, SENT, TOLD_ACKNOWLEDGED, TOLD_SCHEDULED, TOLD_SENT, Told, WITH_BYTES,
};
use std::collections::{HashMap, VecDeque};

/// Bytes of one socket that are waited for at most; later ones are not told of.
const ASKED_MAX: usize = 1024;
/// Times of one socket that wait to be fetched at most; later ones are lost, as beyond SO_RCVBUF.
const TOLD_MAX: usize = 256;
/// Calls whose bytes lie in one buffer of Linux's are told of by the last of them (`tcp_tx_timestamp`).
const BUFFER_BYTES: u64 = 64 * 1024;
/// Sockets that are gone are looked for when there are so many more.
pub(crate) const SWEEP_ROWS: usize = 64;

/// What is wanted of a byte.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    /// Where the buffer begins in which it lies.
    start: u64,
    byte: u64,
    wants: u8,
    /// What is shown of the buffer when it is acknowledged.
    shown: Vec<u8>,
}

/// A frame that has left, as far as it is shown.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// Its first bytes.
    pub(crate) bytes: Vec<u8>,
    /// How many of them are headers.
    pub(crate) headers: usize,
    /// Its length.
    pub(crate) len: u32,
}

/// The bytes of one socket that are waited for, and times to be fetched.
#[derive(Debug)]
pub(crate) struct OfSocket {
    pub(crate) id: SocketId,
    asked: VecDeque<Asked>,
    pub(crate) told: VecDeque<Told>,
}

impl OfSocket {
    /// Asks for another byte; `sent`: what has left.
    pub(crate) fn ask(&mut self, byte: u64, wants: u8, sent: u64) {
        let mut asked = Asked {
            start: sent,
            byte,
            wants,
            shown: Vec::new(),
        };
        if let Some(last) = self.asked.back()
            && last.byte >= sent
        {
            if byte.saturating_sub(last.start) < BUFFER_BYTES {
                asked.start = last.start;
                asked.wants |= last.wants;
                self.asked.pop_back();
            } else {
                asked.start = last.byte + 1;
            }
        }
        if self.asked.len() < ASKED_MAX {
            self.asked.push_back(asked);
        }
    }

    /// How many bytes are waited for.
    pub(crate) fn waiting(&self) -> usize {
        self.asked.len()
    }

    pub(crate) fn tell(&mut self, what: u8, byte: u64, bytes: &[u8], len: u32) {
        if self.told.len() < TOLD_MAX {
            self.told.push_back(Told {
                what,
                at_ns: clock_ns(),
                byte,
                len,
                bytes: bytes.to_vec(),
            });
        }
    }
}

/// The times of sending of all sockets of a core.
#[derive(Debug, Default)]
pub struct Stamps {
    pub(crate) rows: HashMap<u32, OfSocket>,
    /// Bytes that are waited for.
    pub(crate) waiting: usize,
    /// Sockets with times that their programs have not heard of.
    pub(crate) news: Vec<u32>,
}

impl Stamps {
    pub(crate) fn of(&mut self, row: u32, id: SocketId) -> &mut OfSocket {
        let fresh = || OfSocket {
            id,
            asked: VecDeque::new(),
            told: VecDeque::new(),
        };
        let of = self.rows.entry(row).or_insert_with(fresh);
        if of.id != id {
            self.waiting -= of.asked.len();
            *of = fresh();
        }
        of
    }

    /// Bytes `from` to `to` of a socket have left, in a frame that `copy` shows.
    pub(crate) fn on_sent(
        &mut self,
        id: SocketId,
        from: u64,
        to: u64,
        copy: impl FnOnce() -> Shown,
    ) {
        let row = id.row();
        let Some(of) = self.rows.get_mut(&row).filter(|of| of.id == id) else {
            return;
        };
        let is_in = |asked: &Asked| (from..to).contains(&asked.byte);
        if !of.asked.iter().any(is_in) {
            return;
        }
        let wants_bytes = |asked: &Asked| is_in(asked) && asked.wants & WITH_BYTES != 0;
        let frame = of
            .asked
            .iter()
            .any(wants_bytes)
            .then(copy)
            .unwrap_or_default();
        let mut hits = Vec::new();
        for asked in of.asked.iter_mut().filter(|asked| is_in(asked)) {
            if asked.wants & WITH_BYTES != 0 {
                let payload = frame.bytes.get(frame.headers..).unwrap_or_default();
                asked.shown = payload.to_vec();
            }
            hits.push((asked.byte, asked.wants));
        }
        for (byte, wants) in hits {
            let (bytes, len) = match wants & WITH_BYTES {
                0 => (&[][..], 0),
                _ => (&frame.bytes[..], frame.len),
            };
            for (want, what) in [(SCHEDULED, TOLD_SCHEDULED), (SENT, TOLD_SENT)] {
                if wants & want != 0 {
                    of.tell(what, byte, bytes, len);
                }
            }
        }
        self.news.push(row);
    }

    /// The peer has all bytes before `end`; `None`: it will hear of no more. Whether others are waited for.
    pub(crate) fn on_acknowledged(&mut self, row: u32, id: SocketId, end: Option<u64>) -> bool {
        let of = self.of(row, id);
        let before = of.asked.len();
        let told = of.told.len();
        match end {
            None => of.asked.clear(),
            Some(end) => {
                while let Some(asked) = of.asked.pop_front_if(|asked| asked.byte < end) {
                    let len = match asked.wants & WITH_BYTES {
                        0 => 0,
                        _ => u32::try_from(asked.byte + 1 - asked.start).unwrap_or(u32::MAX),
                    };
                    if asked.wants & ACKNOWLEDGED != 0 {
                        of.tell(TOLD_ACKNOWLEDGED, asked.byte, &asked.shown, len);
                    }
                }
            }
        }
        let (after, has_news) = (of.asked.len(), of.told.len() > told);
        self.waiting -= before - after;
        if has_news {
            self.news.push(row);
        }
        after > 0
    }
}

/// The time of day, ns since 1970: of this moment, and not of the poll.
pub(crate) fn clock_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> OfSocket {
        OfSocket {
            id: SocketId::from_bits(1 << 32 | 7).unwrap(),
            asked: VecDeque::new(),
            told: VecDeque::new(),
        }
    }

    fn asked(start: u64, byte: u64, wants: u8) -> Asked {
        Asked {
            start,
            byte,
            wants,
            shown: Vec::new(),
        }
    }

    #[test]
    fn calls_in_one_buffer_are_told_of_by_the_last() {
        let mut of = socket();
        of.ask(9, SENT, 0);
        of.ask(19, ACKNOWLEDGED, 0);
        let one = asked(0, 19, SENT | ACKNOWLEDGED);
        assert_eq!(of.asked.front(), Some(&one));
        // It has left: what comes now lies in another.
        of.ask(29, SENT, 20);
        let two = asked(20, 29, SENT);
        assert_eq!(of.asked, [one, two]);
        of.ask(20 + BUFFER_BYTES, SENT, 20);
        assert_eq!(of.asked.len(), 3);
    }

    #[test]
    fn times_that_nobody_fetches_are_bounded() {
        let mut of = socket();
        for byte in 0..2 * TOLD_MAX {
            of.tell(TOLD_SENT, byte as u64, &[], 0);
        }
        assert_eq!(of.told.len(), TOLD_MAX);
        for at in 0..2 * ASKED_MAX as u64 {
            of.ask(at * BUFFER_BYTES, SENT, 0);
        }
        assert_eq!(of.asked.len(), ASKED_MAX);
    }
}
