//! Times of many exchanges in memory that does not grow with them.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Digits of a time that count: the error of a value is below a thousandth.
const DIGITS: u8 = 3;
/// Longer times count as this.
pub const LONGEST: Duration = Duration::from_secs(60);

/// Times, in nanoseconds, of which percentiles are asked.
#[derive(Debug, Clone)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        let longest_ns = u64::try_from(LONGEST.as_nanos()).expect("invariant: a minute");
        let histogram = Histogram::new_with_max(longest_ns, DIGITS);
        Self(histogram.expect("invariant: the bounds are valid"))
    }
}

impl Times {
    /// One more.
    pub fn add(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(ns);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// Adds those of another.
    pub fn merge(&mut self, other: &Self) {
        self.0
            .add(&other.0)
            .expect("invariant: both have the same bounds");
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that this percentage of them does not exceed; none where there are no times.
    pub fn percentile_us(&self, percent: f64) -> Option<f64> {
        let is_any = !self.0.is_empty();
        is_any
            .then(|| Duration::from_nanos(self.0.value_at_percentile(percent)).as_secs_f64() * 1e6)
    }

    /// Upper ends of the cells with times in them, in nanoseconds, and how many.
    pub fn cells(&self) -> Vec<(u64, u64)> {
        let cells = self.0.iter_recorded();
        cells
            .map(|cell| (cell.value_iterated_to(), cell.count_at_value()))
            .collect()
    }

    /// Their mean; none where there are no times.
    pub fn mean_us(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.mean() / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_nearest_rank_within_two_thousandths() {
        let mut times = Times::default();
        for us in (1..=1000).rev() {
            times.add(Duration::from_micros(us));
        }
        assert_eq!(times.count(), 1000);
        for (percent, us) in [(50.0, 500.0), (99.0, 990.0), (99.9, 999.0)] {
            let told = times.percentile_us(percent).unwrap();
            assert!((told / us - 1.0).abs() < 2e-3, "{percent}: {told}");
        }
        assert!((times.mean_us().unwrap() / 500.5 - 1.0).abs() < 1e-3);
        times.clear();
        assert_eq!((times.percentile_us(50.0), times.mean_us()), (None, None));
    }

    #[test]
    fn a_time_beyond_the_longest_counts_as_that() {
        let mut times = Times::default();
        times.add(Duration::from_secs(3600));
        let told = times.percentile_us(100.0).unwrap();
        assert!((told / 60e6 - 1.0).abs() < 1e-3, "{told}");
    }
}
