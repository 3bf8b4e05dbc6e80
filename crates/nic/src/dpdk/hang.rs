//! Whether a device still sends what it is given, by its own count of frames that left. Drivers of the kernel ask the same of
//! their rings (`ndo_tx_timeout`), and set the card up anew; those of DPDK leave it to whoever uses them.

use std::time::{Duration, Instant};

/// How long frames may wait in a device that has a link: as long as the kernel's drivers of cards let them (`watchdog_timeo`).
const PATIENCE: Duration = Duration::from_secs(5);

/// What was found when the device was looked at the last time.
#[derive(Debug, Default)]
pub(super) struct Hang {
    taken: u64,
    left: u64,
    /// Since when it has had frames of which none left.
    since: Option<Instant>,
}

impl Hang {
    /// Told how many frames were given to the device, and how many left by its own count; whether it has hung. A device that
    /// counts frames when they are given to it never does, nor one that has counted none yet: some count nothing.
    pub fn look(&mut self, now: Instant, taken: u64, left: u64) -> bool {
        if left != self.left || left == 0 {
            self.since = None;
        } else if taken != self.taken {
            self.since.get_or_insert(now);
        }
        (self.taken, self.left) = (taken, left);
        self.since.is_some_and(|since| now - since >= PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_hung_when_nothing_leaves_for_long_after_frames_were_given_to_it() {
        let (mut hang, start) = (Hang::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        // Nothing to do, for as long as one likes; then one frame, of which it is told before and after it left.
        for second in 0..20 {
            assert!(!hang.look(at(second), 0, 0));
        }
        assert!(!hang.look(at(20), 1, 0));
        assert!(!hang.look(at(21), 1, 1));
        for second in 22..40 {
            assert!(!hang.look(at(second), 1, 1));
        }
        assert!(!hang.look(at(40), 2, 1));
        for second in 41..45 {
            assert!(!hang.look(at(second), second, 1), "{second}");
        }
        assert!(hang.look(at(45), 45, 1));
        assert!(!hang.look(at(46), 46, 2), "it moves again");
    }

    #[test]
    fn a_device_that_counts_nothing_is_not_judged() {
        let (mut hang, start) = (Hang::default(), Instant::now());
        for second in 0..100 {
            assert!(!hang.look(start + Duration::from_secs(second), second, 0));
        }
    }

    #[test]
    fn a_device_that_always_sends_something_is_well_however_much_waits() {
        let (mut hang, start) = (Hang::default(), Instant::now());
        for second in 0..100 {
            assert!(!hang.look(start + Duration::from_secs(second), 1000 * second, second));
        }
    }
}
