//! What is told of a handful of samples: never a lone mean.

use serde::Serialize;

/// Samples of one quantity.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Middle value.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// All values in the order of measurement.
    pub samples: Vec<f64>,
}

impl Summary {
    /// None where there is no sample.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Self {
            median,
            min,
            max,
            samples: samples.to_vec(),
        })
    }

    /// Distance from the smallest to the largest sample, as a part of the median.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 {
            0.0
        } else {
            (self.max - self.min) / self.median
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_spread_of_odd_and_even_counts() {
        let odd = Summary::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
        assert!((odd.spread() - 1.0).abs() < 1e-9);
        let even = Summary::of(&[4.0, 1.0, 2.0, 3.0]).unwrap();
        assert!((even.median - 2.5).abs() < 1e-9);
        assert_eq!(even.samples, [4.0, 1.0, 2.0, 3.0]);
    }

    #[test]
    fn no_samples_have_no_summary() {
        assert!(Summary::of(&[]).is_none());
    }
}
