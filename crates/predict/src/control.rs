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
const RUN: Duration = Duration::from_millis(80);
/// Runs with each when it is looked how fast the machine is.
const RUNS: usize = 120;
/// After so many it is said whether it is unsteady.
const RUNS_TELLING: usize = 40;
/// What an answer says of the machine is taken to hold so long.
const RECENT: Duration = Duration::from_millis(50);
/// A run beside which the server answered more than this part faster or slower was one of another machine. One whose processors a host moved to where they
/// share no cache answers 0.65 to 0.75 times as often, and one that stays as it is 0.9 to 1.1 times.
const CHANGE: f64 = 0.15;
/// How often it is asked in waits, from one look at the machine to the next, until it is as fast as then: five minutes.
const PATIENCE: u32 = 3750;
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

    /// Makes a run when the machine is as fast as usual if it becomes so in time. How many times as many requests the server
    /// answers before it or after it, whichever is further from once.
    pub fn beside<T>(
        &self,
        testbed: &Testbed,
        run: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, f64)> {
        let before = self.wait(testbed)?;
        let found = run()?;
        let after = self.ask(testbed)?;
        Ok((found, further(before, after)))
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

fn further(a: f64, b: f64) -> f64 {
    if (a - 1.0).abs() > (b - 1.0).abs() {
        a
    } else {
        b
    }
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

/// Whether a run beside which it answered so many times as many was one of another machine.
pub fn is_another(ratio: f64) -> bool {
    (ratio - 1.0).abs() > CHANGE
}

/// How much a run was disturbed, for `in_turns`, to which the part of a processor that others used says it: on another machine more than is allowed.
pub fn disturbance(others: f64, ratio: f64) -> f64 {
    if is_another(ratio) {
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
    fn of_what_was_asked_before_and_after_a_run_the_further_counts() {
        assert_eq!(further(0.97, 0.8), 0.8);
        assert_eq!(further(1.2, 0.97), 1.2);
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
        assert!(disturbance(0.0, 0.95) <= OTHERS && disturbance(0.05, 1.09) <= OTHERS);
        assert!(disturbance(0.0, 0.8) > OTHERS && disturbance(0.0, 1.2) > OTHERS);
        assert!(
            disturbance(3.0, 1.0) > disturbance(0.1, 1.2),
            "the least disturbed count"
        );
    }
}
