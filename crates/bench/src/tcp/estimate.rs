//! A mean with its interval, and the ratio of two means of pairs.

use serde::Serialize;

/// Mean of some samples and the half width of its 95 % interval (Student 1908).
#[derive(Debug, Clone, Serialize)]
pub struct Estimate {
    pub mean: f64,
    pub interval: f64,
    pub samples: Vec<f64>,
}

impl Estimate {
    /// None where there is no sample.
    pub fn of(samples: &[f64]) -> Option<Self> {
        if samples.is_empty() {
            return None;
        }
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let interval = if samples.len() < 2 {
            f64::INFINITY
        } else {
            quantile(samples.len() - 1) * (squares / (count - 1.0) / count).sqrt()
        };
        Some(Self {
            mean,
            interval,
            samples: samples.to_vec(),
        })
    }

    /// The interval as a part of the mean.
    pub fn relative(&self) -> f64 {
        self.interval / self.mean
    }
}

impl Ratio {
    /// The mean of what stands first in each pair over the mean of what stands second, where the two met the same
    /// accidents: what disturbs both alike is no doubt about their ratio (Cochran 1977, §6.4).
    pub fn paired(pairs: &[(f64, f64)]) -> Option<Self> {
        if pairs.is_empty() {
            return None;
        }
        let count = pairs.len() as f64;
        let base = pairs.iter().map(|pair| pair.1).sum::<f64>() / count;
        let value = pairs.iter().map(|pair| pair.0).sum::<f64>() / count / base;
        let rests: Vec<f64> = pairs.iter().map(|(own, base)| own - value * base).collect();
        let interval = Estimate::of(&rests)?.interval / base;
        Some(Self { value, interval })
    }

    /// Whether the interval leaves open on which side of `threshold` the ratio is.
    pub fn is_open(&self, threshold: f64) -> bool {
        (self.value - threshold).abs() <= self.interval
    }
}

/// One mean over another.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Ratio {
    pub value: f64,
    pub interval: f64,
}

/// The 97.5 % quantile of Student's distribution; beyond the table its first two terms (Abramowitz and Stegun 26.7.5).
fn quantile(degrees: usize) -> f64 {
    const SMALL: [f64; 20] = [
        12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13,
        2.12, 2.11, 2.10, 2.09, 2.09,
    ];
    degrees
        .checked_sub(1)
        .and_then(|index| SMALL.get(index))
        .copied()
        .unwrap_or_else(|| 1.96 + 2.4 / degrees as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_interval_and_ratio_by_hand() {
        let estimate = Estimate::of(&[9.0, 10.0, 11.0]).unwrap();
        assert!((estimate.mean - 10.0).abs() < 1e-9);
        // The deviation is 1: 4.30 / sqrt 3.
        assert!((estimate.interval - 2.482_6).abs() < 1e-3);
        assert!(Estimate::of(&[]).is_none());
    }

    #[test]
    fn quantiles_go_on_where_their_table_ends() {
        for (degrees, expected) in [(20, 2.086), (21, 2.080), (39, 2.023), (79, 1.990)] {
            assert!((quantile(degrees) - expected).abs() < 0.006, "{degrees}");
        }
    }

    #[test]
    fn what_disturbs_both_of_a_pair_alike_is_no_doubt_about_their_ratio() {
        let alike = Ratio::paired(&[(2.0, 1.0), (18.0, 9.0), (40.0, 20.0)]).unwrap();
        assert!((alike.value - 2.0).abs() < 1e-9 && alike.interval < 1e-9);
        // 20 over 10; what is left of the pairs is 1, 0 and -1: 4.30 / sqrt 3, over 10.
        let ratio = Ratio::paired(&[(19.0, 9.0), (20.0, 10.0), (21.0, 11.0)]).unwrap();
        assert!((ratio.value - 2.0).abs() < 1e-9);
        assert!(
            (ratio.interval - 0.248_26).abs() < 1e-4,
            "{}",
            ratio.interval
        );
        assert!(Ratio::paired(&[]).is_none());
        assert!(Ratio::paired(&[(1.0, 1.0)]).unwrap().interval.is_infinite());
    }
}
