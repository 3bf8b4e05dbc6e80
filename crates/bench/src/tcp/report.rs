//! The table and the JSON: goodput and completion time of every combination beside the kernel's.

use serde::Serialize;

use super::{
    estimate::{Estimate, Ratio},
    fairness::Share,
    grid::{Cell, Combination, Grid, Stack},
    marking::Marked,
    schedule::{Done, describe},
};
use output::Table;

/// A ratio to the kernel from which on a cell counts as done as well as the kernel does it.
const AS_KERNEL: f64 = 0.95;
/// Shares of a bottleneck that count as fair.
const FAIR: std::ops::RangeInclusive<f64> = 0.4..=0.6;

#[derive(Debug, Serialize)]
pub struct Report {
    pub kernel: String,
    pub cores: usize,
    pub parameters: Vec<String>,
    pub engine_flags: Vec<&'static str>,
    pub grid: Grid,
    pub rows: Vec<Row>,
    pub fairness: Vec<Share>,
    pub marked: Vec<Marked>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
    pub failures: Vec<String>,
    /// Somebody interrupted: rows are missing or have fewer samples.
    pub interrupted: bool,
    pub duration_s: u64,
}

/// What of the table was measured, in its order.
pub fn rows(grid: &Grid, able: &[(String, Vec<Stack>)], done: &[Done]) -> Vec<Row> {
    let of_congestion = |(name, _): &(String, _)| {
        let cells = grid.cells().into_iter();
        let rows = cells.filter_map(|cell| Row::of(&cell, name, done));
        rows.collect::<Vec<_>>()
    };
    able.iter().flat_map(of_congestion).collect()
}

/// One cell with one congestion control.
#[derive(Debug, Serialize)]
pub struct Row {
    pub congestion: String,
    pub cell: Cell,
    pub bytes: u64,
    pub sides: Vec<Side>,
}

/// One combination in a cell.
#[derive(Debug, Serialize)]
pub struct Side {
    pub combination: Combination,
    pub goodput_mbit: Option<Estimate>,
    pub completion_s: Option<Estimate>,
    /// Goodput over that of kernel to kernel.
    pub ratio: Option<Ratio>,
    pub failed: usize,
}

impl Row {
    /// Sums up the transfers of one cell and congestion control.
    pub fn of(cell: &Cell, congestion: &str, done: &[Done]) -> Option<Self> {
        let mine: Vec<&Done> = done
            .iter()
            .filter(|done| done.job.cell == *cell && done.job.congestion == congestion)
            .collect();
        if mine.is_empty() {
            return None;
        }
        let sides = Combination::ALL
            .into_iter()
            .filter(|combination| mine.iter().any(|done| done.job.combination == *combination))
            .map(|combination| Side::of(combination, &mine))
            .collect();
        Some(Self {
            congestion: congestion.to_owned(),
            cell: *cell,
            bytes: cell.bytes(),
            sides,
        })
    }

    /// The transfers of one combination.
    pub fn side(&self, combination: Combination) -> Option<&Side> {
        self.sides
            .iter()
            .find(|side| side.combination == combination)
    }

    /// BBR is reported beside the kernel's, which is another version.
    pub fn is_judged(&self) -> bool {
        self.congestion != "bbr"
    }

    /// Sides of ours that stay below [`AS_KERNEL`], or have no result.
    fn below(&self) -> usize {
        let is_below = |side: &&Side| side.ratio.is_none_or(|ratio| ratio.value < AS_KERNEL);
        self.ours().filter(is_below).count()
    }

    /// What is compared with kernel to kernel.
    fn ours(&self) -> impl Iterator<Item = &Side> {
        let sides = self.sides.iter();
        sides.filter(|side| side.combination != Combination::ALL[0])
    }

    /// Sides of ours whose interval leaves open whether they reach [`AS_KERNEL`].
    fn undecided(&self) -> usize {
        self.ours().filter(|side| side.is_undecided()).count()
    }

    /// In one line, as it is said when the row is complete.
    pub fn line(&self) -> String {
        self.cells().join("  ")
    }

