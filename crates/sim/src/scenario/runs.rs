//! How often a scenario is run.

use serde::{Deserialize, Serialize};

/// Repetition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Runs {
    /// Seed of the first run; the others follow.
    pub seed: u64,
    /// Runs, each with another seed and background phase.
    pub replications: usize,
    /// More runs are made until the 95 % confidence interval of the mean response is this part of
    /// it on either side; 0 makes `replications` runs.
    pub until_percent: f64,
    /// No more runs than this.
    pub most: usize,
}

impl Default for Runs {
    fn default() -> Self {
        Self {
            seed: 1,
            replications: 8,
            until_percent: 0.0,
            most: 200,
        }
    }
}
