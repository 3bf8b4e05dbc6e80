//! Two connections joined by a seeded cable that loses, repeats and delays (`Pair`), on virtual time.

mod pair;
mod storm;

use super::harness::{IRS, ISS, Memory};
use crate::{Config, Connection, Duration, Instant, SeqNumber, Transmit, TransmitLimits};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use wire::tcp::Flags;

/// [`Pair::byte`] says the same for offsets that are so far apart.
const PERIOD: u64 = 1 << 16;

/// How the cable between a [`Pair`] misbehaves.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub loss_per_mille: u64,
    pub duplicate_per_mille: u64,
    pub delay_us: u64,
    pub jitter_us: u64,
}

/// Two connections joined by a seeded cable.
pub struct Pair {
    pub ends: [Connection; 2],
    pub memories: [Memory; 2],
    pub now: Instant,
    pub limits: TransmitLimits,
    pub weather: Weather,
    rng: u64,
    cable: BTreeMap<(u64, u64), (usize, Transmit)>,
    next_id: u64,
    pub segments: u64,
    /// Segments with payload that the cable lost.
    pub lost: u64,
    /// Large segments are cut before the cable, as a device cuts them; else they travel whole, as a
    /// receiver merges them.
    pub cuts: bool,
    /// Longer IP packets are swallowed without a word.
    pub mtu: u32,
    /// How many were.
    pub swallowed: u64,
}

/// The segments that a device makes of one.
fn cut(transmit: &Transmit) -> Vec<Transmit> {
    let Some(size) = transmit.segment_size.map(u32::from) else {
        return vec![*transmit];
    };
    let starts = (0..transmit.len).step_by(usize::try_from(size).unwrap());
    let piece = |from: u32| {
        let len = size.min(transmit.len - from);
        let mut header = transmit.header;
        header.seq = header.seq.wrapping_add(from);
        if from + len < transmit.len {
            header.flags -= Flags::FIN | Flags::PSH;
        }
        Transmit {
            header,
            offset: transmit.offset + u64::from(from),
            len,
            segment_size: None,
            ecn: transmit.ecn,
        }
    };
    starts.map(piece).collect()
}

impl Pair {
    pub fn new(config: [Config; 2], weather: Weather, limits: TransmitLimits, seed: u64) -> Self {
        let now = Instant::from_us(1);
        let client = Connection::connect(&config[0], SeqNumber(ISS), now);
        let mut pair = Self {
            ends: [client, Connection::default()],
            memories: [Memory::default(), Memory::default()],
            now,
            limits,
            weather,
            rng: seed | 1,
            cable: BTreeMap::new(),
            next_id: 0,
            segments: 0,
            lost: 0,
            cuts: false,
            mtu: u32::MAX,
            swallowed: 0,
        };
        // The listener: the first SYN that gets through makes the other end.
        for _ in 0..1_000 {
            pair.transmit(0);
            if let Some((_, (_, syn))) = pair.cable.pop_first() {
                pair.now += Duration::from_us(weather.delay_us);
                pair.ends[1] =
                    Connection::accept(&config[1], SeqNumber(IRS), pair.now, &syn.header);
                return pair;
            }
            pair.now = pair.ends[0].deadline().expect("SYN timer");
            let _ = pair.ends[0].handle_timeout(pair.now, &mut pair.memories[0].flights);
        }
        panic!("no SYN got through");
    }

    fn random(&mut self) -> u64 {
        // xorshift64: any stream that a seed repeats will do.
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng
    }

    /// The bytes that end `end` writes.
    pub fn byte(end: usize, offset: u64) -> u8 {
        (offset
            .wrapping_mul(31)
            .wrapping_add(offset >> 8)
            .wrapping_add(end as u64 * 101)
            & 0xff) as u8
    }

    /// So many of them from `offset` on: they repeat after [`PERIOD`], and the table has the longest segment's beyond that.
    fn bytes(end: usize, offset: u64, len: u32) -> &'static [u8] {
        static TABLES: [OnceLock<Vec<u8>>; 2] = [OnceLock::new(), OnceLock::new()];
        let table = TABLES[end].get_or_init(|| {
            let all = 0..PERIOD + u64::from(u16::MAX);
            all.map(|offset| Self::byte(end, offset)).collect()
        });
        let start = usize::try_from(offset % PERIOD).unwrap();
        &table[start..start + usize::try_from(len).unwrap()]
    }

    /// The tables of what is in flight are whole.
    pub fn check_flights(&mut self) {
        for (end, memory) in self.ends.iter_mut().zip(&mut self.memories) {
            end.snd.sent.table(&mut memory.flights).check();
        }
    }

    pub fn transmit(&mut self, from: usize) {
        while let Some(transmit) =
            self.ends[from].poll_transmit(self.now, &self.limits, &mut self.memories[from].flights)
        {
            self.segments += 1;
            let pieces = if self.cuts {
                cut(&transmit)
            } else {
                vec![transmit]
            };
            for piece in pieces {
                self.carry(from, piece);
            }
        }
    }

    fn carry(&mut self, from: usize, transmit: Transmit) {
        let headers_len = 20 + u32::try_from(transmit.header.header_len()).unwrap();
        if headers_len + transmit.len > self.mtu {
            self.swallowed += 1;
            return;
        }
        let copies = 1 + u64::from(self.random() % 1_000 < self.weather.duplicate_per_mille);
        for _ in 0..copies {
            if self.random() % 1_000 < self.weather.loss_per_mille {
                self.lost += u64::from(transmit.len > 0);
                continue;
            }
            let jitter = self.random() % (self.weather.jitter_us + 1);
            let at = self.now.as_us() + self.weather.delay_us + jitter;
            self.cable.insert((at, self.next_id), (from, transmit));
            self.next_id += 1;
        }
    }

    /// Runs until `done`, or panics at the virtual `limit_s`.
    pub fn run(&mut self, limit_s: u64, mut step: impl FnMut(&mut Self) -> bool) {
        let limit = self.now + Duration::from_secs(limit_s);
        for steps in 0.. {
            assert!(
                steps < 2_000_000,
                "live lock: {:?} {:?}",
                self.ends[0],
                self.ends[1]
            );
            let done = step(self);
            self.transmit(0);
            self.transmit(1);
            if done {
                return;
            }
            assert!(
                self.now < limit,
                "no progress: {:?} {:?}",
                self.ends[0].info(),
                self.ends[1].info()
            );
            self.advance();
        }
    }

    fn advance(&mut self) {
        let arrival = self
            .cable
            .first_key_value()
            .map(|(&(at, _), _)| Instant::from_us(at));
        let timer = self.ends.iter().filter_map(Connection::deadline).min();
        let Some(next) = arrival.into_iter().chain(timer).min() else {
            panic!(
                "silence for ever: {:?} {:?}",
                self.ends[0].info(),
                self.ends[1].info()
            )
        };
        self.now = self.now.max(next);
        if let Some((_, (from, transmit))) = arrival
            .filter(|&at| at <= self.now)
            .and_then(|_| self.cable.pop_first())
        {
            let to = 1 - from;
            let payload = Self::bytes(from, transmit.offset, transmit.len);
            let _ = self.ends[to].handle_segment(
                self.now,
                &transmit.header,
                payload,
                &mut self.memories[to],
            );
        }
        for (end, memory) in self.ends.iter_mut().zip(&mut self.memories) {
            if end.deadline().is_some_and(|deadline| deadline <= self.now) {
                let _ = end.handle_timeout(self.now, &mut memory.flights);
            }
        }
    }
}