    /// The fields of the row of the table.
    fn cells(&self) -> [String; 9] {
        let goodput = |combination| match self.side(combination) {
            None => "-".to_owned(),
            Some(side) => side
                .goodput_mbit
                .as_ref()
                .map_or("failed".to_owned(), |own| {
                    format!("{} ±{:.0} %", three(own.mean), own.relative() * 100.0)
                }),
        };
        let ratio = |combination| match self.side(combination) {
            None => "-".to_owned(),
            Some(side) => side.ratio.map_or("failed".to_owned(), |ratio| {
                let below = if ratio.value < AS_KERNEL { " <" } else { "" };
                let open = if ratio.is_open(AS_KERNEL) { " ~" } else { "" };
                format!("{:.2} ±{:.2}{below}{open}", ratio.value, ratio.interval)
            }),
        };
        let mut seeds: Vec<String> = self
            .ours()
            .map(|side| side.transfers().to_string())
            .collect();
        if seeds.iter().all(|count| *count == seeds[0]) {
            seeds.truncate(1);
        }
        let seconds = |combination| {
            self.side(combination)
                .and_then(|side| side.completion_s.as_ref())
                .map_or("-".to_owned(), |own| three(own.mean))
        };
        let [kernel, sends, receives, both] = Combination::ALL;
        [
            format!(
                "{} {} Mbit/s {} ms {} %",
                self.congestion,
                self.cell.rate_mbit,
                self.cell.rtt_ms,
                self.cell.loss * 100.0
            ),
            seeds.join("/"),
            goodput(kernel),
            ratio(sends),
            ratio(receives),
            ratio(both),
            goodput(both),
            seconds(kernel),
            seconds(both),
        ]
    }
}

impl Side {
    /// How many were made, those that failed among them.
    pub fn transfers(&self) -> u64 {
        let right = self
            .goodput_mbit
            .as_ref()
            .map_or(0, |own| own.samples.len());
        (right + self.failed) as u64
    }

    /// Whether the ratio is not yet told from [`AS_KERNEL`].
    pub fn is_undecided(&self) -> bool {
        self.ratio.is_some_and(|ratio| ratio.is_open(AS_KERNEL))
    }

    fn of(combination: Combination, done: &[&Done]) -> Self {
        let mine: Vec<&&Done> = done
            .iter()
            .filter(|done| done.job.combination == combination)
            .collect();
        let right = || mine.iter().filter(|done| done.outcome.error.is_none());
        let goodput: Vec<f64> = right().map(|done| done.goodput_mbit()).collect();
        let seconds: Vec<f64> = right().map(|done| done.outcome.seconds).collect();
        // The cable of a seed loses the same frames whoever sends.
        let base_of = |seed| {
            let is_base = |done: &&&Done| {
                done.job.combination == Combination::ALL[0]
                    && done.job.seed == seed
                    && done.outcome.error.is_none()
            };
            done.iter().find(is_base).map(|done| done.goodput_mbit())
        };
        let pairs: Vec<(f64, f64)> = right()
            .filter_map(|own| Some((own.goodput_mbit(), base_of(own.job.seed)?)))
            .collect();
        Self {
            combination,
            goodput_mbit: Estimate::of(&goodput),
            completion_s: Estimate::of(&seconds),
            ratio: Ratio::paired(&pairs),
            failed: mine.len() - goodput.len(),
        }
    }
}

/// Transfers that failed, in words.
pub fn failures(done: &[Done]) -> Vec<String> {
    let failed = done.iter().filter_map(|done| {
        let error = done.outcome.error.as_ref()?;
        Some(format!("{}: {error}", describe(&done.job)))
    });
    failed.collect()
}

