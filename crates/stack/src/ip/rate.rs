//! A token bucket: what we send only because somebody sent us something is bounded (RFC 1812 §4.3.2.8).
//!
//! Its level is shared by all who make us answer, so it must not tell one of them what others did
//! (CVE-2020-25705): each answer costs a secret number of tokens.

use siphasher::sip::SipHasher13;
use tcp::{Duration, Instant};

/// An answer costs one token and fewer than this beside it (as Linux).
const SECRET_COST: u64 = 3;

/// Permits `burst` events at once and `per_second` in the long run.
#[derive(Clone, Debug)]
pub(crate) struct TokenBucket {
    per_second: u32,
    burst: u32,
    tokens: u32,
    refilled_at: Instant,
    hasher: SipHasher13,
    draws: u64,
}

impl TokenBucket {
    /// `secret` decides what answers cost.
    pub(crate) fn new(per_second: u32, burst: u32, secret: &[u8; 16]) -> Self {
        Self {
            hasher: SipHasher13::new_with_key(secret),
            draws: 0,
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
        self.draws += 1;
        let secret_cost = self.hasher.hash(&self.draws.to_le_bytes()) % SECRET_COST;
        self.tokens = left.saturating_sub(u32::try_from(secret_cost).unwrap_or(0));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let mut bucket = TokenBucket::new(1_000, 50, &[1; 16]);
        let start = Instant::from_us(5_000_000);
        let burst = (0..100).filter(|_| bucket.try_take(start)).count();
        assert!((17..=50).contains(&burst), "{burst} of 50 tokens");
        let passed = (0..100_000_u64)
            .filter(|us| bucket.try_take(start + Duration::from_us(*us)))
            .count();
        assert!((33..=101).contains(&passed), "{passed} in 100 ms at 1000/s");
    }

    #[test]
    fn how_many_answers_are_left_depends_on_the_secret() {
        let burst = |secret| {
            let mut bucket = TokenBucket::new(1_000, 50, &[secret; 16]);
            (0..100).filter(|_| bucket.try_take(Instant::ZERO)).count()
        };
        let bursts: std::collections::HashSet<usize> = (0..50).map(burst).collect();
        assert!(bursts.len() > 5, "{bursts:?}");
    }
}
