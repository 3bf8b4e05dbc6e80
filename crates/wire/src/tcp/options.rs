//! TCP options: end, no-operation and MSS (RFC 9293 §3.2), window scale and timestamps (RFC 7323 §2.2,
//! §3.2), SACK permitted and SACK (RFC 2018 §2, §3), Fast Open (RFC 7413 §2, and as experiment 0xf989 of RFC 6994).
//!
//! Emission uses the layout of Linux, so that receivers with a fast path for it find what they expect
//! and four-byte values are aligned. TCP-AO and multipath are skipped as unknown.

use super::SackBlocks;
use crate::Error;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const FAST_OPEN: u8 = 34;
/// Experiments (RFC 4727), the first two bytes of which say which one (RFC 6994): Fast Open before it had a number.
const EXPERIMENT: u8 = 254;
const FAST_OPEN_EXPERIMENT: [u8; 2] = [0xf9, 0x89];
/// AccECN0 and AccECN1 (RFC 9768 §3.2.3): the same counters in two orders.
const ACCURATE_ECN_0: u8 = 172;
const ACCURATE_ECN_1: u8 = 174;

/// Two NOPs that align the timestamps, and the timestamps' kind and length (RFC 7323 appendix A).
pub(super) const ALIGNED_TIMESTAMPS: [u8; 4] = [NOP, NOP, TIMESTAMPS, 10];
pub(super) const ALIGNED_TIMESTAMPS_LEN: usize = 12;
/// Two NOPs before the kind and length of SACK.
const SACK_HEADER_LEN: usize = 4;
const SACK_BLOCK_LEN: usize = 8;

/// The timestamps option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timestamps {
    /// `TSval`: the sender's clock.
    pub value: u32,
    /// `TSecr`: the clock of the other side, returned.
    pub echo: u32,
}

impl Timestamps {
    #[inline]
    fn parse(body: &[u8]) -> Option<Timestamps> {
        let (value, echo) = body.split_first_chunk()?;
        Some(Timestamps {
            value: u32::from_be_bytes(*value),
            echo: u32::from_be_bytes(*echo.first_chunk()?),
        })
    }
}

/// The AccECN option (RFC 9768 §3.2.3): counters of payload bytes modulo 2^24. A short option leaves out
/// those at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AccurateEcn {
    /// `EE0B`: marked ECT(0).
    pub ect0: Option<u32>,
    /// `ECEB`: marked CE.
    pub ce: Option<u32>,
    /// `EE1B`: marked ECT(1).
    pub ect1: Option<u32>,
}

impl AccurateEcn {
    /// From the body of the option of order 0; order 1 exchanges the first and the last.
    fn parse(body: &[u8]) -> AccurateEcn {
        let mut counters = body
            .as_chunks::<3>()
            .0
            .iter()
            .map(|&[a, b, c]| u32::from_be_bytes([0, a, b, c]));
        AccurateEcn {
            ect0: counters.next(),
            ce: counters.next(),
            ect1: counters.next(),
        }
    }

    fn swapped(self) -> AccurateEcn {
        AccurateEcn {
            ect0: self.ect1,
            ect1: self.ect0,
            ..self
        }
    }

    /// The order that needs fewer counters, and how many those are; one in between that is missing is 0.
    const fn order(self) -> (u8, usize) {
        match (self.ect0, self.ce, self.ect1) {
            (Some(_), _, Some(_)) => (ACCURATE_ECN_0, 3),
            (None, None, None) => (ACCURATE_ECN_0, 0),
            (Some(_), None, None) => (ACCURATE_ECN_0, 1),
            (_, Some(_), None) => (ACCURATE_ECN_0, 2),
            (None, None, Some(_)) => (ACCURATE_ECN_1, 1),
            (None, Some(_), Some(_)) => (ACCURATE_ECN_1, 2),
        }
    }

    /// Padded to words.
    #[cold]
    const fn emit_len(self) -> usize {
        let (_, counters) = self.order();
        (2 + 3 * counters).next_multiple_of(4)
    }
}

