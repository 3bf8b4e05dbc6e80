//! Times in buckets that grow with the time: percentiles within 1.6 %, memory that is bounded.

use crate::time::Ns;

/// Buckets per doubling.
const FINE: u64 = 64;
/// Values below this have a bucket each.
const EXACT: u64 = 2 * FINE;
/// Log₂ of `EXACT`.
const EXACT_BITS: u32 = EXACT.ilog2();

/// A histogram of times.
#[derive(Debug, Default, Clone)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    max: Ns,
}

fn bucket(value: Ns) -> usize {
    let index = if value < EXACT {
        value
    } else {
        let doublings = u64::from(value.ilog2() - EXACT_BITS) + 1;
        // The upper seven bits of the value: 64…127.
        EXACT + (doublings - 1) * FINE + ((value >> doublings) - FINE)
    };
    usize::try_from(index).expect("invariant: fewer than 2^13 buckets")
}

/// The largest value of a bucket.
fn upper(index: usize) -> Ns {
    let index = index as u64;
    if index < EXACT {
        return index;
    }
    let doublings = (index - EXACT) / FINE + 1;
    let mantissa = (index - EXACT) % FINE + FINE;
    ((u128::from(mantissa + 1) << doublings) - 1)
        .try_into()
        .unwrap_or(Ns::MAX)
}

impl Histogram {
    /// Adds a value.
    pub fn add(&mut self, value: Ns) {
        let index = bucket(value);
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, 0);
        }
        self.buckets[index] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Mean of the values, 0 without any.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    /// The value below or at which this share of the values lies, 0 without any.
    pub fn quantile(&self, share: f64) -> Ns {
        let wanted = (self.count as f64 * share).ceil().max(1.0);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen as f64 >= wanted {
                return upper(index).min(self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_within_the_stated_error() {
        for value in (0..1000).chain([4095, 4096, 4097, 1 << 40, (1 << 60) + 12345, u64::MAX]) {
            let index = bucket(value);
            assert!(upper(index) >= value);
            assert!(index == 0 || upper(index - 1) < value);
            assert!((upper(index) - value) as f64 <= value as f64 / 64.0 + 1.0);
        }
    }

    #[test]
    fn quantiles_of_a_hundred_values() {
        let mut histogram = Histogram::default();
        (1..=100).for_each(|value| histogram.add(value));
        assert_eq!(histogram.quantile(0.5), 50);
        assert_eq!(histogram.quantile(0.99), 99);
        assert_eq!(histogram.quantile(1.0), 100);
        assert!((histogram.mean() - 50.5).abs() < 1e-9);
    }

    #[test]
    fn without_values_everything_is_zero() {
        let histogram = Histogram::default();
        assert_eq!((histogram.count(), histogram.quantile(0.5)), (0, 0));
    }
}
