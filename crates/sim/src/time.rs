//! Simulated time: whole nanoseconds, so that runs are reproducible to the last bit.
//!
//! Scenarios give times in the units of their names; they are rounded once, half to even, when a
//! run is set up.

/// Simulated time, or a length of it, in nanoseconds.
pub type Ns = u64;

/// A time that never comes: the work of an endless computation.
pub const NEVER: Ns = u64::MAX;

/// The longest time a scenario may name: some 36 years. Keeps every sum inside `u64`.
pub const LONGEST: Ns = 1 << 60;

/// Rounds nanoseconds half to even; what is negative or no number becomes 0, what is too long
/// [`LONGEST`].
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped to 0…2^60 before
pub fn round(ns: f64) -> Ns {
    let rounded = ns.round_ties_even();
    if rounded > 0.0 {
        rounded.min(LONGEST as f64) as Ns
    } else {
        0
    }
}

/// Microseconds as simulated time.
pub fn from_us(us: f64) -> Ns {
    round(us * 1e3)
}

/// Milliseconds as simulated time.
pub fn from_ms(ms: f64) -> Ns {
    round(ms * 1e6)
}

/// Simulated time in microseconds.
pub fn as_us(ns: Ns) -> f64 {
    ns as f64 / 1e3
}

/// Simulated time in milliseconds.
pub fn as_ms(ns: Ns) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_to_the_even_nanosecond() {
        assert_eq!((round(0.5), round(1.5), round(2.5)), (0, 2, 2));
        assert_eq!(from_us(424.5 * 0.9), 382_050);
    }

    #[test]
    fn what_is_no_time_is_bounded() {
        assert_eq!((round(-3.0), round(f64::NAN)), (0, 0));
        assert_eq!(round(f64::INFINITY), LONGEST);
    }
}
