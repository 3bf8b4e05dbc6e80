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
/// A lone client sleeps and is woken for each answer; several take answers as they come.
const CLIENTS: [usize; 2] = [1, 8];
const RUN: Duration = Duration::from_millis(80);
/// Runs with each when it is looked how fast the machine is.
const RUNS: usize = 120;
/// After so many it is said whether it is unsteady.
const RUNS_TELLING: usize = 40;
/// What an answer says of the machine is taken to hold so long.
const RECENT: Duration = Duration::from_millis(50);
/// A run beside which the server answered more than this part faster or slower was one of another machine.
const CHANGE: f64 = 0.1;
/// How often it is asked in waits, from one look at the machine to the next, until it is as fast as then: three minutes.
const PATIENCE: u32 = 2250;
/// A wait in which it is asked more often is said: after ten seconds.
const NOTICEABLE: u32 = 125;

/// The server, and how many requests it answers each second, with one client and with several.
pub struct Control {
    server: Server,
    of: [Rate; 2],
    /// What is left of [`PATIENCE`].
    patience: Cell<u32>,
    say: Say,
}

struct Rate {
    clients: usize,
    at_first_per_s: f64,
    /// When it was asked last, and how many times as many it answered as at first.
    last: Cell<Option<(Instant, f64)>>,
}

impl Control {
    /// Starts the server, and looks how fast the machine is.
    pub fn start(testbed: &Testbed, say: &Say) -> anyhow::Result<Self> {
        let server = testbed.serve_at(Stack::Kernel, PORT, SMALL)?;
        let mut control = Self {
            server,
            of: CLIENTS.map(|clients| Rate {
                clients,
                at_first_per_s: f64::NAN,
                last: Cell::new(None),
            }),
            patience: Cell::new(PATIENCE),
            say: *say,
        };
        control.look(testbed)?;
        Ok(control)
    }

    /// Looks how fast the machine is from here on.
    pub fn look(&mut self, testbed: &Testbed) -> anyhow::Result<()> {
        self.say.say("how fast the machine is");
        let ask = |clients| testbed.ask(&self.server, SMALL, clients, RUN);
        let [one, many] = CLIENTS;
        let mut seen = Vec::new();
        while seen.len() < RUNS {
            seen.push([ask(one)?.rate_per_s, ask(many)?.rate_per_s]);
            if seen.len() == RUNS_TELLING
                && let Some(warning) = unsteadiness(&seen)
            {
                self.say.say(&warning);
            }
        }
        for (rate, per_s) in self.of.iter_mut().zip(usual(&seen)) {
            rate.at_first_per_s = per_s;
            rate.last.set(None);
        }
        self.patience.set(PATIENCE);
        Ok(())
    }

    /// How many requests the server answered each second when it was looked at, with one client and with several.
    pub fn rates_per_s(&self) -> [f64; 2] {
        self.of.each_ref().map(|rate| rate.at_first_per_s)
    }

    /// Makes a run with so many clients, when the machine is as fast as at first if it becomes so in time. How many times as many requests the server
    /// answers before it or after it, whichever is further from once.
    pub fn beside<T>(
        &self,
        testbed: &Testbed,
        clients: usize,
        run: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, f64)> {
        let [lone, several] = &self.of;
        let rate = if clients == lone.clients {
            lone
        } else {
            several
        };
        let before = self.wait(testbed, rate)?;
        let found = run()?;
        let after = self.ask(testbed, rate)?;
        Ok((found, further(before, after)))
    }

    /// Waits until the machine is as fast as at first, as long as patience lasts.
    fn wait(&self, testbed: &Testbed, rate: &Rate) -> anyhow::Result<f64> {
        let recent = rate.last.get().filter(|(when, _)| when.elapsed() < RECENT);
        let ratio = match recent {
            Some((_, ratio)) => ratio,
            None => self.ask(testbed, rate)?,
        };
        let say = || {
            self.say
                .say("waiting until the machine is as fast as usual")
        };
        until_usual(ratio, &self.patience, || self.ask(testbed, rate), say)
    }

    fn ask(&self, testbed: &Testbed, rate: &Rate) -> anyhow::Result<f64> {
        let now = testbed.ask(&self.server, SMALL, rate.clients, RUN)?;
        let ratio = now.rate_per_s / rate.at_first_per_s;
        rate.last.set(Some((Instant::now(), ratio)));
        Ok(ratio)
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

/// Those beside which the machine was as fast as beside these.
fn alike<'a>(seen: &'a [[f64; 2]], these: &'a [f64; 2]) -> impl Iterator<Item = &'a [f64; 2]> {
    seen.iter().filter(move |those| {
        let mut ratios = those.iter().zip(these).map(|(a, b)| a / b);
        !ratios.any(is_another)
    })
}

/// How fast the machine was most often: the middle of the runs that have the most others like them.
fn usual(seen: &[[f64; 2]]) -> [f64; 2] {
    let most = seen.iter().max_by_key(|these| alike(seen, these).count());
    let Some(most) = most else {
        return [f64::NAN; 2];
    };
    [0, 1].map(|which| {
        let rates: Vec<f64> = alike(seen, most).map(|rates| rates[which]).collect();
        Summary::of(&rates).map_or(f64::NAN, |summary| summary.median)
    })
}

/// What a user should know before minutes are spent: where more than a third of the first runs would not count.
fn unsteadiness(seen: &[[f64; 2]]) -> Option<String> {
    if alike(seen, &usual(seen)).count() * 3 >= seen.len() * 2 {
        return None;
    }
    let several = || seen.iter().map(|[_, several]| *several);
    let slowest = several().fold(f64::INFINITY, f64::min);
    let fastest = several().fold(0.0, f64::max);
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
        let seen: Vec<[f64; 2]> = (0..40)
            .map(|n| match n % 5 {
                0 => [70.0, 180.0],
                1 => [30.0, 80.0],
                // One client of the fast machine, eight of the slow one: it became another in between.
                2 => [50.0, 90.0],
                _ => [50.0 + f64::from(n % 3), 135.0],
            })
            .collect();
        assert_eq!(usual(&seen), [51.0, 135.0]);
        let warning = unsteadiness(&seen).unwrap();
        assert!(warning.contains("80 to 180"), "{warning}");
    }

    #[test]
    fn nothing_is_said_of_a_steady_machine() {
        let seen: Vec<[f64; 2]> = (0..40).map(|n| [40.0, 95.0 - f64::from(n % 8)]).collect();
        assert_eq!(unsteadiness(&seen), None);
        assert_eq!(usual(&seen), [40.0, 91.5]);
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
        assert!(disturbance(0.0, 0.85) > OTHERS && disturbance(0.0, 1.2) > OTHERS);
        assert!(
            disturbance(3.0, 1.0) > disturbance(0.1, 1.2),
            "the least disturbed count"
        );
    }
}
