//! How often a scenario is run.

use serde::{Deserialize, Serialize};

table! {
    /// Repetition.
    Runs in "runs." {
        /// Seed of the first run; the others follow.
        seed: u64 = 1;
        /// Runs, each with another seed and background phase.
        replications: usize = 8, count(1, 100_000);
        /// More runs are made until the 95 % confidence interval of the mean response is this part of
        /// it on either side; 0 makes `replications` runs.
        until_percent: f64 = 0.0, not_negative;
        /// No more runs than this.
        most: usize = 200, count(1, 100_000);
    }
}
