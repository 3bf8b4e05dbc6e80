//! What was measured so far: values by setup, quantity and run, and what could not be measured.

/// Values of one run of a setup, by quantity.
pub type Values = Vec<(&'static str, f64)>;

#[derive(Debug, Default)]
pub struct Samples {
    runs: Vec<(&'static str, u32, Values)>,
    failed: Vec<(&'static str, String)>,
    skipped: Vec<(&'static str, String)>,
}

impl Samples {
    pub fn add(&mut self, setup: &'static str, run: u32, values: Values) {
        self.runs.push((setup, run, values));
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
        if self.is_over(setup) {
            return Vec::new();
        }
        let runs = self.runs.iter().filter(|(key, ..)| *key == setup);
        let value = |values: &Values| {
            let found = values.iter().find(|(name, _)| *name == quantity);
            found.map(|(_, value)| *value)
        };
        runs.filter_map(|(_, run, values)| Some((*run, value(values)?)))
            .collect()
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
