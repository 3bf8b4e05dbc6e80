//! Requests of Fast Open that are not over: how many a listener bears.

use tcp::{Duration, Instant};

/// How long a request that ended in a reset counts (Linux `reqsk_fastopen_remove`).
const RESET_MEMORY: Duration = Duration::from_secs(60);

/// What a listener knows of requests besides its row.
#[derive(Clone, Copy, Debug, Default, zerocopy::FromZeros)]
pub(crate) struct Pending {
    /// Requests whose handshake is not over, and those that still count although they were reset.
    count: u32,
    /// The latter.
    resets: u32,
    /// When those are forgotten.
    resets_until: Instant,
}

impl Pending {
    pub(super) fn has_capacity(&mut self, now: Instant, most: u32) -> bool {
        if self.resets > 0 && self.resets_until <= now {
            self.count -= self.resets;
            self.resets = 0;
        }
        self.count < most
    }

    /// One more request.
    pub(crate) const fn add(&mut self) {
        self.count += 1;
    }

    pub(super) fn remove(&mut self, now: Instant, was_reset: bool) {
        if !was_reset {
            self.count = self.count.saturating_sub(1);
            return;
        }
        if self.resets == 0 {
            self.resets_until = now + RESET_MEMORY;
        }
        self.resets += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_count_for_a_minute() {
        let mut pending = Pending::default();
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        assert!(pending.has_capacity(at(0), 2));
        pending.add();
        pending.add();
        assert!(!pending.has_capacity(at(0), 2));
        pending.remove(at(1), false);
        assert!(pending.has_capacity(at(1), 2));
        pending.add();
        pending.remove(at(2), true);
        pending.remove(at(50), true);
        assert!(!pending.has_capacity(at(61), 2));
        assert!(pending.has_capacity(at(62), 2), "both at once");
        assert_eq!(pending.count, 0);
    }
}
