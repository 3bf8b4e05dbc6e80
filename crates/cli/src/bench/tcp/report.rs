//! The table and the JSON: goodput and completion time of every combination beside the kernel's.

use serde::Serialize;

use super::{
    estimate::{Estimate, Ratio},
    fairness::Share,
    grid::{Cell, Combination, Grid},
    schedule::{Done, describe},
};
use crate::output::Table;

/// What Shunt's ratio to the kernel shall reach in every cell.
const GOAL: f64 = 0.95;
/// Between which Shunt's share of a bottleneck shall lie.
const FAIR: std::ops::RangeInclusive<f64> = 0.4..=0.6;

/// The whole result.
#[derive(Debug, Serialize)]
pub struct Report {
    pub kernel: String,
    pub cores: usize,
    pub parameters: Vec<String>,
    pub engine_flags: Vec<&'static str>,
    pub grid: Grid,
    pub rows: Vec<Row>,
    pub fairness: Vec<Share>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
    pub failures: Vec<String>,
    pub duration_s: u64,
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
        let mut sides: Vec<Side> = Combination::ALL
            .into_iter()
            .filter(|combination| mine.iter().any(|done| done.job.combination == *combination))
            .map(|combination| Side::of(combination, &mine))
            .collect();
        let base = sides
            .iter()
            .find(|side| side.combination == Combination::ALL[0])
            .and_then(|side| side.goodput_mbit.clone());
        if let Some(base) = base {
            for side in &mut sides {
                side.ratio = side.goodput_mbit.as_ref().map(|own| own.over(&base));
            }
        }
        Some(Self {
            congestion: congestion.to_owned(),
            cell: *cell,
            bytes: cell.bytes(),
            sides,
        })
    }

    fn side(&self, combination: Combination) -> Option<&Side> {
        self.sides
            .iter()
            .find(|side| side.combination == combination)
    }

    /// Sides of ours that stay below the goal, or have no result.
    fn below(&self) -> usize {
        let ours = self
            .sides
            .iter()
            .filter(|side| side.combination != Combination::ALL[0]);
        ours.filter(|side| side.ratio.is_none_or(|ratio| ratio.value < GOAL))
            .count()
    }

    fn add_to(&self, table: &mut Table) {
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
                let mark = if ratio.value < GOAL { " <" } else { "" };
                format!("{:.2} ±{:.2}{mark}", ratio.value, ratio.interval)
            }),
        };
        let seconds = |combination| {
            self.side(combination)
                .and_then(|side| side.completion_s.as_ref())
                .map_or("-".to_owned(), |own| three(own.mean))
        };
        let [kernel, sends, receives, both] = Combination::ALL;
        table.row([
            format!(
                "{} {} Mbit/s {} ms {} %",
                self.congestion,
                self.cell.rate_mbit,
                self.cell.rtt_ms,
                self.cell.loss * 100.0
            ),
            goodput(kernel),
            ratio(sends),
            ratio(receives),
            ratio(both),
            goodput(both),
            seconds(kernel),
            seconds(both),
        ]);
    }
}

impl Side {
    fn of(combination: Combination, done: &[&Done]) -> Self {
        let mine: Vec<&&Done> = done
            .iter()
            .filter(|done| done.job.combination == combination)
            .collect();
        let right = || mine.iter().filter(|done| done.outcome.error.is_none());
        let goodput: Vec<f64> = right()
            .map(|done| done.outcome.bytes as f64 * 8.0 / done.outcome.seconds / 1e6)
            .collect();
        let seconds: Vec<f64> = right().map(|done| done.outcome.seconds).collect();
        Self {
            combination,
            goodput_mbit: Estimate::of(&goodput),
            completion_s: Estimate::of(&seconds),
            ratio: None,
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
        let mut table = Table::new([
            "cell",
            "kernel to kernel",
            "Shunt to kernel",
            "kernel to Shunt",
            "Shunt to Shunt",
            "in Mbit/s",
            "kernel s",
            "Shunt s",
        ]);
        for row in &self.rows {
            row.add_to(&mut table);
        }
        let judged: usize = self.rows.iter().map(|row| row.sides.len().max(1) - 1).sum();
        let below: usize = self.rows.iter().map(Row::below).sum();
        let mut text = format!(
            "\nLinux {}, {} cores; a cable of TAPs, MTU 1500, half the round trip each way, losses both ways, the \
             buffer one round trip (at least 64 KiB; at a gigabit 512 KiB)\n\
             both kernels: {}; engines: {}\n\
             goodput from connect to the receiver's answer after the last byte; mean of {} seeds, 95 % interval; \
             others as a ratio to kernel to kernel, < where below {GOAL}\n\n{}\n\
             {below} of {judged} ratios below {GOAL}; {} s\n",
            self.kernel,
            self.cores,
            self.parameters.join(", "),
            self.engine_flags.join(" "),
            self.grid.seeds,
            table.render(),
            self.duration_s
        );
        if !self.fairness.is_empty() {
            text += &self.fairness_text();
        }
        for skipped in &self.skipped {
            text += &format!("skipped: {skipped}\n");
        }
        for failure in &self.failures {
            text += &format!("failed: {failure}\n");
        }
        text
    }

    fn fairness_text(&self) -> String {
        let mut table = Table::new(["two flows share", "Shunt's share", "together Mbit/s"]);
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
        !self.failures.is_empty() || unfair
    }

    /// Whether every goal is reached.
    pub fn reaches_goals(&self) -> bool {
        let fair = |share: &Share| {
            share
                .shunt
                .as_ref()
                .is_some_and(|own| FAIR.contains(&own.mean))
        };
        self.rows
            .iter()
            .filter(|row| row.congestion != "bbr")
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
