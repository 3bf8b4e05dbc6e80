//! Whether the machine is as fast as it was: a server on the kernel is asked the same again and again, and a run beside which it answered otherwise than
//! at the beginning does not count. Whether a run fits a model or a prediction has no part in it.
//!
//! What other machines on the same host take is seen by no counter of this one.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use load::trial::{Say, Server, Stack, Testbed, quiet::OTHERS};

use crate::calibrate::works::SMALL;

const PORT: u16 = 7008;
/// A lone client sleeps and is woken for each answer; several take answers as they come.
const CLIENTS: [usize; 2] = [1, 8];
const RUN: Duration = Duration::from_millis(100);
/// Runs with each at the beginning: the machine is taken to be as fast as in the faster quarter of them.
const RUNS: usize = 40;
/// What an answer says of the machine is taken to hold so long.
const RECENT: Duration = Duration::from_millis(700);
/// A run beside which the server answered more than this part faster or slower was one of another machine.
const CHANGE: f64 = 0.1;

/// The server, and how many requests it answers each second, with one client and with several.
pub struct Control {
    server: Server,
    of: [Rate; 2],
}

struct Rate {
    clients: usize,
    at_first_per_s: f64,
    /// When it was asked last, and how many times as many it answered as at first.
    last: Cell<Option<(Instant, f64)>>,
}

impl Control {
    pub fn start(testbed: &Testbed, say: &Say) -> anyhow::Result<Self> {
        say.say("how fast the machine is");
        let server = testbed.serve_at(Stack::Kernel, PORT, SMALL)?;
        let mut seen = CLIENTS.map(|clients| (clients, Vec::new()));
        for _ in 0..RUNS {
            for (clients, rates) in &mut seen {
                rates.push(testbed.ask(&server, SMALL, *clients, RUN)?.rate_per_s);
            }
        }
        if let Some(warning) = seen.iter().find_map(|(_, rates)| unsteadiness(rates)) {
            say.say(&warning);
        }
        let of = seen.map(|(clients, rates)| Rate {
            clients,
            at_first_per_s: faster_quarter(&rates),
            last: Cell::new(None),
        });
        Ok(Self { server, of })
    }

    /// How many times as many requests it answers now as at first, or did a moment ago; beside a run with so many clients.
    pub fn ratio(&self, testbed: &Testbed, clients: usize) -> anyhow::Result<f64> {
        let rate = match clients {
            1 => self.of.first(),
            _ => self.of.last(),
        };
        let rate = rate.context("invariant: there are two")?;
        if let Some((when, ratio)) = rate.last.get()
            && when.elapsed() < RECENT
        {
            return Ok(ratio);
        }
        let now = testbed.ask(&self.server, SMALL, rate.clients, RUN)?;
        let ratio = now.rate_per_s / rate.at_first_per_s;
        rate.last.set(Some((Instant::now(), ratio)));
        Ok(ratio)
    }
}

fn faster_quarter(rates: &[f64]) -> f64 {
    let sorted = sorted(rates);
    sorted
        .get(sorted.len() * 3 / 4)
        .copied()
        .unwrap_or(f64::NAN)
}

fn sorted(rates: &[f64]) -> Vec<f64> {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// What a user should know before minutes are spent: where more than a third of the first runs would not count.
fn unsteadiness(rates: &[f64]) -> Option<String> {
    let usual = faster_quarter(rates);
    let off = rates.iter().filter(|rate| is_another(**rate / usual));
    if off.count() * 3 <= rates.len() {
        return None;
    }
    let sorted = sorted(rates);
    let (slowest, fastest) = (sorted.first()?, sorted.last()?);
    Some(format!(
        "this machine is unsteady: a server on the kernel answered {slowest:.0} to {fastest:.0} requests/s within seconds; much will be *not known*, and it takes longer. Try again when its host has less to do"
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
    use super::*;

    #[test]
    fn the_machine_is_as_fast_as_in_the_faster_quarter_of_the_first_runs() {
        let two_speeds = (0..40).map(|n| if n % 3 == 0 { 95.0 } else { 50.0 });
        let rates: Vec<f64> = two_speeds.collect();
        assert!((faster_quarter(&rates) - 95.0).abs() < 1e-9);
        assert!(unsteadiness(&rates).is_some_and(|text| text.contains("50 to 95")));
    }

    #[test]
    fn nothing_is_said_of_a_steady_machine() {
        let rates: Vec<f64> = (0..40).map(|n| 95.0 - f64::from(n % 8)).collect();
        assert_eq!(unsteadiness(&rates), None);
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
