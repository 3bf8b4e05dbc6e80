//! How many frames each look at the device found.

use super::receive::BUDGET;
use stack::Histogram;

/// Looks by how many frames they found; to count one takes an addition.
#[derive(Debug)]
pub(crate) struct Bursts([u64; BUDGET + 1]);

impl Default for Bursts {
    fn default() -> Self {
        Self([0; BUDGET + 1])
    }
}

impl Bursts {
    /// A look found so many.
    #[inline]
    pub(crate) fn add(&mut self, frames: usize) {
        self.0[frames.min(BUDGET)] += 1;
    }

    /// Looks that found none.
    pub(crate) fn in_vain(&self) -> u64 {
        self.0[0]
    }

    /// Those that found some.
    pub(crate) fn to_histogram(&self) -> Histogram {
        let mut histogram = Histogram::default();
        for (frames, &looks) in (0_u32..).zip(&self.0).skip(1) {
            histogram.add_times(frames, looks);
        }
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_told_by_what_they_found_and_those_in_vain_apart() {
        let mut bursts = Bursts::default();
        for frames in [0, 0, 1, 1, 1, 64] {
            bursts.add(frames);
        }
        assert_eq!(bursts.in_vain(), 2);
        let histogram = bursts.to_histogram();
        assert_eq!(histogram.counts().sum::<u64>(), 4);
        assert_eq!((histogram.counts().next(), histogram.sum()), (Some(3), 67));
    }
}
