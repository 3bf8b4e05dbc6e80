//! A distribution of times: exact mean, deviation, least and greatest, and percentiles out of a histogram of constant
//! size.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Times, times::LONGEST};

/// Takes times in constant memory.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    times: Times,
    least_ns: Option<u64>,
    most_ns: u64,
    mean_ns: f64,
    /// Sum of the squares of the distances from the mean (Welford 1962).
    squares: f64,
}

/// A percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// Per cent of the times that do not exceed it.
    pub percent: f64,
    /// The time; its error is below a thousandth.
    pub us: f64,
}

/// What is told of the times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// How many times.
    pub count: u64,
    /// The least.
    pub min_us: f64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Standard deviation of the sample; none of a single time.
    pub deviation_us: Option<f64>,
    /// The greatest.
    pub max_us: f64,
    /// Those of [`PERCENTS`] above which at least one of the times lies.
    pub percentiles: Vec<Percentile>,
    /// Upper ends of the histogram's cells, in nanoseconds, with the number of times in each.
    pub histogram: Vec<(u64, u64)>,
}

const LONGEST_NS: u64 = LONGEST.as_secs() * 1_000_000_000;

/// Percentiles that are told.
pub const PERCENTS: [f64; 8] = [50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999];

impl Recorder {
    /// One more.
    pub fn add(&mut self, ns: u64) {
        self.times.add(Duration::from_nanos(ns));
        self.least_ns = Some(self.least_ns.map_or(ns, |least| least.min(ns)));
        self.most_ns = self.most_ns.max(ns);
        let distance = ns as f64 - self.mean_ns;
        self.mean_ns += distance / self.times.count() as f64;
        self.squares += distance * (ns as f64 - self.mean_ns);
    }

    /// Adds those of another (Chan, Golub and LeVeque 1979).
    pub fn merge(&mut self, other: &Self) {
        let Some(least_ns) = other.least_ns else {
            return;
        };
        let (own, more) = (self.count() as f64, other.count() as f64);
        let distance = other.mean_ns - self.mean_ns;
        self.mean_ns += distance * more / (own + more);
        self.squares += other.squares + distance * distance * own * more / (own + more);
        self.least_ns = Some(self.least_ns.map_or(least_ns, |least| least.min(least_ns)));
        self.most_ns = self.most_ns.max(other.most_ns);
        self.times.merge(&other.times);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.times.count()
    }

    /// What is told of them; none where there are none.
    pub fn distribution(&self) -> Option<Distribution> {
        let count = self.times.count();
        let least_ns = self.least_ns?;
        let told = |percent: &f64| {
            count as f64 * (100.0 - percent) / 100.0 >= 1.0 - 1e-6 || *percent <= 50.0
        };
        let percentile = |percent: f64| {
            let us = self.times.percentile_us(percent)?;
            // Times beyond the histogram's end are in its last cell: which ones is not known any more.
            let is_known = self.most_ns <= LONGEST_NS || us * 1e3 < LONGEST_NS as f64 * 0.999;
            if !is_known {
                return None;
            }
            // A cell's upper end may lie above the greatest time of all.
            Some(Percentile {
                percent,
                us: us.min(self.most_ns as f64 / 1e3),
            })
        };
        Some(Distribution {
            count,
            min_us: least_ns as f64 / 1e3,
            mean_us: self.mean_ns / 1e3,
            deviation_us: (count > 1).then(|| (self.squares / (count - 1) as f64).sqrt() / 1e3),
            max_us: self.most_ns as f64 / 1e3,
            percentiles: PERCENTS
                .into_iter()
                .filter(told)
                .filter_map(percentile)
                .collect(),
            histogram: self.times.cells(),
        })
    }
}

impl Distribution {
    /// The median.
    pub fn median_us(&self) -> Option<f64> {
        self.percentile_us(50.0)
    }

    /// A percentile that is told.
    pub fn percentile_us(&self, percent: f64) -> Option<f64> {
        let same = |told: &&Percentile| (told.percent - percent).abs() < 1e-9;
        self.percentiles.iter().find(same).map(|told| told.us)
    }

