//! A row of the table: a quantity of one way of running a program beside the same of another.

use serde::Serialize;

use super::samples::Samples;
use crate::{
    distance::{self, ByDistance},
    unit::{Better, number, ratio_figure},
};
use output::columns;
use statistics::{Interval, Summary, median_ratio};

/// One row before it is measured.
#[derive(Debug, Clone)]
pub struct Row {
    /// What is measured, in a few words; indented where it is a part of the row above.
    pub what: String,
    pub unit: &'static str,
    /// Which direction is good.
    pub better: Better,
    /// The setup that it is compared with, by its key; None for a value of Shunt alone.
    pub kernel: Option<&'static str>,
    /// The setup of Shunt.
    pub shunt: &'static str,
    /// Which of the quantities that setups report.
    pub quantity: &'static str,
}

impl Row {
    /// Those of a table with a line for each: what, unit and the better direction, setup of the kernel or `-`, setup of Shunt,
    /// quantities. Further quantities have rows below, with their names.
    pub fn all(table: &'static str) -> Vec<Self> {
        let mut rows = Vec::new();
        for [what, unit, kernel, shunt, quantities] in columns(table) {
            let (unit, better) = match unit.strip_suffix(" ↓") {
                Some(unit) => (unit, Better::Lower),
                None => (unit.trim_end_matches(" ↑"), Better::Higher),
            };
            let mut what = what.to_owned();
            for quantity in quantities.split_ascii_whitespace() {
                rows.push(Self {
                    what: std::mem::take(&mut what),
                    unit,
                    better,
                    kernel: (kernel != "-").then_some(kernel),
                    shunt,
                    quantity,
                });
            }
            let named = rows.iter_mut().filter(|row| row.what.is_empty());
            named.for_each(|row| row.what = format!("  {}", row.quantity));
        }
        rows
    }
}

/// One row with what was measured.
#[derive(Debug, Serialize)]
pub struct Measured {
    pub what: String,
    pub unit: &'static str,
    pub better: Better,
    pub kernel: Option<Summary>,
    pub shunt: Option<Summary>,
    /// Shunt's value over the kernel's of the same run, of each run.
    pub ratio: Option<Summary>,
    /// The interval that holds the median of the ratios; None with fewer than three runs.
    pub interval: Option<Interval>,
    /// The same of near and of far processors, where they were moved between runs.
    pub by_distance: Vec<ByDistance>,
    /// Why there are no values.
    pub missing: Vec<String>,
}

impl Measured {
    /// Sums up the samples of a row. `limit_ns`: what is between near and far processors, where they were moved.
    pub fn of(row: &Row, samples: &Samples, limit_ns: Option<f64>) -> Self {
        let values = |setup| samples.values(setup, row.quantity);
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
        let runs = |setup| samples.runs_of(setup, row.quantity);
        let by_distance = limit_ns.map_or_else(Vec::new, |limit_ns| {
            let kernel = row.kernel.map(runs).unwrap_or_default();
            distance::split(&kernel, &runs(row.shunt), limit_ns)
        });
        let sources = row.kernel.into_iter().chain([row.shunt]);
        let reasons = sources.filter_map(|setup| samples.why_missing(setup));
        Self {
            what: row.what.clone(),
            unit: row.unit,
            better: row.better,
            kernel: kernel.as_deref().and_then(summary),
            shunt,
            ratio,
            interval: interval(&ratios),
            by_distance,
            missing: each_once(reasons),
        }
    }

    /// Whether the runs differ by more than the two sides do.
    pub fn is_in_noise(&self) -> bool {
        self.interval
            .is_some_and(|interval| interval.low <= 1.0 && interval.high >= 1.0)
    }

    /// The cells of the printed table.
    pub fn cells(&self) -> [String; 8] {
        let dash = || "-".to_owned();
        let median =
            |side: &Option<Summary>| side.as_ref().map_or_else(dash, |side| number(side.median));
        let spread = |side: &Option<Summary>| {
            let percent = |side: &Summary| format!("{:.0} %", side.spread() * 100.0);
            side.as_ref().map_or_else(dash, percent)
        };
        let ratio = self.ratio.as_ref();
        let runs = self.shunt.as_ref().map_or(0, |side| side.samples.len());
        [
            self.what.clone(),
            self.unit.to_owned(),
            median(&self.kernel),
            spread(&self.kernel),
            median(&self.shunt),
            spread(&self.shunt),
            ratio.map_or_else(dash, |ratio| {
                let in_noise = if self.is_in_noise() { " ~" } else { "" };
                format!("{}{in_noise}", ratio_figure(ratio.median))
            }),
            runs.to_string(),
        ]
    }
}