impl Report {
    /// The table and what belongs to it.
    pub fn text(&self) -> String {
        let mut table = Table::new(
            "cell | seeds | kernel to kernel | Shunt to kernel | kernel to Shunt | Shunt to Shunt | in Mbit/s | kernel s | Shunt s",
        );
        for row in &self.rows {
            table.row(row.cells());
        }
        let judged = || self.rows.iter().filter(|row| row.is_judged());
        let all: usize = judged().map(|row| row.sides.len().max(1) - 1).sum();
        let below: usize = judged().map(Row::below).sum();
        let open: usize = judged().map(Row::undecided).sum();
        let mut text = format!(
            "\nLinux {}, {} cores; a cable of TAPs, MTU 1500, half the round trip each way, losses both ways, the \
             buffer one round trip (at least 64 KiB; at a gigabit 512 KiB)\n\
             both kernels: {}; engines: {}\n\
             goodput from connect to the receiver's answer after the last byte; mean of {} seeds ({} of BBR, which is \
             only reported), 95 % interval; others as a ratio to kernel to kernel over the same seeds, < where below {AS_KERNEL}; \
             ~ where the interval reaches {AS_KERNEL}: such ratios, below or above, were given twice the seeds, {} at most, as far as nine minutes allowed\n\n{}\n\
             {below} of {all} ratios of Reno and CUBIC below {AS_KERNEL}, {open} not told from it by their interval; {} s\n",
            self.kernel,
            self.cores,
            self.parameters.join(", "),
            self.engine_flags.join(" "),
            self.grid.seeds,
            self.grid.seeds_reported,
            self.grid.seeds_most,
            table.render(),
            self.duration_s
        );
        if !self.fairness.is_empty() {
            text += &self.fairness_text();
        }
        if !self.marked.is_empty() {
            text += &self.marked_text();
        }
        if self.interrupted {
            text += "interrupted: what was not measured is missing\n";
        }
        for skipped in &self.skipped {
            text += &format!("skipped: {skipped}\n");
        }
        for failure in &self.failures {
            text += &format!("failed: {failure}\n");
        }
        text
    }

    fn marked_text(&self) -> String {
        let mut table = Table::new("DCTCP, Shunt to Shunt | marks from | Mbit/s | s");
        for marked in &self.marked {
            let shown = |own: &Option<Estimate>| {
                own.as_ref().map_or("failed".to_owned(), |own| {
                    format!("{} ±{:.0} %", three(own.mean), own.relative() * 100.0)
                })
            };
            table.row([
                format!("{} Mbit/s {} ms", marked.cell.rate_mbit, marked.cell.rtt_ms),
                format!("{} KiB", marked.cell.ecn_bytes.unwrap_or(0) / 1024),
                shown(&marked.goodput_mbit),
                shown(&marked.completion_s),
            ]);
        }
        let failures = self.marked.iter().flat_map(|marked| &marked.failures);
        let failures: String = failures.map(|why| format!("failed: {why}\n")).collect();
        format!("\n{}\n{failures}", table.render())
    }

    fn fairness_text(&self) -> String {
        let mut table = Table::new("two flows share | Shunt's share | together Mbit/s");
        for share in &self.fairness {
            let estimate = |estimate: &Option<Estimate>, digits: usize| match estimate {
                None => "failed".to_owned(),
                Some(own) => format!("{:.digits$} ±{:.digits$}", own.mean, own.interval),
            };
            let mark = match &share.shunt {
                Some(own) if !FAIR.contains(&own.mean) => " <",
                _ => "",
            };
            table.row([
                format!(
                    "{} {} Mbit/s {} ms",
                    share.congestion, share.cell.rate_mbit, share.cell.rtt_ms
                ),
                estimate(&share.shunt, 2) + mark,
                estimate(&share.together_mbit, 1),
            ]);
        }
        format!(
            "\none flow of the kernel's and one of Shunt's, both to the other kernel; fair is {} to {}\n\n{}\n",
            FAIR.start(),
            FAIR.end(),
            table.render()
        )
    }

    /// Whether some transfer failed.
    pub fn failed(&self) -> bool {
        let unfair = self.fairness.iter().any(|share| !share.failures.is_empty());
        let unmarked = self.marked.iter().any(|marked| !marked.failures.is_empty());
        !self.failures.is_empty() || unfair || unmarked
    }

    /// Whether every judged ratio is at least [`AS_KERNEL`], and every share of a bottleneck a fair one.
    pub fn is_as_kernel(&self) -> bool {
        let fair = |share: &Share| {
            share
                .shunt
                .as_ref()
                .is_some_and(|own| FAIR.contains(&own.mean))
        };
        self.rows
            .iter()
            .filter(|row| row.is_judged())
            .all(|row| row.below() == 0)
            && self.fairness.iter().all(fair)
    }
}

/// Three digits that count.
fn three(value: f64) -> String {
    let digits = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}
