//! A transmit ring that stops: what leaves goes by the packet socket, until the ring moves again.

use std::time::{Duration, Instant};

/// How long the ring may take nothing. An engine waits for a second before it gives a device up.
const STOPPED_AFTER: Duration = Duration::from_millis(500);
/// Two refusals further apart belong to two bursts: nobody knows what the ring did meanwhile.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(250);

/// What is known of the ring.
#[derive(Debug, Default)]
pub(super) struct Stall {
    /// The first and the last of refusals in a row.
    refused: Option<(Instant, Instant)>,
    is_stopped: bool,
}

impl Stall {
    /// The ring took nothing; whether it counts as stopped.
    pub(super) fn on_full(&mut self, now: Instant) -> bool {
        let is_recent = |(_, last): &(Instant, Instant)| now - *last < FORGOTTEN_AFTER;
        let (first, _) = self.refused.filter(is_recent).unwrap_or((now, now));
        self.refused = Some((first, now));
        self.is_stopped |= now - first >= STOPPED_AFTER;
        self.is_stopped
    }

    /// The ring has free entries again.
    pub(super) fn on_room(&mut self) {
        if self.refused.is_some() {
            *self = Self::default();
        }
    }

    /// It has stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_takes_nothing_for_long_has_stopped_until_it_has_room() {
        let (mut stall, start) = (Stall::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        for ms in [0, 200, 400] {
            assert!(!stall.on_full(at(ms)), "{ms}");
        }
        stall.on_room();
        for ms in [450, 600, 800] {
            assert!(!stall.on_full(at(ms)), "{ms}");
        }
        for ms in [950, 5_000] {
            assert!(stall.on_full(at(ms)), "{ms}");
        }
        stall.on_room();
        assert!(!stall.is_stopped());
    }

    #[test]
    fn refusals_far_apart_are_not_one_long_one() {
        let (mut stall, start) = (Stall::default(), Instant::now());
        for second in 0..20 {
            assert!(!stall.on_full(start + Duration::from_secs(second)));
        }
    }
}
