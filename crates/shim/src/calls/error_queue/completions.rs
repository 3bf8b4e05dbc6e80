//! Calls with MSG_ZEROCOPY that are complete.

use std::sync::atomic::{AtomicU64, Ordering};

/// The calls of a socket that are complete, and how many of them the program was told of.
#[derive(Debug, Default)]
pub struct Completions {
    /// Calls so far in the lower half, and those told in the upper one; both count on beyond 2^32 from 0.
    counts: AtomicU64,
}

impl Completions {
    /// One more call is complete.
    pub fn add(&self) {
        let next = |counts| Some(join(low(counts).wrapping_add(1), high(counts)));
        let _ = self
            .counts
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// Whether there are some that were not told.
    pub fn wait(&self) -> bool {
        let counts = self.counts.load(Ordering::Acquire);
        low(counts) != high(counts)
    }

    /// The first and the last call that were not told; they are from now on.
    pub fn take(&self) -> Option<(u32, u32)> {
        let told = |counts| (low(counts) != high(counts)).then(|| join(low(counts), low(counts)));
        let before = self
            .counts
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, told);
        let before = before.ok()?;
        Some((high(before), low(before).wrapping_sub(1)))
    }
}

fn low(counts: u64) -> u32 {
    let [a, b, c, d, ..] = counts.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn high(counts: u64) -> u32 {
    let [.., a, b, c, d] = counts.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn join(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_once_and_together() {
        let completions = Completions::default();
        assert_eq!(completions.take(), None);
        completions.add();
        assert_eq!(completions.take(), Some((0, 0)));
        completions.add();
        completions.add();
        assert!(completions.wait());
        assert_eq!(completions.take(), Some((1, 2)));
        assert!(!completions.wait() && completions.take().is_none());
    }

    #[test]
    fn counts_go_on_from_nought() {
        let completions = Completions {
            counts: AtomicU64::new(join(u32::MAX, u32::MAX)),
        };
        completions.add();
        completions.add();
        assert_eq!(completions.take(), Some((u32::MAX, 0)));
    }
}
