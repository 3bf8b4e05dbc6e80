//! What a row says of a prediction: that it holds, that it missed, or that nobody knows. Nobody knows where the model said so
//! before, and where the runs of the measurement are further apart than the bound: such a row can neither hold nor miss it. One that
//! lies outside of the bound around every value that the median may have has missed, however far apart the runs are.

use statistics::Summary;

use super::{BOUND, Row};

/// What a row says of its prediction.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It is within the bound.
    Holds,
    Missed,
    /// Nothing can be said, and why.
    NotKnown(String),
}

impl Verdict {
    /// For a table.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Missed => "MISSED",
            Self::NotKnown(_) => "not known",
        }
    }
}

/// The values between which the median of such runs lies with a probability of 95 %, whatever their distribution: so many of the
/// least and of the most are left out as the binomial distribution of one half allows. With fewer than six runs it is the least and the most.
pub fn median_between(runs: &Summary) -> [f64; 2] {
    let mut sorted = runs.samples.clone();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let (mut below, mut ways) = (0.0, 1.0);
    let mut left_out = 0;
    for k in 0..count / 2 {
        below += ways / 2f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
        if 2.0 * below > 0.05 {
            break;
        }
        left_out = k;
        ways *= (count - k) as f64 / (k + 1) as f64;
    }
    let at = |index: usize| sorted.get(index).copied().unwrap_or(runs.median);
    [at(left_out), at(count.saturating_sub(1 + left_out))]
}

/// How wide that is, as a part of the median.
pub fn width(runs: &Summary) -> f64 {
    let [low, high] = median_between(runs);
    (high - low) / runs.median.max(f64::MIN_POSITIVE)
}

impl Row {
    /// What the row says.
    pub fn verdict(&self) -> Verdict {
        let Some(predicted) = self.predicted else {
            let why = self.not_known.clone().unwrap_or_default();
            return Verdict::NotKnown(why);
        };
        let capacity = ("rate", predicted.rate_per_s, &self.rate_per_s);
        let mean = ("mean", predicted.mean_us, &self.mean_us);
        let judged = [Some(mean), self.saturated.then_some(capacity)];
        let mut unknown = None;
        for (what, predicted, runs) in judged.into_iter().flatten() {
            let [low, high] = median_between(runs);
            let is_outside = predicted < low * (1.0 - BOUND) || predicted > high * (1.0 + BOUND);
            let is_wide = width(runs) > BOUND;
            if is_outside || (!is_wide && (predicted / runs.median - 1.0).abs() > BOUND) {
                return Verdict::Missed;
            }
            if is_wide {
                let why = format!(
                    "{} runs differ too much: the median of their {what} is known to {:.0} % only (the bound is {:.0} %)",
                    runs.samples.len(),
                    100.0 * width(runs),
                    100.0 * BOUND
                );
                unknown.get_or_insert(why);
            }
        }
        unknown.map_or(Verdict::Holds, Verdict::NotKnown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: &[f64]) -> Summary {
        Summary::of(samples).unwrap()
    }

    #[test]
    fn the_median_lies_between_the_runs_that_the_binomial_distribution_names() {
        let runs = |count: u32| of(&(1..=count).map(f64::from).collect::<Vec<_>>());
        assert_eq!(median_between(&runs(3)), [1.0, 3.0]);
        assert_eq!(median_between(&runs(5)), [1.0, 5.0]);
        // Order statistics of tables: 1 and 8 of 8, 2 and 8 of 9, 2 and 10 of 11, 6 and 15 of 20.
        assert_eq!(median_between(&runs(8)), [1.0, 8.0]);
        assert_eq!(median_between(&runs(9)), [2.0, 8.0]);
        assert_eq!(median_between(&runs(11)), [2.0, 10.0]);
        assert_eq!(median_between(&runs(20)), [6.0, 15.0]);
        assert!((width(&of(&[95.0, 100.0, 105.0])) - 0.1).abs() < 1e-9);
    }
}
