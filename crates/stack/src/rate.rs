//! A token bucket: what we send only because somebody sent us something is bounded (RFC 1812 §4.3.2.8).

use tcp::{Duration, Instant};

/// Permits `burst` events at once and `per_second` in the long run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    per_second: u32,
    burst: u32,
    tokens: u32,
    refilled_at: Instant,
}

impl TokenBucket {
    pub(crate) const fn new(per_second: u32, burst: u32) -> Self {
        Self {
            per_second,
            burst,
            tokens: burst,
            refilled_at: Instant::ZERO,
        }
    }

    /// Takes a token if there is one.
    pub(crate) fn try_take(&mut self, now: Instant) -> bool {
        let earned = now
            .since(self.refilled_at)
            .as_us()
            .saturating_mul(u64::from(self.per_second))
            / 1_000_000;
        if earned > 0 {
            let room = self.burst - self.tokens;
            if earned >= u64::from(room) {
                self.tokens = self.burst;
                self.refilled_at = now;
            } else {
                self.tokens += u32::try_from(earned).unwrap_or(room);
                // What is not yet a whole token keeps counting.
                self.refilled_at +=
                    Duration::from_us(earned * 1_000_000 / u64::from(self.per_second));
            }
        }
        let Some(left) = self.tokens.checked_sub(1) else {
            return false;
        };
        self.tokens = left;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let mut bucket = TokenBucket::new(1_000, 50);
        let start = Instant::from_us(5_000_000);
        assert_eq!((0..100).filter(|_| bucket.try_take(start)).count(), 50);
        let passed = (0..100_000_u64)
            .filter(|us| bucket.try_take(start + Duration::from_us(*us)))
            .count();
        assert!((99..=100).contains(&passed), "{passed} in 100 ms at 1000/s");
    }
}