    /// Standard error of the median: half of the distance between the times whose ranks lie one deviation of the binomial
    /// distribution, half the root of the count, below and above it; at least what the histogram's cells may be off. None
    /// of fewer than four times.
    pub fn median_error_us(&self) -> Option<f64> {
        if self.count < 4 {
            return None;
        }
        let (half, away) = (self.count as f64 / 2.0, (self.count as f64).sqrt() / 2.0);
        let at_rank = |rank: f64| {
            let mut before = 0.0;
            let cell = self.histogram.iter().find(|(_, count)| {
                before += *count as f64;
                before >= rank
            });
            cell.map(|(ns, _)| *ns as f64 / 1e3)
        };
        let (low, high) = (at_rank(half - away)?, at_rank(half + away)?);
        Some(((high - low) / 2.0).max(self.median_us()? * 1e-3))
    }

    /// Standard error of the mean; none of a single time.
    pub fn mean_error_us(&self) -> Option<f64> {
        self.deviation_us
            .map(|deviation| deviation / (self.count as f64).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(times_us: impl Iterator<Item = u64>) -> Distribution {
        let mut recorder = Recorder::default();
        times_us.for_each(|us| recorder.add(us * 1000));
        recorder.distribution().unwrap()
    }

    #[test]
    fn mean_deviation_and_ends_are_exact() {
        let found = recorded([2, 4, 4, 4, 5, 5, 7, 9].into_iter());
        assert_eq!((found.min_us, found.max_us, found.count), (2.0, 9.0, 8));
        assert!((found.mean_us - 5.0).abs() < 1e-9);
        assert!((found.deviation_us.unwrap() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-9);
        assert_eq!(found.histogram.iter().map(|cell| cell.1).sum::<u64>(), 8);
    }

    #[test]
    fn percentiles_are_told_only_where_a_time_lies_above_them() {
        let percents = |found: Distribution| found.percentiles.last().map(|last| last.percent);
        assert_eq!(percents(recorded(1..=1)), Some(50.0));
        assert_eq!(percents(recorded(1..=50)), Some(90.0));
        assert_eq!(percents(recorded(1..=1000)), Some(99.9));
        assert_eq!(percents(recorded(1..=100_000)), Some(99.999));
        let one = recorded(1..=1);
        assert_eq!((one.deviation_us, one.median_us()), (None, Some(1.0)));
    }

    #[test]
    fn a_time_that_is_far_off_moves_the_mean_and_its_error_and_not_those_of_the_median() {
        let quiet = recorded(1000..=1099);
        let disturbed = recorded((1000..=1098).chain([1_000_000]));
        assert!(disturbed.mean_error_us().unwrap() > 1000.0 * quiet.mean_error_us().unwrap());
        let [one, other] = [&quiet, &disturbed]
            .map(|found| (found.median_us().unwrap(), found.median_error_us().unwrap()));
        assert!(
            (one.0 - other.0).abs() < 2.0 && (one.1 - other.1).abs() < 1.0,
            "{one:?} {other:?}"
        );
        // Ranks 45 and 55 of a hundred times that are 1 µs apart.
        assert!((one.1 - 5.0).abs() < 1.1, "{one:?}");
        assert_eq!(recorded(1..=3).median_error_us(), None);
    }

    #[test]
    fn parts_that_are_merged_are_the_whole() {
        let part = |times: std::ops::Range<u64>| {
            let mut recorder = Recorder::default();
            times.for_each(|ns| recorder.add(ns * ns));
            recorder
        };
        let mut merged = Recorder::default();
        [part(0..0), part(1..100), part(100..250), part(0..0)]
            .iter()
            .for_each(|one| merged.merge(one));
        let (merged, whole) = (
            merged.distribution().unwrap(),
            part(1..250).distribution().unwrap(),
        );
        assert!((merged.mean_us - whole.mean_us).abs() < 1e-9);
        assert!((merged.deviation_us.unwrap() - whole.deviation_us.unwrap()).abs() < 1e-9);
        let exact =
            |found: Distribution| (found.count, found.min_us, found.max_us, found.histogram);
        assert_eq!(exact(merged), exact(whole));
    }

    #[test]
    fn a_percentile_beyond_the_end_of_the_histogram_is_not_told() {
        let found = recorded([1_000_000, 1_000_000, 1_000_000, 90_000_000].into_iter());
        assert_eq!((found.max_us, found.median_us()), (90e6, found.median_us()));
        assert!(found.median_us().unwrap() < 1.01e6);
        let beyond = recorded([90_000_000; 4].into_iter());
        assert_eq!((beyond.max_us, beyond.median_us()), (90e6, None));
    }

    #[test]
    fn no_times_have_no_distribution() {
        assert_eq!(Recorder::default().distribution(), None);
    }
}