/// A Fast Open cookie (RFC 7413 §4.1.1); an empty one asks for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FastOpenCookie {
    len: u8,
    bytes: [u8; Self::MAX_LEN],
    is_experimental: bool,
}

impl FastOpenCookie {
    /// The longest cookie.
    pub const MAX_LEN: usize = 16;
    /// The shortest one that is not empty.
    pub const MIN_LEN: usize = 4;
    /// Asks for a cookie.
    pub const REQUEST: Self = Self {
        len: 0,
        bytes: [0; Self::MAX_LEN],
        is_experimental: false,
    };

    /// `None`: no cookie is so long (RFC 7413 §2: 4 to 16 bytes, an even number, or none at all).
    #[must_use]
    pub fn new(cookie: &[u8]) -> Option<Self> {
        let is_cookie = (Self::MIN_LEN..=Self::MAX_LEN).contains(&cookie.len());
        if !(cookie.is_empty() || is_cookie && cookie.len().is_multiple_of(2)) {
            return None;
        }
        let mut bytes = [0; Self::MAX_LEN];
        bytes[..cookie.len()].copy_from_slice(cookie);
        Some(Self {
            len: u8::try_from(cookie.len()).ok()?,
            bytes,
            is_experimental: false,
        })
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Whether it asks for a cookie.
    #[must_use]
    pub const fn is_request(&self) -> bool {
        self.len == 0
    }

    /// Whether it travels as an experiment, as before it had a number (Linux `TCPOPT_FASTOPEN_MAGIC`).
    #[must_use]
    pub const fn is_experimental(&self) -> bool {
        self.is_experimental
    }

    /// The same cookie, as an experiment or not.
    #[must_use]
    pub const fn in_form(self, is_experimental: bool) -> Self {
        Self {
            is_experimental,
            ..self
        }
    }

    /// Padded to words.
    const fn emit_len(&self) -> usize {
        let header = if self.is_experimental { 4 } else { 2 };
        (header + self.len as usize).next_multiple_of(4)
    }
}

/// The options that this stack knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// Largest payload that the sender takes.
    pub mss: Option<u16>,
    /// By how many bits the sender's windows are shifted; not limited to 14 here (RFC 7323 §2.3).
    pub window_scale: Option<u8>,
    /// The sender understands SACK.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// Runs that the sender has received beyond its acknowledgment.
    pub sack: SackBlocks,
    /// Bytes that the sender has received, by ECN codepoint.
    pub accurate_ecn: Option<AccurateEcn>,
    /// Fast Open; means something in SYNs only.
    pub fast_open: Option<FastOpenCookie>,
}

impl Options {
    /// Bytes that the options of one segment can take.
    pub const MAX_LEN: usize = 40;

    #[inline(always)]
    pub(super) fn parse(bytes: &[u8]) -> Result<Options, Error> {
        // What nearly every segment of an established connection carries, or nothing at all.
        match *bytes {
            [] => Ok(Options::default()),
            [NOP, NOP, TIMESTAMPS, 10, ref stamps @ ..] if stamps.len() == 8 => Ok(Options {
                timestamps: Timestamps::parse(stamps),
                ..Options::default()
            }),
            // What hosts put into a SYN, in the order of Linux.
            [
                MSS,
                4,
                m0,
                m1,
                SACK_PERMITTED,
                2,
                TIMESTAMPS,
                10,
                ref stamps @ ..,
                NOP,
                WINDOW_SCALE,
                3,
                shift,
            ] if stamps.len() == 8 => Ok(Options {
                mss: Some(u16::from_be_bytes([m0, m1])),
                window_scale: Some(shift),
                sack_permitted: true,
                timestamps: Timestamps::parse(stamps),
                ..Options::default()
            }),
            _ => Options::parse_any(bytes),
        }
    }

