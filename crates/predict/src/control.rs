//! Whether the machine is as fast as it was: a server on the kernel is asked the same before and after each run. A run begins when it answers as
//! usual, and one beside which it answered otherwise does not count. Whether a run fits a model or a prediction has no part in it.
//!
//! What other machines on the same host take is seen by no counter of this one.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use load::trial::{Say, Server, Stack, Testbed, quiet::OTHERS};
use statistics::Summary;

use crate::calibrate::works::SMALL;

const PORT: u16 = 7008;
/// A lone client and its server wake each other for each answer, and do so alike from one run to the next. Several find now more answers at a time and now
/// fewer: how many they get says less of the machine.
const CLIENTS: usize = 1;
const RUN: Duration = Duration::from_millis(50);
/// Runs with each when it is looked how fast the machine is.
const RUNS: usize = 120;
/// Runs that say how fast it is now.
const RUNS_NOW: usize = 11;
/// After so many it is said whether it is unsteady.
const RUNS_TELLING: usize = 40;
/// What an answer says of the machine is taken to hold so long.
const RECENT: Duration = Duration::from_millis(50);
/// A run beside which the server answered more than this part faster or slower was one of another machine. One whose processors a host had moved to where they
/// share no cache answered 0.71 times as often; where it stayed, two thirds of its runs were within 0.9 to 1.12.
const CHANGE: f64 = 0.15;
/// How often it is asked in waits, from one look at the machine to the next, until it is as fast as then: five minutes.
const PATIENCE: u32 = 4000;
/// A wait in which it is asked more often is said: after ten seconds.
const NOTICEABLE: u32 = 125;

/// The server, and how many requests it answers each second.
pub struct Control {
    server: Server,
    usual_per_s: f64,
    /// When it was asked last, and how many times as many it answered as usual.
    last: Cell<Option<(Instant, f64)>>,
    /// What is left of [`PATIENCE`].
    patience: Cell<u32>,
    say: Say,
}

impl Control {
    /// Starts the server, and looks how fast the machine is.
    pub fn start(testbed: &Testbed, say: &Say) -> anyhow::Result<Self> {
        let server = testbed.serve_at(Stack::Kernel, PORT, SMALL)?;
        let mut control = Self {
            server,
            usual_per_s: f64::NAN,
            last: Cell::new(None),
            patience: Cell::new(PATIENCE),
            say: *say,
        };
        control.look(testbed)?;
        Ok(control)
    }

    /// Looks how fast the machine is from here on. It stays what it was where a part of the runs is still like that.
    pub fn look(&mut self, testbed: &Testbed) -> anyhow::Result<()> {
        self.say.say("how fast the machine is");
        let mut seen = Vec::new();
        while seen.len() < RUNS {
            seen.push(self.rate_per_s(testbed)?);
            if seen.len() == RUNS_TELLING
                && let Some(warning) = unsteadiness(&seen)
            {
                self.say.say(&warning);
            }
        }
        if !is_still_usual(&seen, self.usual_per_s) {
            self.usual_per_s = usual(&seen);
        }
        self.last.set(None);
        self.patience.set(PATIENCE);
        Ok(())
    }

    /// How many requests the server usually answers each second.
    pub fn usual_per_s(&self) -> f64 {
        self.usual_per_s
    }

    /// How many times as many requests the server answers now: the middle of some runs.
    pub fn now(&self, testbed: &Testbed) -> anyhow::Result<f64> {
        let asked: anyhow::Result<Vec<f64>> = (0..RUNS_NOW).map(|_| self.ask(testbed)).collect();
        Ok(Summary::of(&asked?).map_or(f64::NAN, |summary| summary.median))
    }

    /// Makes a run when the machine is as fast as usual if it becomes so in time, and how fast it was before it and after it.
    pub fn beside<T>(
        &self,
        testbed: &Testbed,
        run: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Speed)> {
        let before = self.wait(testbed)?;
        let found = run()?;
        let after = self.ask(testbed)?;
        Ok((found, Speed { before, after }))
    }

    /// Waits until the machine is as fast as usual, as long as patience lasts.
    fn wait(&self, testbed: &Testbed) -> anyhow::Result<f64> {
        let recent = self.last.get().filter(|(when, _)| when.elapsed() < RECENT);
        let ratio = match recent {
            Some((_, ratio)) => ratio,
            None => self.ask(testbed)?,
        };
        let say = || {
            self.say
                .say("waiting until the machine is as fast as usual")
        };
        until_usual(ratio, &self.patience, || self.ask(testbed), say)
    }

    fn ask(&self, testbed: &Testbed) -> anyhow::Result<f64> {
        let ratio = self.rate_per_s(testbed)? / self.usual_per_s;
        self.last.set(Some((Instant::now(), ratio)));
        Ok(ratio)
    }

    fn rate_per_s(&self, testbed: &Testbed) -> anyhow::Result<f64> {
        Ok(testbed.ask(&self.server, SMALL, CLIENTS, RUN)?.rate_per_s)
    }
}

/// Asks until the ratio is the usual one, from `ratio` on, and takes each question from what is left of patience; the last ratio.
fn until_usual(
    mut ratio: f64,
    patience: &Cell<u32>,
    mut ask: impl FnMut() -> anyhow::Result<f64>,
    say: impl Fn(),
) -> anyhow::Result<f64> {
    let mut asked = 0;
    while is_another(ratio) && patience.get() > 0 {
        patience.set(patience.get() - 1);
        ratio = ask()?;
        asked += 1;
        if asked == NOTICEABLE {
            say();
        }
    }
    Ok(ratio)
}

/// How many times as many requests as usual the server answered before a run and after it.
#[derive(Debug, Clone, Copy)]
pub struct Speed {
    before: f64,
    after: f64,
}

