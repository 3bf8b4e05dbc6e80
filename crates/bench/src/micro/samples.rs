//! What was measured so far: values by setup, quantity and run, and what could not be measured.

use crate::distance::Run;

/// Values of one run of a setup, by quantity.
pub type Values = Vec<(&'static str, f64)>;

#[derive(Debug, Default)]
pub struct Samples {
    /// With the round trip of a cache line between two processors, in nanoseconds ([`crate::distance::beside`]).
    runs: Vec<(&'static str, u32, Values, Option<f64>)>,
    failed: Vec<(&'static str, String)>,
    skipped: Vec<(&'static str, String)>,
}

impl Samples {
    pub fn add(&mut self, setup: &'static str, run: u32, values: Values, distance_ns: Option<f64>) {
        self.runs.push((setup, run, values, distance_ns));
    }

    /// A run went wrong: the setup is not tried again, and what it has measured does not count.
    pub fn fail(&mut self, setup: &'static str, why: String) {
        self.failed.push((setup, why));
    }

    /// The setup cannot be measured on this machine.
    pub fn skip(&mut self, setup: &'static str, why: String) {
        self.skipped.push((setup, why));
    }

    /// Whether there is no use in trying (again).
    pub fn is_over(&self, setup: &str) -> bool {
        self.why_missing(setup).is_some()
    }

    /// Why a setup has no values.
    pub fn why_missing(&self, setup: &str) -> Option<&str> {
        let mut all = self.failed.iter().chain(&self.skipped);
        let (_, why) = all.find(|(key, _)| *key == setup)?;
        Some(why)
    }

    /// The values of a quantity, with the number of their run.
    pub fn values(&self, setup: &str, quantity: &str) -> Vec<(u32, f64)> {
        let all = self.all_of(setup, quantity);
        all.map(|(number, run)| (number, run.0)).collect()
    }

    /// The same with how far the processors were from each other.
    pub fn runs_of(&self, setup: &str, quantity: &str) -> Vec<Run> {
        let all = self.all_of(setup, quantity);
        all.map(|(_, run)| run).collect()
    }

    fn all_of(&self, setup: &str, quantity: &str) -> impl Iterator<Item = (u32, Run)> {
        let is_over = self.is_over(setup);
        let runs = self.runs.iter();
        let runs = runs.filter(move |(key, ..)| *key == setup && !is_over);
        runs.filter_map(move |(_, number, values, distance_ns)| {
            let (_, value) = values.iter().find(|(name, _)| *name == quantity)?;
            Some((*number, (*value, *distance_ns)))
        })
    }

    /// How far they were, beside each run of all setups.
    pub fn distances_ns(&self) -> impl Iterator<Item = f64> {
        self.runs.iter().filter_map(|(.., ns)| *ns)
    }

    /// What went wrong.
    pub fn failures(&self) -> impl Iterator<Item = &str> {
        self.failed.iter().map(|(_, why)| why.as_str())
    }

    /// What this machine cannot measure.
    pub fn skips(&self) -> impl Iterator<Item = &str> {
        self.skipped.iter().map(|(_, why)| why.as_str())
    }
}
