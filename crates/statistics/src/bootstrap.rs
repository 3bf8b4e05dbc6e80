//! The ratio of two medians and how sure it is: the percentile bootstrap (Efron and Tibshirani, "An Introduction to the
//! Bootstrap", chapter 13).
//!
//! Rounds are drawn, not single values: what one round measures depends on what the machine did meanwhile, so values
//! of one round are no independent samples.

use serde::{Deserialize, Serialize};

use crate::Summary;

/// A ratio with the interval that holds it in 95 of 100 such experiments, as far as the rounds represent the machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The ratio of the medians of all rounds.
    pub ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// How often rounds are drawn.
const DRAWS: usize = 2000;
/// The same rounds give the same interval.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// Fewer rounds say nothing of how rounds differ.
const LEAST_ROUNDS: usize = 3;

/// The median of `ours` by the median of `theirs`, where round `n` of both was measured in turn. `None` with fewer than
/// three rounds, rounds that do not come in pairs, or a median that is not above zero.
pub fn median_ratio(ours: &[f64], theirs: &[f64]) -> Option<Interval> {
    (ours.len() == theirs.len())
        .then(|| bootstrap(ours, theirs, true))
        .flatten()
}

/// The same of runs that were made apart. `None` with fewer than three runs of either, or a median that is not above zero.
pub fn median_ratio_of_runs(ours: &[f64], theirs: &[f64]) -> Option<Interval> {
    bootstrap(ours, theirs, false)
}

fn bootstrap(ours: &[f64], theirs: &[f64], in_pairs: bool) -> Option<Interval> {
    if ours.len().min(theirs.len()) < LEAST_ROUNDS {
        return None;
    }
    let ratio_of = |of_ours: &[usize], of_theirs: &[usize]| {
        Some(median(ours, of_ours)? / median(theirs, of_theirs)?)
    };
    let mut of_ours: Vec<usize> = (0..ours.len()).collect();
    let mut of_theirs: Vec<usize> = (0..theirs.len()).collect();
    let ratio = ratio_of(&of_ours, &of_theirs)?;
    let mut random = SEED;
    let mut ratios = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        draw(&mut of_ours, &mut random);
        if in_pairs {
            of_theirs.clone_from(&of_ours);
        } else {
            draw(&mut of_theirs, &mut random);
        }
        ratios.push(ratio_of(&of_ours, &of_theirs)?);
    }
    ratios.sort_by(f64::total_cmp);
    Some(Interval {
        ratio,
        low: ratios[DRAWS / 40],
        high: ratios[DRAWS - 1 - DRAWS / 40],
    })
}

/// The median of the rounds that were drawn, where it is above zero.
fn median(values: &[f64], rounds: &[usize]) -> Option<f64> {
    let drawn: Vec<f64> = rounds.iter().map(|round| values[*round]).collect();
    Summary::of(&drawn)
        .map(|summary| summary.median)
        .filter(|median| *median > 0.0)
}

fn draw(rounds: &mut [usize], random: &mut u64) {
    let count = rounds.len();
    rounds.fill_with(|| below(count, random));
}

/// A number below `bound`, which is small: xorshift64 (Marsaglia 2003).
fn below(bound: usize, state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    let bound_u64 = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
    usize::try_from((*state >> 11) % bound_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_agree_give_a_narrow_interval_and_others_a_wide_one() {
        let theirs = [10.0, 10.1, 9.9, 10.0, 10.2];
        let ours = theirs.map(|value| value * 0.5);
        let sure = median_ratio(&ours, &theirs).unwrap();
        assert!((sure.ratio - 0.5).abs() < 1e-9);
        assert!(sure.high - sure.low < 0.02, "{sure:?}");
        let unsure = median_ratio(&[5.0, 20.0, 9.0, 2.0, 7.0], &theirs).unwrap();
        assert!(
            unsure.low < unsure.ratio && unsure.ratio < unsure.high,
            "{unsure:?}"
        );
        assert!(unsure.high - unsure.low > 0.2, "{unsure:?}");
        assert_eq!(sure, median_ratio(&ours, &theirs).unwrap());
    }

    #[test]
    fn runs_that_were_made_apart_need_no_pairs() {
        let theirs = [10.0, 10.1, 9.9, 10.0, 10.2];
        let found = median_ratio_of_runs(&[5.0, 5.1, 4.9], &theirs).unwrap();
        assert!(
            (found.ratio - 0.5).abs() < 1e-9 && found.low < 0.5 && found.high > 0.5,
            "{found:?}"
        );
        assert_eq!(median_ratio_of_runs(&[5.0, 5.1], &theirs), None);
    }

    #[test]
    fn two_rounds_or_a_median_of_nothing_have_no_ratio() {
        assert_eq!(median_ratio(&[1.0, 2.0], &[1.0, 2.0]), None);
        assert_eq!(median_ratio(&[1.0, 2.0, 3.0], &[0.0; 3]), None);
        assert_eq!(median_ratio(&[1.0, 2.0, 3.0], &[1.0; 4]), None);
    }
}
