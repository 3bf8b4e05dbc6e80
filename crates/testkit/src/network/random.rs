//! The one source of choices: SplitMix64 (Steele, Lea, Flood 2014), for which any seed is a good one.

/// A stream of choices.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Evenly from 0 to below `end`.
    ///
    /// # Panics
    /// If `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// Evenly from `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Each order of magnitude as often as the others.
    pub fn magnitude(&mut self, least: u64, most: u64) -> u64 {
        let (low, high) = (least.max(1).ilog2(), most.max(1).ilog2());
        let bits = self.between(u64::from(low), u64::from(high));
        let base = 1 << bits;
        (base + self.below(base)).clamp(least, most)
    }

    /// One of these.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let count = u64::try_from(choices.len()).expect("invariant: a slice's length fits");
        let index = usize::try_from(self.below(count)).expect("invariant: below a usize");
        choices[index]
    }
}

/// Spreads the bits of a number over all of them.
pub fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
