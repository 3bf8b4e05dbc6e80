//! Time as plain data: microseconds since an origin that the caller chooses.
//!
//! The pure crates never read a clock; whoever runs them passes [`Instant`]s that never go back.

use core::ops::{Add, AddAssign, Sub};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A point in time, in microseconds since the caller's origin.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(transparent)]
pub struct Instant(u64);

/// A span of time, in microseconds.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(transparent)]
pub struct Duration(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than every other instant: a timer that is not set.
    pub const NEVER: Self = Self(u64::MAX);

    /// An instant `us` microseconds after the origin.
    pub const fn from_us(us: u64) -> Self {
        Self(us)
    }

    /// Microseconds since the origin.
    pub const fn as_us(self) -> u64 {
        self.0
    }

    /// Milliseconds since the origin, modulo 2^32: the clock of RFC 7323 timestamps.
    pub fn as_timestamp_ms(self) -> u32 {
        let [a, b, c, d, ..] = (self.0 / 1_000).to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// Time since `earlier`, zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }

    /// Whether this timer is set.
    pub const fn is_set(self) -> bool {
        self.0 != u64::MAX
    }

    /// This instant if it is set.
    pub fn if_set(self) -> Option<Self> {
        self.is_set().then_some(self)
    }
}

impl Duration {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// A span of `us` microseconds.
    pub const fn from_us(us: u64) -> Self {
        Self(us)
    }

    /// A span of `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * 1_000)
    }

    /// A span of `s` seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s * 1_000_000)
    }

    /// Microseconds.
    pub const fn as_us(self) -> u64 {
        self.0
    }

    /// This span doubled `times` times, at most `limit`.
    pub fn doubled(self, times: u32, limit: Self) -> Self {
        let factor = 1_u64.checked_shl(times).unwrap_or(u64::MAX);
        Self(self.0.saturating_mul(factor)).min(limit)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