impl Speed {
    /// Both together.
    pub fn ratio(self) -> f64 {
        f64::midpoint(self.before, self.after)
    }

    /// Whether the run was one of another machine.
    pub fn is_another(self) -> bool {
        is_another(self.before) || is_another(self.after)
    }
}

/// What took so long on a machine of that ratio takes as long on the usual one, but for what is measured off by the clock, which is the same on both.
pub fn on_the_usual(took: f64, by_clock: f64, ratio: f64) -> f64 {
    by_clock + (took - by_clock) * ratio
}

/// Those beside which the machine was as fast as beside this one.
fn alike(seen: &[f64], one: f64) -> impl Iterator<Item = f64> {
    seen.iter()
        .copied()
        .filter(move |that| !is_another(that / one))
}

/// How fast the machine was most often: the middle of the runs that have the most others like them.
fn usual(seen: &[f64]) -> f64 {
    let count = |one: &&f64| alike(seen, **one).count();
    let most = seen.iter().max_by_key(count);
    let those: Vec<f64> = most
        .into_iter()
        .flat_map(|most| alike(seen, *most))
        .collect();
    Summary::of(&those).map_or(f64::NAN, |summary| summary.median)
}

/// Whether a quarter of the runs at least are like what was usual before.
fn is_still_usual(seen: &[f64], before: f64) -> bool {
    before.is_finite() && alike(seen, before).count() * 4 >= seen.len()
}

/// What a user should know before minutes are spent: where more than a third of the first runs would not count.
fn unsteadiness(seen: &[f64]) -> Option<String> {
    if alike(seen, usual(seen)).count() * 3 >= seen.len() * 2 {
        return None;
    }
    let slowest = seen.iter().copied().fold(f64::INFINITY, f64::min);
    let fastest = seen.iter().copied().fold(0.0, f64::max);
    Some(format!(
        "this machine is unsteady: a server on the kernel answered {slowest:.0} to {fastest:.0} requests/s within seconds; it takes longer, and much may be *not known*. Try again when its host has less to do"
    ))
}

/// Whether a machine on which it answers so many times as many is another one.
pub fn is_another(ratio: f64) -> bool {
    (ratio - 1.0).abs() > CHANGE
}

/// How much a run was disturbed, for `in_turns`, to which the part of a processor that others used says it: on another machine more than is allowed.
pub fn disturbance(others: f64, speed: Speed) -> f64 {
    if speed.is_another() {
        others + 2.0 * OTHERS
    } else {
        others
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn the_machine_is_as_fast_as_in_most_of_the_first_runs() {
        let seen: Vec<f64> = (0..40)
            .map(|n| match n % 5 {
                0 => 70.0,
                1 => 30.0,
                _ => 50.0 + f64::from(n % 3),
            })
            .collect();
        assert_eq!(usual(&seen), 51.0);
        let warning = unsteadiness(&seen).unwrap();
        assert!(warning.contains("30 to 70"), "{warning}");
    }

    #[test]
    fn nothing_is_said_of_a_steady_machine() {
        let seen: Vec<f64> = (0..40).map(|n| 95.0 - f64::from(n % 8)).collect();
        assert_eq!(unsteadiness(&seen), None);
        assert_eq!(usual(&seen), 91.5);
    }

    #[test]
    fn what_was_usual_stays_so_while_some_runs_are_like_it() {
        let seen = [70.0, 30.0, 31.0, 29.0];
        assert!(is_still_usual(&seen, 65.0));
        assert!(!is_still_usual(&seen, 50.0) && !is_still_usual(&seen, f64::NAN));
    }

    #[test]
    fn a_run_is_of_another_machine_where_that_was_so_before_it_or_after_it() {
        let speed = |before, after| Speed { before, after };
        assert!(speed(0.97, 0.8).is_another() && speed(1.2, 0.97).is_another());
        assert!(!speed(0.9, 1.1).is_another());
        assert_eq!(speed(0.9, 1.1).ratio(), 1.0);
    }

    #[test]
    fn on_a_faster_machine_all_takes_less_but_what_the_clock_measures_off() {
        assert_eq!(on_the_usual(13.0, 3.0, 1.1), 14.0);
        assert_eq!(on_the_usual(3.0, 3.0, 0.5), 3.0);
    }

    #[test]
    fn a_run_waits_for_the_usual_machine_as_long_as_patience_lasts() {
        let (patience, said) = (Cell::new(PATIENCE), Cell::new(0));
        let say = || said.set(said.get() + 1);
        let never = || -> anyhow::Result<f64> { panic!("asked") };
        assert!(until_usual(0.95, &patience, never, say).is_ok());
        let mut seen = [0.7, 1.3, 1.05].into_iter();
        let ratio = until_usual(0.7, &patience, || seen.next().context("asked again"), say);
        assert_eq!((ratio.unwrap(), patience.get()), (1.05, PATIENCE - 3));
        let ratio = until_usual(0.7, &patience, || Ok(0.8), say);
        assert_eq!((ratio.unwrap(), patience.get(), said.get()), (0.8, 0, 1));
        assert!(until_usual(0.7, &patience, never, say).is_ok());
    }

    #[test]
    fn a_run_counts_unless_the_machine_was_further_off_than_allowed() {
        let of = |others, ratio| {
            let (before, after) = (ratio, 1.0);
            disturbance(others, Speed { before, after })
        };
        assert!(of(0.0, 0.95) <= OTHERS && of(0.05, 1.09) <= OTHERS);
        assert!(of(0.0, 0.8) > OTHERS && of(0.0, 1.2) > OTHERS);
        assert!(of(3.0, 1.0) > of(0.1, 1.2), "the least disturbed count");
    }
}
