//! How long a thread spins before it sleeps.

use core::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long a waiting thread may spin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// So long, always.
    Fixed(Duration),
    /// As long as it pays.
    Auto,
}

/// The longest that spinning can pay for: what a sleep and a wake-up cost, with a processor that leaves idle.
const AUTO: Duration = Duration::from_micros(50);
/// Spins in vain, one after the other, after which spinning pauses.
const PATIENCE: u32 = 8;
/// While it pauses, one wait in so many tries again.
const RETRY: u32 = 16;

/// Spins in vain since the last that found something, of all threads.
static IN_VAIN: AtomicU32 = AtomicU32::new(0);

impl Budget {
    /// How long this wait may spin; `None`: not at all.
    pub fn limit(self) -> Option<Duration> {
        match self {
            Budget::Fixed(limit) => (!limit.is_zero()).then_some(limit),
            Budget::Auto => {
                let in_vain = IN_VAIN.load(Ordering::Relaxed);
                if in_vain >= PATIENCE && !in_vain.is_multiple_of(RETRY) {
                    IN_VAIN.store(in_vain.wrapping_add(1), Ordering::Relaxed);
                    return None;
                }
                Some(AUTO)
            }
        }
    }

    /// A spin has ended: whether it found what it waited for.
    pub fn on_spun(self, found: bool) {
        if self != Budget::Auto {
            return;
        }
        if found {
            IN_VAIN.store(0, Ordering::Relaxed);
        } else {
            IN_VAIN.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The budget for spinning before a sleep: SHUNT_SPIN_US, else none on machines with two processors or
/// fewer (the engine needs the other one), else 20 µs.
pub fn spin() -> Duration {
    let given = given_spin_us();
    let default_us = if processors() <= 2 { 0 } else { 20 };
    Duration::from_micros(given.unwrap_or(default_us))
}

/// The budget where spinning polls an engine inside this process, or memory that another program writes: SHUNT_SPIN_US, else as long as it pays.
pub fn poll() -> Budget {
    given_spin_us().map_or(Budget::Auto, |us| Budget::Fixed(Duration::from_micros(us)))
}

fn given_spin_us() -> Option<u64> {
    std::env::var(hostif::SPIN_VARIABLE).ok()?.parse().ok()
}

/// Processors that this process may use.
pub fn processors() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_pauses_after_it_was_in_vain_and_is_tried_again_now_and_then() {
        let tried = |waits: u32| {
            let spins = (0..waits).filter(|_| {
                let spins = Budget::Auto.limit().is_some();
                if spins {
                    Budget::Auto.on_spun(false);
                }
                spins
            });
            spins.count()
        };
        Budget::Auto.on_spun(true);
        assert_eq!(tried(PATIENCE), 8);
        assert_eq!(tried(10 * RETRY), 10);
        Budget::Auto.on_spun(true);
        assert_eq!(tried(1), 1);
    }
}
