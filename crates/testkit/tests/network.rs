//! The deterministic network: thousands of bad paths, each the same every time.
//!
//! SHUNT_SEEDS sets how many seeds are tried (`make long` tries many), SHUNT_SEED replays one, and
//! SHUNT_TRACE prints its frames: see docs/replay.md.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use testkit::network::{Habit, Scenario, run, run_against};

/// Seeds tried where nobody says how many.
const SEEDS: u64 = 400;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

#[test]
fn every_seed_delivers_what_was_sent_and_ends() {
    let seeds = number("SHUNT_SEEDS").unwrap_or(SEEDS);
    let (mut frames, mut stall_us) = (0, 0);
    let mut failures = Vec::new();
    for seed in 0..seeds {
        match run(&Scenario::of_seed(seed), false) {
            Ok(report) => {
                frames += report.frames.iter().sum::<u64>();
                stall_us = stall_us.max(report.longest_stall_us);
            }
            Err(failure) => failures.push(failure),
        }
    }
    println!("{seeds} seeds, {frames} frames, longest stall {stall_us} us");
    let numbers: Vec<u64> = failures
        .iter()
        .map(|failure| failure.scenario.seed)
        .collect();
    if let Some(first) = failures.first() {
        panic!(
            "{} of {seeds} seeds fail: {numbers:?}; the first\n{first}",
            numbers.len()
        );
    }
}

#[test]
fn one_seed() {
    let Some(seed) = number("SHUNT_SEED") else {
        return;
    };
    let print = std::env::var_os("SHUNT_TRACE").is_some();
    let result = match std::env::var("SHUNT_HABIT") {
        Err(_) => run(&Scenario::of_seed(seed), print),
        Ok(name) => {
            let habit = Habit::ALL
                .into_iter()
                .find(|habit| format!("{habit:?}") == name);
            let habit = habit.unwrap_or_else(|| panic!("SHUNT_HABIT={name} is no habit"));
            run_against(habit, &met_by(habit, seed), u64::MAX, print)
        }
    };
    let report = result.unwrap_or_else(|failure| panic!("{failure}"));
    eprintln!("{report:?}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..20 {
        let scenario = Scenario::of_seed(seed);
        assert_eq!(run(&scenario, false), run(&scenario, false), "seed {seed}");
    }
}

/// What a peer of this habit meets: a mild path, because the peer is trouble enough.
fn met_by(habit: Habit, seed: u64) -> Scenario {
    let impairment = "loss=1%,delay=5ms,jitter=1ms,reorder=1%,duplicate=1%"
        .parse()
        .unwrap();
    // What comes in slowly shall not take for ever.
    let (there, back) = match habit {
        Habit::SillyWindow => (2_000, 20_000),
        Habit::TinySegments => (20_000, 20_000),
        Habit::NeverOpens => (200_000, 0),
        _ => (200_000, 100_000),
    };
    let mut scenario = Scenario::transfer(there, impairment, seed);
    scenario.plans[1].send = back;
    if habit == Habit::NeverOpens {
        // The program still has to write, and so does not close.
        scenario.plans[0].window_bytes = 1 << 16;
    }
    scenario
}

#[test]
fn bad_peers_get_every_byte_and_cannot_break_the_connection() {
    let seeds = number("SHUNT_SEEDS").unwrap_or(SEEDS).div_ceil(10);
    let habits = Habit::ALL.into_iter();
    for habit in habits.filter(|habit| *habit != Habit::NeverOpens) {
        for seed in 0..seeds {
            if let Err(failure) = run_against(habit, &met_by(habit, seed), u64::MAX, false) {
                panic!("{failure}");
            }
        }
    }
}

#[test]
fn a_window_that_never_opens_is_probed_ever_more_rarely_and_costs_nothing_else() {
    let scenario = met_by(Habit::NeverOpens, 1);
    let until_us = 1_800_000_000;
    let report = run_against(Habit::NeverOpens, &scenario, until_us, false).unwrap();
    assert_eq!(report.consumed[1], 10_000);
    // Half an hour with probes at most two minutes apart, after some that came faster.
    assert!((15..80).contains(&report.frames[0]), "{report:?}");
}
