//! Random numbers that depend on the seed alone: xoshiro256** (Blackman and Vigna), seeded by
//! splitmix64.

/// A generator of random numbers.
#[derive(Debug, Clone)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Self {
        let mut mixed = seed;
        let mut next = || {
            mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Self {
            state: [next(), next(), next(), next()],
        }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        // The upper 53 bits fill the mantissa of a double.
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Exponentially distributed with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            [rng.bits(), rng.bits(), rng.bits()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn means_are_those_of_the_distributions() {
        let mut rng = Rng::new(1);
        let n = 200_000;
        let unit = (0..n).map(|_| rng.unit()).sum::<f64>() / f64::from(n);
        let exponential = (0..n).map(|_| rng.exponential(3.0)).sum::<f64>() / f64::from(n);
        let hits = (0..n).filter(|_| rng.chance(0.25)).count() as f64 / f64::from(n);
        assert!((unit - 0.5).abs() < 0.005, "{unit}");
        assert!((exponential - 3.0).abs() < 0.03, "{exponential}");
        assert!((hits - 0.25).abs() < 0.005, "{hits}");
    }
}
