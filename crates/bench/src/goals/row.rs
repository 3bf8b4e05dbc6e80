//! A row of the table: a quantity of one way of running a program beside the same of another, and the goal.

use serde::Serialize;

use super::samples::Samples;
use crate::{
    apps::case::{Better, number},
    statistics::Summary,
};

/// Where the values of a row come from: a setup by its key, and one of the quantities it reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Key of the setup.
    pub setup: &'static str,
    /// Name of the quantity.
    pub quantity: &'static str,
}

/// Names a [`Source`].
pub const fn from(setup: &'static str, quantity: &'static str) -> Source {
    Source { setup, quantity }
}

/// What is to be reached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Shunt's value over the kernel's.
    RatioAtLeast(f64),
    /// Shunt's value over the kernel's.
    RatioAtMost(f64),
    /// Shunt's value itself.
    ValueAtMost(f64),
}

/// One row before it is measured.
#[derive(Debug, Clone)]
pub struct Row {
    /// What is measured, in a few words.
    pub what: &'static str,
    /// In which unit.
    pub unit: &'static str,
    /// Which direction is good.
    pub better: Better,
    /// What it is compared with; None for a value of Shunt alone.
    pub kernel: Option<Source>,
    /// Shunt's values.
    pub shunt: Source,
    /// What is to be reached, if anything was promised.
    pub goal: Option<Goal>,
}

/// One row with what was reached.
#[derive(Debug, Serialize)]
pub struct Reached {
    what: &'static str,
    unit: &'static str,
    better: Better,
    kernel: Option<Summary>,
    shunt: Option<Summary>,
    /// Shunt's value over the kernel's of the same run, of each run.
    ratio: Option<Summary>,
    goal: Option<Goal>,
    /// Whether the goal was reached; None where there is no goal or no value.
    met: Option<bool>,
    /// Why there are no values.
    missing: Vec<String>,
}

impl Reached {
    /// Sums up the samples of a row.
    pub fn of(row: &Row, samples: &Samples) -> Self {
        let values = |source: Source| samples.values(source);
        let shunt = values(row.shunt);
        let kernel = row.kernel.map(values);
        let ratio_in = |(run, kernel): &(u32, f64)| {
            let (_, shunt) = shunt.iter().find(|(other, _)| other == run)?;
            Some(shunt / kernel)
        };
        let ratios: Vec<f64> = kernel.iter().flatten().filter_map(ratio_in).collect();
        let summary = |values: &[(u32, f64)]| {
            let values: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
            Summary::of(&values)
        };
        let ratio = Summary::of(&ratios);
        let shunt = summary(&shunt);
        let met = row.goal.and_then(|goal| {
            let ratio = ratio.as_ref().map(|ratio| ratio.median);
            Some(match goal {
                Goal::RatioAtLeast(least) => ratio? >= least,
                Goal::RatioAtMost(most) => ratio? <= most,
                Goal::ValueAtMost(most) => shunt.as_ref()?.median <= most,
            })
        });
        let sources = row.kernel.into_iter().chain([row.shunt]);
        let missing = sources.filter_map(|source| samples.why_missing(source.setup));
        Self {
            what: row.what,
            unit: row.unit,
            better: row.better,
            kernel: kernel.as_deref().and_then(summary),
            shunt,
            ratio,
            goal: row.goal,
            met,
            missing: missing.map(str::to_owned).collect(),
        }
    }

    /// The cells of the printed table.
    pub fn cells(&self) -> [String; 10] {
        let dash = || "-".to_owned();
        let median =
            |side: &Option<Summary>| side.as_ref().map_or_else(dash, |side| number(side.median));
        let spread = |side: &Option<Summary>| {
            let percent = |side: &Summary| format!("{:.0} %", side.spread() * 100.0);
            side.as_ref().map_or_else(dash, percent)
        };
        let ratio = self.ratio.as_ref();
        let goal = match self.goal {
            Some(Goal::RatioAtLeast(least)) => format!(">= {least:.2}"),
            Some(Goal::RatioAtMost(most)) => format!("<= {most:.2}"),
            Some(Goal::ValueAtMost(most)) => format!("<= {} {}", number(most), self.unit),
            None => dash(),
        };
        let verdict = match self.met {
            Some(true) => "met",
            Some(false) => "missed",
            None if !self.missing.is_empty() => "not measured",
            None => "-",
        };
        let runs = self.shunt.as_ref().map_or(0, |side| side.samples.len());
        [
            self.what.to_owned(),
            self.unit.to_owned(),
            median(&self.kernel),
            spread(&self.kernel),
            median(&self.shunt),
            spread(&self.shunt),
            ratio.map_or_else(dash, |ratio| format!("{:.2}", ratio.median)),
            goal,
            verdict.to_owned(),
            runs.to_string(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Row = Row {
        what: "round trip",
        unit: "µs",
        better: Better::Lower,
        kernel: Some(from("kernel", "p50")),
        shunt: from("shunt", "p50"),
        goal: Some(Goal::RatioAtMost(0.5)),
    };

    fn samples(kernel: &[f64], shunt: &[f64]) -> Samples {
        let mut samples = Samples::default();
        for (setup, values) in [("kernel", kernel), ("shunt", shunt)] {
            for (run, value) in (0..).zip(values) {
                samples.add(setup, run, vec![("p50", *value)]);
            }
        }
        samples
    }

    #[test]
    fn the_ratio_is_the_median_of_the_ratios_within_runs() {
        // The machine was twice as slow in the second run, for both.
        let reached = Reached::of(&ROW, &samples(&[10.0, 20.0, 10.0], &[4.0, 8.0, 6.0]));
        let ratio = reached.ratio.as_ref().unwrap();
        assert!((ratio.median - 0.4).abs() < 1e-9 && (ratio.max - 0.6).abs() < 1e-9);
        assert_eq!(reached.met, Some(true));
        assert_eq!(reached.cells()[8], "met");
    }

    #[test]
    fn a_goal_that_is_missed_is_said_and_one_without_values_is_not_judged() {
        let missed = Reached::of(&ROW, &samples(&[10.0], &[6.0]));
        assert_eq!(missed.met, Some(false));
        let mut none = samples(&[10.0], &[]);
        none.skip("shunt", "no such driver".to_owned());
        let none = Reached::of(&ROW, &none);
        assert_eq!((none.met, none.cells()[8].as_str()), (None, "not measured"));
        assert_eq!(none.missing, ["no such driver"]);
    }
}
