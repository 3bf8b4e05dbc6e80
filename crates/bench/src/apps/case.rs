//! One program under test, what it measures, and the samples collected.

use serde::Serialize;

use super::{
    context::Context,
    side::{Mode, Side},
};
use crate::{
    distance::Run,
    unit::{Better, number},
};

/// A program to be measured on both sides.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// What happens, in a few words.
    pub title: &'static str,
    /// Largest packet that the lab's cable passes in one piece, for both sides.
    pub segment_bytes: u32,
    /// The program under test.
    pub tested: &'static str,
    /// Programs that must be installed.
    pub tools: &'static [&'static str],
    /// Lets the program do its work once and checks the result; its time does not count.
    pub check: fn(&Context, Side) -> anyhow::Result<()>,
    pub sample: fn(&Context, Side) -> anyhow::Result<Vec<Sample>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Measure {
    pub name: &'static str,
    pub unit: &'static str,
    /// Which direction is good.
    pub better: Better,
}

/// One value of a quantity.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub measure: Measure,
    pub value: f64,
}

impl Sample {
    /// The value with its unit.
    pub fn text(&self) -> String {
        format!("{} {}", number(self.value), self.measure.unit)
    }
}

/// Everything that was measured of one case.
#[derive(Debug)]
pub struct Collected {
    pub title: &'static str,
    modes: Vec<(Side, Mode)>,
    /// With the round trip of a cache line between two processors, in nanoseconds ([`crate::distance::beside`]).
    samples: Vec<(Side, Sample, Option<f64>)>,
    failures: Vec<(Side, String)>,
}

impl Collected {
    pub fn new(case: &Case) -> Self {
        Self {
            title: case.title,
            modes: Vec::new(),
            samples: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Notes where a side's engine runs.
    pub fn runs(&mut self, side: Side, mode: Option<Mode>) {
        self.modes.extend(mode.map(|mode| (side, mode)));
    }

    /// Where it runs; `None` on the kernel.
    pub fn mode(&self, side: Side) -> Option<Mode> {
        let known = self.modes.iter().find(|(of, _)| *of == side);
        known.map(|(_, mode)| *mode)
    }

    /// Notes the result of the check.
    pub fn checked(&mut self, side: Side, result: anyhow::Result<()>) {
        if let Err(error) = result {
            self.failures.push((side, format!("{error:#}")));
        }
    }

    /// Notes the result of a run, beside which a cache line took so long between two processors.
    pub fn add(
        &mut self,
        side: Side,
        result: anyhow::Result<Vec<Sample>>,
        distance_ns: Option<f64>,
    ) {
        match result {
            Ok(samples) => {
                let samples = samples.into_iter();
                self.samples
                    .extend(samples.map(|sample| (side, sample, distance_ns)));
            }
            Err(error) => self.failures.push((side, format!("{error:#}"))),
        }
    }

    /// True where the side failed once.
    pub fn has_failed(&self, side: Side) -> bool {
        self.failures.iter().any(|(failed, _)| *failed == side)
    }

    /// The failures as text.
    pub fn failures(&self) -> Vec<String> {
        self.failures
            .iter()
            .map(|(side, error)| format!("{}: {side}: {error}", self.title))
            .collect()
    }

    /// The quantities, in the order of their first sample.
    pub fn measures(&self) -> Vec<Measure> {
        let mut measures: Vec<Measure> = Vec::new();
        for (_, sample, _) in &self.samples {
            if !measures.contains(&sample.measure) {
                measures.push(sample.measure);
            }
        }
        measures
    }

    /// The values of one quantity on one side.
    pub fn values(&self, side: Side, measure: Measure) -> Vec<f64> {
        let runs = self.runs_of(side, measure);
        runs.into_iter().map(|(value, _)| value).collect()
    }

    /// The same with how far the processors were from each other.
    pub fn runs_of(&self, side: Side, measure: Measure) -> Vec<Run> {
        let samples = self.samples.iter();
        let matching = samples.filter(|(of, sample, _)| *of == side && sample.measure == measure);
        matching
            .map(|(_, sample, distance_ns)| (sample.value, *distance_ns))
            .collect()
    }

    /// How far they were, in each run.
    pub fn distances_ns(&self) -> impl Iterator<Item = f64> {
        self.samples.iter().filter_map(|(_, _, ns)| *ns)
    }
}