/// Reasons without those that came before: several setups lack the same program.
pub fn each_once<'r>(reasons: impl Iterator<Item = &'r str>) -> Vec<String> {
    let mut once: Vec<String> = Vec::new();
    for reason in reasons {
        if once.iter().all(|known| known != reason) {
            once.push(reason.to_owned());
        }
    }
    once
}

/// The interval that holds the median of the ratios of runs.
pub fn interval(ratios: &[f64]) -> Option<Interval> {
    median_ratio(ratios, &vec![1.0; ratios.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row::all("round trip | µs ↓ | kernel | shunt | p50").remove(0)
    }

    fn samples(kernel: &[f64], shunt: &[f64]) -> Samples {
        let mut samples = Samples::default();
        for (setup, values) in [("kernel", kernel), ("shunt", shunt)] {
            for (run, value) in (0..).zip(values) {
                samples.add(setup, run, vec![("p50", *value)], None);
            }
        }
        samples
    }

    #[test]
    fn the_ratio_is_the_median_of_the_ratios_within_runs() {
        // The machine was twice as slow in the second run, for both.
        let measured = Measured::of(
            &row(),
            &samples(&[10.0, 20.0, 10.0], &[4.0, 8.0, 6.0]),
            None,
        );
        let ratio = measured.ratio.as_ref().unwrap();
        assert!((ratio.median - 0.4).abs() < 1e-9 && (ratio.max - 0.6).abs() < 1e-9);
        assert_eq!(measured.cells()[6], "0.40");
    }

    #[test]
    fn a_difference_that_is_smaller_than_the_noise_is_marked() {
        let measured = Measured::of(
            &row(),
            &samples(&[10.0, 12.0, 9.0], &[11.0, 9.0, 10.0]),
            None,
        );
        assert!(measured.is_in_noise());
        assert!(
            measured.cells()[6].ends_with(" ~"),
            "{:?}",
            measured.cells()
        );
        // Two runs do not tell how runs differ.
        let measured = Measured::of(&row(), &samples(&[10.0, 12.0], &[11.0, 9.0]), None);
        assert!(measured.interval.is_none() && !measured.is_in_noise());
    }

    #[test]
    fn near_and_far_runs_are_summed_up_apart_where_processors_were_moved() {
        let mut samples = Samples::default();
        let seen = [
            ("kernel", 10.0, 60.0),
            ("shunt", 5.0, 64.0),
            ("kernel", 20.0, 380.0),
        ];
        for (run, (setup, value, ns)) in (0..).zip(seen) {
            samples.add(setup, run, vec![("p50", value)], Some(ns));
        }
        let parts = |limit_ns| Measured::of(&row(), &samples, limit_ns).by_distance;
        assert_eq!(parts(None).len(), 0);
        let text = distance::text([("row".to_owned(), &parts(Some(150.0))[..])].into_iter());
        assert!(
            text.contains("60 to 64") && text.contains("0.50") && !text.contains("380"),
            "{text}"
        );
    }

    #[test]
    fn a_row_without_values_says_why() {
        let mut none = samples(&[10.0], &[]);
        none.skip("shunt", "no such driver".to_owned());
        let none = Measured::of(&row(), &none, None);
        assert_eq!(
            (none.cells()[6].as_str(), none.cells()[7].as_str()),
            ("-", "0")
        );
        assert_eq!(none.missing, ["no such driver"]);
        let mut both = samples(&[], &[]);
        for setup in ["kernel", "shunt"] {
            both.skip(setup, "not installed".to_owned());
        }
        assert_eq!(Measured::of(&row(), &both, None).missing, ["not installed"]);
        assert_eq!(each_once(both.skips()), ["not installed"]);
    }
}
