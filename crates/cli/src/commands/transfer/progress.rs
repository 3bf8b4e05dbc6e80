//! What is shown while a transfer runs: a line that is written over on a terminal, a line for each interval where
//! that is wanted.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mover::Watch;
use serde_json::{Value, json};

use super::Common;

/// How often the line on a terminal changes.
const REFRESH: Duration = Duration::from_millis(250);
/// What "now" means.
const NOW: Duration = Duration::from_secs(2);
/// A transfer that is over sooner shows none.
const SILENT: Duration = Duration::from_secs(1);

/// A thread that shows how far a transfer is.
pub struct Shown {
    begun: Instant,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Shown {
    pub fn begin(common: &Common, watch: &Arc<Watch>) -> Self {
        let begun = Instant::now();
        let is_over = Arc::new(AtomicBool::new(false));
        let view = View {
            watch: Arc::clone(watch),
            begun,
            interval: common
                .interval
                .map(|seconds| Duration::from_secs(u64::from(seconds))),
            json: common.json,
            is_terminal: std::io::stderr().is_terminal(),
            is_over: Arc::clone(&is_over),
        };
        Self {
            begun,
            is_over,
            thread: thread::spawn(move || view.run()),
        }
    }

    /// The transfer is over; how long it took, without a probe before it.
    pub fn end(self, watch: &Watch) -> Duration {
        let probe = Duration::from_micros(watch.probe_us.load(Ordering::Relaxed));
        let taken = self.begun.elapsed().saturating_sub(probe);
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let _ = self.thread.join();
        taken
    }
}

struct View {
    watch: Arc<Watch>,
    begun: Instant,
    interval: Option<Duration>,
    json: bool,
    is_terminal: bool,
    is_over: Arc<AtomicBool>,
}

/// How far each part of a transfer is at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    read: u64,
    moved: u64,
    stored: u64,
}

impl Counts {
    fn of(watch: &Watch) -> Self {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            read: load(&watch.read_bytes),
            moved: load(&watch.bytes),
            stored: load(&watch.stored_bytes),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            read: self.read.saturating_sub(before.read),
            moved: self.moved.saturating_sub(before.moved),
            stored: self.stored.saturating_sub(before.stored),
        }
    }

    fn any(self) -> bool {
        self.read > 0 || self.moved > 0 || self.stored > 0
    }

    /// Each part's rate, for people; what this end does not know is left out.
    fn rates(self, time: Duration) -> String {
        let parts = [("read", self.read), ("stored", self.stored)];
        let known = parts.iter().filter(|(_, bytes)| *bytes > 0);
        known
            .map(|(name, bytes)| format!(", {name} {:.2}", gbit_per_s(*bytes, time)))
            .collect()
    }
}

impl View {
    fn run(&self) {
        let mut number = 0_u32;
        let mut before = Counts::default();
        let mut shown = (Duration::ZERO, Counts::default());
        let mut has_line = false;
        while !self.is_over.load(Ordering::Relaxed) {
            let next = self.interval.map(|interval| interval * (number + 1));
            let until = next.map_or(REFRESH, |next| next.saturating_sub(self.begun.elapsed()));
            thread::park_timeout(until.min(REFRESH));
            let counts = Counts::of(&self.watch);
            let elapsed = self.begun.elapsed();
            if let (Some(interval), Some(next)) = (self.interval, next)
                && elapsed >= next
            {
                self.tell_interval(interval * number, next, counts.since(before));
                before = counts;
                number += 1;
            }
            if self.interval.is_none() && self.is_terminal && elapsed > SILENT {
                has_line = true;
                let line = self.line(counts, elapsed, counts.since(shown.1), elapsed - shown.0);
                progress!("\r{line}\x1b[K");
                let _ = std::io::stderr().flush();
                // A receiver tells each second what it has stored: a shorter look would see nothing, then twice as much.
                if elapsed - shown.0 >= NOW {
                    shown = (elapsed, counts);
                }
            }
        }
        if has_line {
            progress!("\r\x1b[K");
        }
        if let Some(interval) = self.interval {
            let (begun, end) = (interval * number, self.begun.elapsed());
            let last = Counts::of(&self.watch).since(before);
            // What a late look has counted for the interval before is not told twice.
            if end > begun && last.any() {
                self.tell_interval(begun, end, last);
            }
        }
    }

    /// The last one is as long as it is.
    fn tell_interval(&self, from: Duration, to: Duration, counts: Counts) {
        let gib = gib(counts.moved);
        let rate = |bytes| gbit_per_s(bytes, to - from);
        if self.json {
            say!(
                "{}",
                json!({
                    "interval": {"from_s": seconds(from), "to_s": seconds(to)},
                    "bytes": counts.moved,
                    "gbit_per_s": rate(counts.moved),
                    "stages_gbit_per_s": {
                        "disk_read": rate(counts.read),
                        "network": rate(counts.moved),
                        "disk_write": rate(counts.stored),
                    },
                })
            );
        } else {
            say!(
                "{:>6}-{:<6} s  {gib:>8.3} GiB  {:>7.2} Gbit/s{}",
                seconds(from).to_string(),
                seconds(to).to_string(),
                rate(counts.moved),
                counts.rates(to - from)
            );
        }
    }

    /// All of it, and what came of it since the last look but some.
    fn line(&self, all: Counts, elapsed: Duration, new: Counts, since: Duration) -> String {
        let kept = self.watch.kept_bytes.load(Ordering::Relaxed);
        let total = self.watch.total_bytes.load(Ordering::Relaxed);
        let bytes = all.moved;
        let done = bytes + kept;
        let files = self.watch.files.load(Ordering::Relaxed);
        let mut line = format!(
            "{:.2} GiB, {files} files, {:.2} Gbit/s now{}, {:.2} on average",
            gib(done),
            gbit_per_s(new.moved, since),
            new.rates(since),
            gbit_per_s(bytes, elapsed)
        );
        if total > done && bytes > 0 {
            let left = u128::from(total - done) * elapsed.as_millis() / u128::from(bytes) / 1_000;
            line += &format!(
                ", {} % of {:.2} GiB, about {left} s left",
                done * 100 / total,
                gib(total)
            );
        }
        line
    }
}

/// Whole seconds as such, others with two places.
fn seconds(time: Duration) -> Value {
    match time.subsec_nanos() {
        0 => time.as_secs().into(),
        _ => ((time.as_secs_f64() * 100.0).ceil() / 100.0).into(),
    }
}

/// Bytes as GiB (2^30).
pub fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Bytes in a time as Gbit/s (10^9).
pub fn gbit_per_s(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8.0 / 1e9 / time.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_last_interval_is_no_whole_second() {
        assert_eq!(seconds(Duration::from_secs(3)).to_string(), "3");
        assert_eq!(seconds(Duration::from_millis(3412)).to_string(), "3.42");
    }

    #[test]
    fn each_part_has_its_own_rate_and_what_is_not_known_is_left_out() {
        let watch = Watch::default();
        let second = Duration::from_secs(1);
        watch.read_bytes.store(3_000_000_000, Ordering::Relaxed);
        watch.bytes.store(2_000_000_000, Ordering::Relaxed);
        let first = Counts::of(&watch);
        assert_eq!(first.rates(second), ", read 24.00");
        watch.stored_bytes.store(1_000_000_000, Ordering::Relaxed);
        watch.read_bytes.store(3_500_000_000, Ordering::Relaxed);
        let new = Counts::of(&watch).since(first);
        assert_eq!(new.rates(second), ", read 4.00, stored 8.00");
        assert_eq!(new.moved, 0);
    }
}
