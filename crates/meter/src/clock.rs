//! The clock of a measurement: the time-stamp counter where it is sound, else CLOCK_MONOTONIC_RAW, see clock_gettime(2).
//!
//! The counter is sound where it runs at one rate whatever the processor does (`constant_tsc`, `nonstop_tsc` of
//! /proc/cpuinfo), can be read in order (`rdtscp`), and the kernel itself keeps its time by it: the kernel compares
//! the processors' counters and gives them up where they differ.

use std::{fs, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::sys;

/// What the counter is calibrated for at the start.
const CALIBRATION: Duration = Duration::from_millis(20);
/// Fractional bits of the nanoseconds of one tick.
const SHIFT: u32 = 32;
/// Pairs of reads of which the closest counts.
const TRIES: usize = 20;
/// Reads that are timed to know what one costs.
const READS: u32 = 1000;

/// A clock that counts nanoseconds from its making.
#[derive(Debug, Clone)]
pub struct Clock {
    /// `None`: CLOCK_MONOTONIC_RAW.
    counter: Option<Counter>,
    start_raw_ns: u64,
    read_ns: f64,
    reason: String,
}

#[derive(Debug, Clone, Copy)]
struct Counter {
    start: u64,
    /// With [`SHIFT`] fractional bits.
    ns_per_tick: u64,
}

/// What is told of the clock.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClockReport {
    /// `tsc` or `CLOCK_MONOTONIC_RAW`.
    pub source: String,
    /// Why this one.
    pub reason: String,
    /// What reading it costs.
    pub read_ns: f64,
    /// By how much the counter went faster over the run than CLOCK_MONOTONIC_RAW, in millionths; none of the other clock.
    pub drift_ppm: Option<f64>,
}

impl Clock {
    /// Looks which clock is sound and calibrates it; takes 20 ms.
    pub fn start() -> Self {
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let source =
            fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let unsound = why_unsound(&processors, source.unwrap_or_default().trim());
        let calibrated = if unsound.is_none() { calibrate() } else { None };
        let reason = match (&calibrated, unsound) {
            (Some(_), _) => "constant, never stops, and the kernel keeps its time by it".to_owned(),
            (None, Some(reason)) => reason,
            (None, None) => {
                "the time-stamp counter did not move while it was calibrated".to_owned()
            }
        };
        let mut clock = Self {
            counter: calibrated.map(|(counter, _)| counter),
            start_raw_ns: calibrated.map_or_else(raw_ns, |(_, raw_ns)| raw_ns),
            read_ns: 0.0,
            reason,
        };
        let begun = clock.now_ns();
        for _ in 0..READS {
            std::hint::black_box(clock.now_ns());
        }
        clock.read_ns = (clock.now_ns() - begun) as f64 / f64::from(READS);
        clock
    }

    /// Nanoseconds since the clock was made.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        match self.counter {
            Some(counter) => counter.ns(sys::time_stamp()),
            None => raw_ns().saturating_sub(self.start_raw_ns),
        }
    }

    /// What is told of it, after a measurement.
    pub fn report(&self) -> ClockReport {
        let drift_ppm = self.counter.and_then(|counter| {
            let (now, raw_ns) = closest_pair();
            let raw_ns = raw_ns.saturating_sub(self.start_raw_ns);
            // A run that is shorter than the calibration knows the rate no better.
            let is_long = Duration::from_nanos(raw_ns) > CALIBRATION;
            is_long.then(|| (counter.ns(now) as f64 / raw_ns as f64 - 1.0) * 1e6)
        });
        let source = match self.counter {
            Some(_) => "tsc",
            None => "CLOCK_MONOTONIC_RAW",
        };
        ClockReport {
            source: source.to_owned(),
            reason: self.reason.clone(),
            read_ns: self.read_ns,
            drift_ppm,
        }
    }
}

