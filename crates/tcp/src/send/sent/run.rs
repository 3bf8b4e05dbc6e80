//! One run of the table: twelve bytes, and the same written out.

use crate::time::{Duration, Instant};
use bitflags::bitflags;
use zerocopy::{FromZeros, Immutable, KnownLayout};

bitflags! {
    /// What is known of a run.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Marks: u8 {
        /// The peer holds it (RFC 2018).
        const SACKED = 1;
        /// It counts as lost and was not sent again since.
        const LOST = 1 << 1;
        /// It was sent more than once: an ACK does not say which time arrived (Karn's rule).
        const RETRANSMITTED = 1 << 2;
        /// It counted as lost and was sent again since, which nothing has answered.
        const RESENT = 1 << 3;
    }
}

/// A run as others see it: `[start, end)`, last sent between `first` and `sent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub start: u64,
    pub end: u64,
    /// When the last of it left, at the latest.
    pub sent: Instant,
    /// When the first of it left, at the earliest; `None`: longer ago than the table can tell.
    pub first: Option<Instant>,
    pub marks: Marks,
}

impl Piece {
    pub const fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// By how much the time of a run may be ahead of the clock.
const AHEAD_MAX_US: u32 = 1_000_000;

/// A spread of unknown length.
const UNKNOWN: u16 = u16::MAX;

/// Neighbouring positions in flight that left at about the same time and of which the same is known.
#[derive(Clone, Copy, Debug, Default, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Run {
    /// One past the last position, modulo 2^32.
    end: u32,
    /// When its last byte left, microseconds modulo 2^32.
    sent_us: u32,
    /// By how much its first byte left earlier, microseconds; [`UNKNOWN`].
    spread_us: u16,
    marks: u8,
    reserved: u8,
}

impl Run {
    /// Of what ends at `end` nothing is known but that it left, perhaps more than once.
    pub(crate) const fn unknown(end: u32) -> Self {
        Self {
            end,
            sent_us: 0,
            spread_us: UNKNOWN,
            marks: Marks::RETRANSMITTED.bits(),
            reserved: 0,
        }
    }

    pub(crate) fn sent_at(now: Instant, end: u32) -> Self {
        Self {
            end,
            sent_us: low(now.as_us()),
            spread_us: 0,
            marks: 0,
            reserved: 0,
        }
    }

    pub(crate) const fn end(self) -> u32 {
        self.end
    }

    pub(crate) const fn ending(self, end: u32) -> Self {
        Self { end, ..self }
    }

    pub(crate) const fn marks(self) -> Marks {
        Marks::from_bits_truncate(self.marks)
    }

    pub(crate) const fn marked(self, marks: Marks) -> Self {
        Self {
            marks: marks.bits(),
            ..self
        }
    }

    pub(crate) fn spread(self) -> Option<Duration> {
        (self.spread_us != UNKNOWN).then(|| Duration::from_us(u64::from(self.spread_us)))
    }

    /// The run that is `self` and, right after it, `upper`: what is true of both.
    pub(crate) fn joined(self, upper: Self) -> Self {
        let later_by = upper.sent_us.wrapping_sub(self.sent_us);
        let is_upper_later = later_by < 1 << 31;
        let (late, early) = if is_upper_later {
            (upper, self)
        } else {
            (self, upper)
        };
        let between = if is_upper_later {
            later_by
        } else {
            later_by.wrapping_neg()
        };
        let spread_us = if late.spread_us == UNKNOWN || early.spread_us == UNKNOWN {
            UNKNOWN
        } else {
            let whole =
                (u64::from(between) + u64::from(early.spread_us)).max(u64::from(late.spread_us));
            u16::try_from(whole).unwrap_or(UNKNOWN)
        };
        let both = self.marks().intersection(upper.marks());
        let either = self.marks().union(upper.marks());
        Self {
            end: upper.end,
            sent_us: late.sent_us,
            spread_us,
            marks: (both | (either & Marks::RETRANSMITTED)).bits(),
            reserved: 0,
        }
    }

    pub(crate) fn piece(self, now: Instant, start: u64, end: u64) -> Piece {
        let age = low(now.as_us()).wrapping_sub(self.sent_us);
        let sent = if age > u32::MAX - AHEAD_MAX_US {
            // What left in one batch may bear a time that is a little ahead (`rack`).
            now + Duration::from_us(u64::from(age.wrapping_neg()))
        } else {
            now - Duration::from_us(u64::from(age))
        };
        Piece {
            start,
            end,
            sent,
            first: self.spread().map(|spread| sent - spread),
            marks: self.marks(),
        }
    }
}

/// The low half of a position or a time.
pub(super) fn low(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