    #[inline(never)]
    fn parse_any(mut bytes: &[u8]) -> Result<Options, Error> {
        let mut options = Options::default();
        while let Some((&kind, rest)) = bytes.split_first() {
            match kind {
                END => break,
                NOP => bytes = rest,
                _ => {
                    let len = usize::from(*rest.first().ok_or(Error::Malformed)?);
                    // RFC 9293 §3.1 (MUST-7): be prepared for illegal lengths, zero among them.
                    let body = bytes.get(2..len).ok_or(Error::Malformed)?;
                    options.set(kind, body)?;
                    bytes = &bytes[len..];
                }
            }
        }
        Ok(options)
    }

    /// Takes over one option; `body` is what follows kind and length.
    fn set(&mut self, kind: u8, body: &[u8]) -> Result<(), Error> {
        match (kind, body) {
            (MSS, &[high, low]) => self.mss = Some(u16::from_be_bytes([high, low])),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, stamps) if stamps.len() == 8 => {
                self.timestamps = Timestamps::parse(stamps);
            }
            (SACK, blocks) if !blocks.is_empty() && blocks.len().is_multiple_of(SACK_BLOCK_LEN) => {
                self.sack = SackBlocks::new();
                for &[l0, l1, l2, l3, r0, r1, r2, r3] in blocks.as_chunks::<SACK_BLOCK_LEN>().0 {
                    self.sack.push(
                        u32::from_be_bytes([l0, l1, l2, l3]),
                        u32::from_be_bytes([r0, r1, r2, r3]),
                    );
                }
            }
            (ACCURATE_ECN_0, counters) if counters.len().is_multiple_of(3) => {
                self.accurate_ecn = Some(AccurateEcn::parse(counters));
            }
            (ACCURATE_ECN_1, counters) if counters.len().is_multiple_of(3) => {
                self.accurate_ecn = Some(AccurateEcn::parse(counters).swapped());
            }
            // As Linux: an impossible cookie is no cookie.
            (FAST_OPEN, cookie) => self.fast_open = FastOpenCookie::new(cookie),
            (EXPERIMENT, &[a, b, ref cookie @ ..]) if [a, b] == FAST_OPEN_EXPERIMENT => {
                let cookie = FastOpenCookie::new(cookie);
                self.fast_open = cookie.map(|cookie| cookie.in_form(true));
            }
            (MSS | WINDOW_SCALE | SACK_PERMITTED | TIMESTAMPS | SACK, _) => {
                return Err(Error::Malformed);
            }
            _ => {}
        }
        Ok(())
    }

    /// Bytes that the options take in a segment: a multiple of four.
    #[must_use]
    #[inline]
    pub fn emit_len(&self) -> usize {
        let len = self.len_without_sack();
        match self.fitting_blocks() {
            0 => len,
            blocks => len + SACK_HEADER_LEN + blocks * SACK_BLOCK_LEN,
        }
    }

    /// How many SACK blocks fit beside the other options.
    #[must_use]
    #[inline]
    pub fn sack_capacity(&self) -> usize {
        Options::MAX_LEN.saturating_sub(self.len_without_sack() + SACK_HEADER_LEN) / SACK_BLOCK_LEN
    }

    #[inline]
    fn fitting_blocks(&self) -> usize {
        if self.sack.is_empty() {
            return 0;
        }
        self.sack.len().min(self.sack_capacity())
    }

    /// The cookie, if there is room for it.
    #[inline]
    fn fitting_cookie(&self, others_len: usize) -> Option<&FastOpenCookie> {
        let cookie = self.fast_open.as_ref()?;
        (others_len + cookie.emit_len() <= Options::MAX_LEN).then_some(cookie)
    }

    #[inline]
    fn len_without_sack(&self) -> usize {
        let len = self.len_of_usual();
        len + self.fitting_cookie(len).map_or(0, FastOpenCookie::emit_len)
    }

    #[inline]
    fn len_of_usual(&self) -> usize {
        let mss = if self.mss.is_some() { 4 } else { 0 };
        let timestamps = if self.timestamps.is_some() {
            ALIGNED_TIMESTAMPS_LEN
        } else {
            0
        };
        // Beside timestamps SACK-permitted takes the place of their two NOPs.
        let sack_permitted = if self.sack_permitted && self.timestamps.is_none() {
            4
        } else {
            0
        };
        let window_scale = if self.window_scale.is_some() { 4 } else { 0 };
        let accurate_ecn = self.accurate_ecn.map_or(0, AccurateEcn::emit_len);
        mss + timestamps + sack_permitted + window_scale + accurate_ecn
    }

    /// Fills `out`, which is [`Options::emit_len`] bytes long.
    #[inline]
    pub(super) fn emit(&self, out: &mut [u8]) {
        let mut writer = Writer { out };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            writer.put([MSS, 4, high, low]);
        }
        match (self.timestamps, self.sack_permitted) {
            (Some(timestamps), sack_permitted) => {
                let [nop0, nop1, kind, len] = ALIGNED_TIMESTAMPS;
                writer.put(if sack_permitted {
                    [SACK_PERMITTED, 2, kind, len]
                } else {
                    [nop0, nop1, kind, len]
                });
                writer.put(timestamps.value.to_be_bytes());
                writer.put(timestamps.echo.to_be_bytes());
            }
            (None, true) => writer.put([NOP, NOP, SACK_PERMITTED, 2]),
            (None, false) => {}
        }
        if let Some(shift) = self.window_scale {
            writer.put([NOP, WINDOW_SCALE, 3, shift]);
        }
        if let Some(counters) = self.accurate_ecn {
            writer.put_accurate_ecn(counters);
        }
        if self.fast_open.is_some()
            && let Some(cookie) = self.fitting_cookie(self.len_of_usual())
        {
            writer.put_fast_open(cookie);
        }
        let sack_blocks = self.fitting_blocks();
        if sack_blocks > 0 {
            let len = u8::try_from(2 + sack_blocks * SACK_BLOCK_LEN)
                .expect("invariant: options are at most 40 bytes");
            writer.put([NOP, NOP, SACK, len]);
            for (left, right) in self.sack.iter().take(sack_blocks) {
                writer.put(left.to_be_bytes());
                writer.put(right.to_be_bytes());
            }
        }
    }
}