impl Counter {
    #[inline]
    fn ns(self, now: u64) -> u64 {
        // Between processors whose counters differ by a few ticks a later read may be the smaller one.
        let ticks = u128::from(now.saturating_sub(self.start));
        u64::try_from((ticks * u128::from(self.ns_per_tick)) >> SHIFT).unwrap_or(u64::MAX)
    }
}

/// The counter's rate, and what CLOCK_MONOTONIC_RAW said when it began to count.
fn calibrate() -> Option<(Counter, u64)> {
    let (first, first_ns) = closest_pair();
    while raw_ns().saturating_sub(first_ns)
        < u64::try_from(CALIBRATION.as_nanos()).unwrap_or(u64::MAX)
    {
        std::hint::spin_loop();
    }
    let (second, second_ns) = closest_pair();
    let ticks = u128::from(second.checked_sub(first).filter(|ticks| *ticks > 0)?);
    let ns_per_tick = (u128::from(second_ns.checked_sub(first_ns)?) << SHIFT) / ticks;
    let counter = Counter {
        start: second,
        ns_per_tick: u64::try_from(ns_per_tick).ok().filter(|rate| *rate > 0)?,
    };
    Some((counter, second_ns))
}

/// Both clocks at one moment: the read of one that two reads of the other enclose most closely.
fn closest_pair() -> (u64, u64) {
    let pair = || {
        let before = sys::time_stamp();
        let raw_ns = raw_ns();
        let after = sys::time_stamp();
        let width = after.saturating_sub(before);
        (width, (before + width / 2, raw_ns))
    };
    let pairs = (0..TRIES).map(|_| pair());
    pairs
        .min_by_key(|(width, _)| *width)
        .map_or_else(|| pair().1, |(_, pair)| pair)
}

fn raw_ns() -> u64 {
    let time = clock_gettime(ClockId::MonotonicRaw);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000) + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Why the counter is no clock here, by /proc/cpuinfo and the kernel's own clock.
fn why_unsound(processors: &str, source: &str) -> Option<String> {
    let flags = processors
        .lines()
        .find(|line| line.starts_with("flags"))
        .unwrap_or_default();
    let has = |flag: &str| flags.split_ascii_whitespace().any(|word| word == flag);
    let missing = ["constant_tsc", "nonstop_tsc", "rdtscp"]
        .into_iter()
        .find(|flag| !has(flag));
    match missing {
        Some(flag) => Some(format!("the processor does not have {flag}")),
        None if source != "tsc" => Some(format!(
            "the kernel keeps its time by {source:?} and not by tsc"
        )),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_sound_only_where_processor_and_kernel_say_so() {
        let flags = "processor : 0\nflags\t\t: fpu tsc rdtscp constant_tsc nonstop_tsc\n";
        assert_eq!(why_unsound(flags, "tsc"), None);
        assert!(
            why_unsound(flags, "kvm-clock")
                .unwrap()
                .contains("kvm-clock")
        );
        assert!(
            why_unsound("flags : tsc rdtscp constant_tsc", "tsc")
                .unwrap()
                .contains("nonstop_tsc")
        );
        assert!(why_unsound("", "tsc").is_some());
    }

    #[test]
    fn ticks_become_nanoseconds_without_overflow() {
        let counter = Counter {
            start: 1000,
            ns_per_tick: 1 << (SHIFT - 1),
        };
        assert_eq!(
            (counter.ns(1000), counter.ns(1010), counter.ns(999)),
            (0, 5, 0)
        );
        assert_eq!(counter.ns(u64::MAX), (u64::MAX - 1000) / 2);
    }

    #[test]
    fn the_clock_goes_forward_as_the_kernels_does() {
        let clock = Clock::start();
        let (begun, begun_raw) = (clock.now_ns(), raw_ns());
        while raw_ns() - begun_raw < 5_000_000 {}
        // What the machine does between two reads makes one of them late, never early.
        assert!(clock.now_ns() - begun >= 4_900_000);
        assert!(clock.report().read_ns > 0.0);
    }
}
