//! `shunt measure clock`: which clock a measurement here goes by, what reading it costs, how finely it counts, how it drifts
//! from the kernel's, and how long the measuring thread was held up at worst.

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use output::Table;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use statistics::Summary;

use crate::card_clocks::{self, CardClock, Reading};
use crate::clock::{Clock, ClockReport};

/// Measure this machine's clocks: cost of a read, steps, drift.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt measure clock
  shunt measure clock --seconds 30 --json     the longer, the surer the drift

Clocks of network cards (/dev/ptpN) are read beside CLOCK_REALTIME where this user may open them.

Exit status: 0 measured, 2 wrong usage.")]
pub struct Arguments {
    /// How long drift is watched.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs, each of so many reads, of which the median counts.
const RUNS: usize = 9;
const READS: u32 = 20_000;

#[derive(Debug, Serialize)]
struct Results {
    /// The one that `shunt ping` goes by, with its drift beside CLOCK_MONOTONIC_RAW.
    chosen: ClockReport,
    seconds: u64,
    clocks: Vec<Row>,
    /// CLOCK_MONOTONIC beside CLOCK_MONOTONIC_RAW over the same time: what the kernel corrects, in millionths.
    monotonic_drift_ppm: f64,
    /// Of the network cards.
    cards: Vec<CardRow>,
}

/// A card's clock beside the kernel's.
#[derive(Debug, Serialize)]
struct CardRow {
    device: String,
    name: String,
    interfaces: Vec<String>,
    /// What it shows more than CLOCK_REALTIME at the end.
    ahead_ns: i128,
    /// How long the read took that says so: it is known no better.
    within_ns: u64,
    /// Beside CLOCK_MONOTONIC_RAW, in millionths.
    drift_ppm: f64,
}

#[derive(Debug, Serialize)]
struct Row {
    clock: String,
    read_ns: Summary,
    /// Smallest difference of two reads in a row that differ.
    step_ns: Option<u64>,
    /// Largest one: the thread had no processor, or the machine stood still.
    longest_gap_ns: u64,
}

/// Measures.
///
/// # Errors
/// The result cannot be written.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let chosen = Clock::start();
    let (raw_ns, monotonic_ns) = (read(ClockId::MonotonicRaw), read(ClockId::Monotonic));
    let began = Instant::now();
    let cards: Vec<(CardClock, Reading)> = card_clocks::open_all()
        .into_iter()
        .filter_map(|card| card.read().map(|first| (card, first)))
        .collect();
    let mut clocks = vec![row("shunt ping's", || chosen.now_ns())];
    for (name, clock) in [
        ("CLOCK_MONOTONIC", ClockId::Monotonic),
        ("CLOCK_MONOTONIC_RAW", ClockId::MonotonicRaw),
        ("CLOCK_REALTIME", ClockId::Realtime),
    ] {
        clocks.push(row(name, || read(clock)));
    }
    for (card, _) in &cards {
        clocks.push(row(&card.device, || card.now_ns().unwrap_or(0)));
    }
    thread::sleep(Duration::from_secs(arguments.seconds).saturating_sub(began.elapsed()));
    let passed = |clock, before: u64| read(clock).saturating_sub(before) as f64;
    let raw = passed(ClockId::MonotonicRaw, raw_ns);
    let results = Results {
        monotonic_drift_ppm: (passed(ClockId::Monotonic, monotonic_ns) / raw - 1.0) * 1e6,
        chosen: chosen.report(),
        seconds: arguments.seconds,
        clocks,
        cards: cards.into_iter().filter_map(card_row).collect(),
    };
    output::print_result(arguments.json, &results, || results.text())?;
    Ok(ExitCode::SUCCESS)
}

fn read(clock: ClockId) -> u64 {
    card_clocks::nanoseconds(clock_gettime(clock))
}

/// `None`: the card went.
fn card_row((card, first): (CardClock, Reading)) -> Option<CardRow> {
    let last = card.read()?;
    let passed = |now: u64, before: u64| now as f64 - before as f64;
    let drift = passed(last.card_ns, first.card_ns) / passed(last.raw_ns, first.raw_ns) - 1.0;
    Some(CardRow {
        device: card.device,
        name: card.name,
        interfaces: card.interfaces,
        ahead_ns: i128::from(last.card_ns) - i128::from(last.real_ns),
        within_ns: last.within_ns,
        drift_ppm: drift * 1e6,
    })
}

fn row(clock: &str, now_ns: impl Fn() -> u64) -> Row {
    let (mut step_ns, mut longest_gap_ns) = (None, 0);
    let mut samples = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let began = now_ns();
        let mut last = began;
        for _ in 0..READS {
            let now = now_ns();
            let gap = now.saturating_sub(last);
            if gap > 0 {
                step_ns = Some(step_ns.map_or(gap, |least: u64| least.min(gap)));
                longest_gap_ns = longest_gap_ns.max(gap);
            }
            last = now;
        }
        samples.push((last - began) as f64 / f64::from(READS));
    }
    Row {
        clock: clock.to_owned(),
        read_ns: Summary::of(&samples).expect("invariant: there are runs"),
        step_ns,
        longest_gap_ns,
    }
}

impl Results {
    fn text(&self) -> String {
        let chosen = &self.chosen;
        let mut text = format!(
            "shunt ping's clock is {} ({})\n",
            chosen.source, chosen.reason
        );
        let drift = |name: &str, ppm: f64| {
            format!(
                "{name}: {ppm:+.2} ppm beside CLOCK_MONOTONIC_RAW over {} s\n",
                self.seconds
            )
        };
        text += &chosen
            .drift_ppm
            .map_or(String::new(), |ppm| drift(&chosen.source, ppm));
        text += &drift("CLOCK_MONOTONIC", self.monotonic_drift_ppm);
        for card in &self.cards {
            text += &drift(&card.device, card.drift_ppm);
            text += &format!(
                "{} ({} of {}): {:+} ns beside CLOCK_REALTIME, known within {} ns\n",
                card.device,
                card.name,
                card.interfaces.join(", "),
                card.ahead_ns,
                card.within_ns
            );
        }
        let mut table = Table::new(
            "clock | ns for each read | least | most | smallest step ns | longest gap µs",
        );
        for row in &self.clocks {
            let ns = |ns: f64| format!("{ns:.1}");
            table.row([
                row.clock.clone(),
                ns(row.read_ns.median),
                ns(row.read_ns.min),
                ns(row.read_ns.max),
                row.step_ns.map_or("-".to_owned(), |ns| ns.to_string()),
                format!("{:.1}", row.longest_gap_ns as f64 / 1e3),
            ]);
        }
        format!("{text}\n{}", table.render())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn steps_and_gaps_of_a_clock_are_found() {
        let reads = Cell::new(0_u64);
        let found = row("made", || {
            reads.set(reads.get() + 1);
            let n = reads.get();
            // It moves by 8 at every second read, and stood still for 1000 once.
            n / 2 * 8 + if n > 5000 { 1000 } else { 0 }
        });
        assert_eq!(found.step_ns, Some(8));
        assert!((1000..=1008).contains(&found.longest_gap_ns));
        assert_eq!(found.read_ns.samples.len(), RUNS);
    }
}
