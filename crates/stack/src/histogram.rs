//! How often values of each size came: buckets whose bounds are two to the octave, in constant memory.
//!
//! To add a value takes about ten instructions. What is read is exact in its count and sum, and within a third in each value.

/// Bounds that are told: 1, 2, 3, 4, 6, 8, 12 … 2^24. One bucket more takes what is larger.
const BOUNDS: u32 = 48;
/// Places of buckets, a power of two; the largest value is 65 places beyond 1.
const PLACES: u32 = 128;
/// Of a 32-bit float: all bits of its mantissa but the first.
const FINE_BITS: u32 = 22;
/// What is left of 1 without these bits.
const ONE: u32 = 1_f32.to_bits() >> FINE_BITS;
/// So far beyond 1 nothing is: nothing lies between 1 and 2.
const EMPTY: core::ops::RangeInclusive<u32> = 1..=2;

/// Values that were counted by their size.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// By the float that is twice the value, less one: its exponent and the first bit of its mantissa. So a bound is in the
    /// bucket that it ends, and no place is looked for.
    places: [u64; PLACES as usize],
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            places: [0; PLACES as usize],
            sum: 0,
        }
    }
}

impl Histogram {
    /// Counts one value.
    #[inline]
    pub fn add(&mut self, value: u32) {
        self.add_times(value, 1);
    }

    /// Counts a value that came so many times.
    #[inline]
    pub fn add_times(&mut self, value: u32, times: u64) {
        // Above 2^23, where a float knows not every number, a value may come to stand in the next bucket.
        // What 0 becomes is cut to the place of 1.
        let twice = 2 * i64::from(value) - 1;
        self.places[place((twice as f32).to_bits() >> FINE_BITS)] += times;
        self.sum = self.sum.wrapping_add(u64::from(value) * times);
    }

    /// The sum of all values.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// How many values each bucket has; of the last one there is no bound.
    pub fn counts(&self) -> impl Iterator<Item = u64> {
        let at = |from_one: u32| self.places[place(ONE + from_one)];
        let told = (0..=BOUNDS + 1).filter(|from_one| !EMPTY.contains(from_one));
        let beyond = (BOUNDS + 2..PLACES).map(at).sum();
        told.map(at).chain([beyond])
    }

    /// The largest value of each bucket but the last.
    pub fn bounds() -> impl Iterator<Item = u64> {
        let octaves = (1..=24).flat_map(|octave| {
            let half = 1_u64 << (octave - 1);
            let middle = (octave > 1).then_some(half + half / 2);
            middle.into_iter().chain([2 * half])
        });
        core::iter::once(1).chain(octaves)
    }
}

#[inline]
const fn place(bits: u32) -> usize {
    (bits % PLACES) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bucket_of(value: u32) -> usize {
        let mut histogram = Histogram::default();
        histogram.add(value);
        histogram.counts().position(|count| count == 1).unwrap()
    }

    #[test]
    fn a_bound_is_the_largest_value_of_its_bucket() {
        assert_eq!(Histogram::bounds().count(), BOUNDS as usize);
        assert_eq!(Histogram::default().counts().count(), BOUNDS as usize + 1);
        assert!(Histogram::bounds().is_sorted());
        assert_eq!(Histogram::bounds().last(), Some(1 << 24));
        for (at, bound) in Histogram::bounds().enumerate() {
            let bound = u32::try_from(bound).unwrap();
            // Where floats are two apart.
            let more = if bound < 1 << 23 { 1 } else { 2 };
            assert_eq!(bucket_of(bound + 1 - more), at, "{bound}");
            assert_eq!(bucket_of(bound + more), at + 1, "{bound} and {more}");
        }
        assert_eq!((bucket_of(0), bucket_of(u32::MAX)), (0, BOUNDS as usize));
    }

    proptest! {
        #[test]
        fn what_was_added_is_counted_once_where_it_belongs(values in prop::collection::vec(0_u32..1 << 23, 0..64)) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.add(*value));
            prop_assert_eq!(histogram.sum(), values.iter().map(|value| u64::from(*value)).sum::<u64>());
            let mut up_to = 0;
            for (bound, count) in Histogram::bounds().zip(histogram.counts()) {
                up_to += count;
                let not_above = values.iter().filter(|value| u64::from(**value) <= bound);
                prop_assert_eq!(up_to, not_above.count() as u64);
            }
            prop_assert_eq!(histogram.counts().sum::<u64>(), values.len() as u64);
        }
    }
}
