//! How long after a look at a condition the next one comes: what is waited for needs the processors too.

use std::time::Duration;

/// At least.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// At most, but for a long look.
const LONGEST_INTERVAL: Duration = Duration::from_millis(20);

/// Pauses are this part of what has been waited: many programs that are waited for at once cost a processor else.
const PART_OF_WAIT: u32 = 50;

/// As much longer than a look the pause after it is, as a look may start a program: at first, and at most. Each second adds one.
const PAUSE_PER_LOOK: u32 = 4;
const LONGEST_PAUSE_PER_LOOK: u32 = 20;

/// Sleeps after a look at a condition that has been waited for so long; the look has taken so long.
pub fn pause_while(waited: Duration, look: Duration) {
    let interval = (waited / PART_OF_WAIT).clamp(POLL_INTERVAL, LONGEST_INTERVAL);
    let seconds = u32::try_from(waited.as_secs()).unwrap_or(u32::MAX);
    let per_look = PAUSE_PER_LOOK
        .saturating_add(seconds)
        .min(LONGEST_PAUSE_PER_LOOK);
    std::thread::sleep(interval.max(look * per_look));
}
