//! Rows as they stand after some seeds, and the transfers that follow.

use load::transfer::Outcome;

use super::super::{
    grid::{Cell, Stack},
    schedule::Done,
};
use super::*;

const KERNEL: Combination = Combination::ALL[0];
const SENDS: Combination = Combination::of(Stack::Shunt, Stack::Kernel);
const RECEIVES: Combination = Combination::of(Stack::Kernel, Stack::Shunt);

/// A transfer of a megabit in as many seconds.
fn done(combination: Combination, seed: u64, seconds: f64) -> Done {
    Done {
        job: Job {
            cell: Cell::new(0.01, 20, 10),
            congestion: "reno".to_owned(),
            combination,
            seed,
        },
        outcome: Outcome {
            bytes: 125_000,
            seconds,
            ..Outcome::default()
        },
    }
}

/// Ten seeds: the kernel takes a second, ours `even` and `odd` seconds in turn.
fn row(even: f64, odd: f64) -> Row {
    let mut all = Vec::new();
    for seed in 0..10 {
        all.push(done(KERNEL, seed, 1.0));
        let seconds = if seed % 2 == 0 { even } else { odd };
        all.push(done(SENDS, seed, seconds));
        all.push(done(RECEIVES, seed, 1.0));
    }
    Row::of(&Cell::new(0.01, 20, 10), "reno", &all).unwrap()
}

fn seeds(jobs: &[Job], combination: Combination) -> Vec<u64> {
    let mine = jobs.iter().filter(|job| job.combination == combination);
    mine.map(|job| job.seed).collect()
}

#[test]
fn a_ratio_that_is_told_from_the_threshold_gets_no_more_whichever_side_it_is_on() {
    for (even, odd) in [(1.0, 1.0), (1.2, 1.21), (0.5, 0.52)] {
        assert_eq!(further(&row(even, odd), 40), [], "{even} {odd}");
    }
}

#[test]
fn one_that_is_not_gets_twice_the_seeds_whichever_side_it_is_on() {
    // Means of 0.93, 0.98 and 1.05 that swing by a third and more.
    for (even, odd) in [(0.8, 1.64), (0.75, 1.6), (0.68, 1.6)] {
        let row = row(even, odd);
        let jobs = further(&row, 40);
        let fresh: Vec<u64> = (10..20).collect();
        assert_eq!(seeds(&jobs, SENDS), fresh, "{}", row.line());
        // The kernel on the same cables; and nothing of what is decided.
        assert_eq!(seeds(&jobs, KERNEL), fresh);
        assert!(seeds(&jobs, RECEIVES).is_empty());
        assert_eq!(jobs.len(), 20);
    }
}

#[test]
fn nobody_gets_more_than_the_most() {
    let row = row(0.75, 1.6);
    assert_eq!(seeds(&further(&row, 14), SENDS), [10, 11, 12, 13]);
    assert_eq!(further(&row, 10), []);
    assert_eq!(further(&row, 3), []);
}

#[test]
fn a_transfer_that_failed_is_not_made_again_under_another_name() {
    let mut all = Vec::new();
    for seed in 0..10 {
        all.push(done(KERNEL, seed, 1.0));
        let mut own = done(SENDS, seed, if seed % 2 == 0 { 0.75 } else { 1.6 });
        if seed == 9 {
            own.outcome.error = Some("broken".to_owned());
        }
        all.push(own);
    }
    let row = Row::of(&Cell::new(0.01, 20, 10), "reno", &all).unwrap();
    let fresh: Vec<u64> = (10..20).collect();
    assert_eq!(seeds(&further(&row, 40), SENDS), fresh);
}

#[test]
fn what_is_only_reported_gets_no_more() {
    let mut row = row(0.75, 1.6);
    row.congestion = "bbr".to_owned();
    assert_eq!(further(&row, 40), []);
}
