//! How long a thread spins before it sleeps.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::coarse_clock;

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
/// A spin that took so long has lost its processor meanwhile: others want it.
const LOST_PROCESSOR: Duration = Duration::from_micros(500);
/// For so long after that nobody spins: it uses up the time for which the scheduler would let the thread, or whom it
/// waits for, go ahead of the others.
const CROWDED_MS: u64 = 100;

/// What spins have come to, of all threads.
struct Outcomes {
    /// In vain since the last that found something.
    in_vain: AtomicU32,
    /// Until when nobody spins, on the coarse clock; 0: no spin has lost its processor of late.
    crowded_until_ms: AtomicU64,
}

static OUTCOMES: Outcomes = Outcomes::none();

impl Outcomes {
    const fn none() -> Outcomes {
        Outcomes {
            in_vain: AtomicU32::new(0),
            crowded_until_ms: AtomicU64::new(0),
        }
    }

    /// Whether it pays to spin now.
    fn allow_spin(&self, now_ms: impl FnOnce() -> u64) -> bool {
        let crowded_until_ms = self.crowded_until_ms.load(Ordering::Relaxed);
        if crowded_until_ms != 0 {
            if now_ms() < crowded_until_ms {
                return false;
            }
            self.crowded_until_ms.store(0, Ordering::Relaxed);
        }
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        let pauses = in_vain >= PATIENCE && !in_vain.is_multiple_of(RETRY);
        if pauses {
            self.in_vain
                .store(in_vain.wrapping_add(1), Ordering::Relaxed);
        }
        !pauses
    }

    fn on_spun(&self, found: bool, took: Duration, now_ms: impl FnOnce() -> u64) {
        if took >= LOST_PROCESSOR {
            let until_ms = now_ms() + CROWDED_MS;
            self.crowded_until_ms.store(until_ms, Ordering::Relaxed);
        } else if found {
            self.in_vain.store(0, Ordering::Relaxed);
        } else {
            self.in_vain.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Budget {
    /// How long this wait may spin; `None`: not at all.
    pub fn limit(self) -> Option<Duration> {
        match self {
            Budget::Fixed(limit) => (!limit.is_zero()).then_some(limit),
            Budget::Auto => OUTCOMES.allow_spin(coarse_clock::now_ms).then_some(AUTO),
        }
    }

    /// The first look has found what a spin would have waited for.
    pub fn on_found_at_once(self) {
        if self == Budget::Auto && OUTCOMES.in_vain.load(Ordering::Relaxed) != 0 {
            OUTCOMES.in_vain.store(0, Ordering::Relaxed);
        }
    }

    /// A spin has ended: whether it found what it waited for, and how long it took.
    pub fn on_spun(self, found: bool, took: Duration) {
        if self == Budget::Auto {
            OUTCOMES.on_spun(found, took, coarse_clock::now_ms);
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
    hostif::environment::text(hostif::SPIN_VARIABLE)?
        .parse()
        .ok()
}

/// Processors that this process may use.
pub fn processors() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many waits, at that moment, spin, and find nothing.
    fn spin_in_vain(outcomes: &Outcomes, waits: u32, now_ms: u64) -> usize {
        let spins = (0..waits).filter(|_| {
            let spins = outcomes.allow_spin(|| now_ms);
            if spins {
                outcomes.on_spun(false, AUTO, || now_ms);
            }
            spins
        });
        spins.count()
    }

    #[test]
    fn spinning_pauses_after_it_was_in_vain_and_is_tried_again_now_and_then() {
        let outcomes = Outcomes::none();
        assert_eq!(spin_in_vain(&outcomes, PATIENCE, 0), 8);
        assert_eq!(spin_in_vain(&outcomes, 10 * RETRY, 0), 10);
        outcomes.on_spun(true, AUTO, || 0);
        assert_eq!(spin_in_vain(&outcomes, 1, 0), 1);
    }

    #[test]
    fn nobody_spins_for_a_while_after_a_spin_has_lost_its_processor_though_it_found_something() {
        let outcomes = Outcomes::none();
        outcomes.on_spun(true, LOST_PROCESSOR, || 1_000);
        assert_eq!(spin_in_vain(&outcomes, 100, 1_000 + CROWDED_MS - 1), 0);
        assert_eq!(spin_in_vain(&outcomes, 1, 1_000 + CROWDED_MS), 1);
    }
}