/// Writes word after word: every option above is padded to four bytes.
struct Writer<'a> {
    out: &'a mut [u8],
}

impl Writer<'_> {
    #[cold]
    fn put_accurate_ecn(&mut self, counters: AccurateEcn) {
        let (kind, count) = counters.order();
        let in_order = if kind == ACCURATE_ECN_0 {
            [counters.ect0, counters.ce, counters.ect1]
        } else {
            [counters.ect1, counters.ce, counters.ect0]
        };
        let mut bytes = [NOP; 12];
        bytes[0] = kind;
        bytes[1] = u8::try_from(2 + 3 * count).expect("invariant: three counters at most");
        let places = bytes[2..].as_chunks_mut::<3>().0;
        for (place, counter) in places.iter_mut().zip(in_order).take(count) {
            let [_, a, b, c] = counter.unwrap_or(0).to_be_bytes();
            *place = [a, b, c];
        }
        for word in &bytes.as_chunks::<4>().0[..counters.emit_len() / 4] {
            self.put(*word);
        }
    }

    #[cold]
    fn put_fast_open(&mut self, cookie: &FastOpenCookie) {
        let mut bytes = [NOP; FastOpenCookie::MAX_LEN + 4];
        let at = if cookie.is_experimental {
            bytes[0] = EXPERIMENT;
            bytes[2..4].copy_from_slice(&FAST_OPEN_EXPERIMENT);
            4
        } else {
            bytes[0] = FAST_OPEN;
            2
        };
        let end = at + usize::from(cookie.len);
        bytes[1] = u8::try_from(end).expect("invariant: a cookie has 16 bytes at most");
        bytes[at..end].copy_from_slice(cookie.as_bytes());
        for word in &bytes.as_chunks::<4>().0[..cookie.emit_len() / 4] {
            self.put(*word);
        }
    }

    #[inline]
    fn put(&mut self, word: [u8; 4]) {
        let (first, rest) = core::mem::take(&mut self.out)
            .split_first_chunk_mut()
            .expect("invariant: emit_len counts what emit writes");
        *first = word;
        self.out = rest;
    }
}
