//! A mean with its interval, and the ratio of two.

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

    /// This over `base`, with its interval: relative intervals of independent means add as squares.
    pub fn over(&self, base: &Self) -> Ratio {
        let value = self.mean / base.mean;
        Ratio {
            value,
            interval: value * self.relative().hypot(base.relative()),
        }
    }
}

/// One mean over another.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Ratio {
    pub value: f64,
    pub interval: f64,
}

/// The 97.5 % quantile of Student's distribution.
fn quantile(degrees: usize) -> f64 {
    const SMALL: [f64; 20] = [
        12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13,
        2.12, 2.11, 2.10, 2.09, 2.09,
    ];
    degrees
        .checked_sub(1)
        .and_then(|index| SMALL.get(index))
        .copied()
        .unwrap_or(1.96)
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
        let twice = Estimate::of(&[18.0, 20.0, 22.0]).unwrap();
        let ratio = twice.over(&estimate);
        assert!((ratio.value - 2.0).abs() < 1e-9);
        assert!((ratio.interval - 2.0 * 0.248_26 * std::f64::consts::SQRT_2).abs() < 1e-3);
        assert!(Estimate::of(&[]).is_none());
    }
}
