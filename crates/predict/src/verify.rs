//! `shunt sim plan --verify`: the planner's predictions held against measurements on this machine.
//!
//! For each stack the costs are calibrated with some workloads; then others are predicted from these costs and measured, at once, before the
//! machine becomes another: a server that computes a little and answers with a kilobyte, and redis as it was seen while it ran on the kernel
//! under other clients. No row that is judged was calibrated with. What is compared is what clients see who wait for
//! each answer. What the model does not know is measured all the same, and its row says so in place of a prediction.

mod judge;
mod redis;
mod report;

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use load::trial::{
    Say, Server, Stack, Testbed, Work,
    quiet::{QuietRuns, Wanted, in_turns},
};
use load::{competing::beside, interrupt::Interrupt};
use serde::Serialize;
use sim::plan::{Client, ClosedLoop, Preset, Workload, between, closed_loop};

use crate::calibrate::{of_a_stack, of_the_calls, trials::workload_of};
use crate::control::{self, Control};
use judge::{Verdict, width};
use redis::Redis;
use statistics::Summary;

/// The bound within which a prediction is good enough to decide with.
const BOUND: f64 = 0.1;
/// Batches of each trial of the calibration; medians count.
const BATCHES: u8 = 9;
/// Runs of a row with a prediction: more and more, until their median is known within the bound.
const RUNS: std::ops::RangeInclusive<usize> = 9..=21;
/// Runs of a row that is not predicted.
const RUNS_UNKNOWN: usize = 3;
const RUN: Duration = Duration::from_millis(600);
/// A machine that has changed by more than this since a stack was calibrated is another one: half of the bound is the model's.
const CHANGE: f64 = BOUND / 2.0;
/// Clients of the own server.
const CLIENTS: [usize; 4] = [1, 8, 32, 50];
/// With so many it is as busy as it can be.
const SATURATING: usize = 32;
/// Clients of its other workloads.
const FEW: usize = 8;
const WORK: Work = Work {
    request_bytes: 128,
    response_bytes: 1024,
    compute_ns: 3000,
    together: false,
};

/// The same with answers of several packets.
const LARGE: Work = Work {
    response_bytes: 8192,
    ..WORK
};

/// What the model says of a workload; why it says nothing where it does not know it.
type Prediction = Result<ClosedLoop, String>;

/// One prediction and what came of it.
#[derive(Debug, Serialize)]
struct Row {
    workload: &'static str,
    stack: &'static str,
    clients: usize,
    predicted: Option<ClosedLoop>,
    /// Why nothing is predicted.
    not_known: Option<String>,
    rate_per_s: Summary,
    mean_us: Summary,
    /// Runs that others disturbed and that do not count.
    disturbed: usize,
    /// The part of a processor that others used beside the runs that count, at most.
    others: f64,
    /// Whether so many clients keep the server as busy as it can be.
    saturated: bool,
}

/// A row as it is printed as JSON.
#[derive(Debug, Serialize)]
struct Judged<'a> {
    #[serde(flatten)]
    row: &'a Row,
    verdict: &'static str,
    /// Why it is not known.
    why: Option<String>,
}

impl<'a> Judged<'a> {
    fn of(row: &'a Row) -> Self {
        let verdict = row.verdict();
        Self {
            row,
            verdict: verdict.name(),
            why: match verdict {
                Verdict::NotKnown(why) => Some(why),
                Verdict::Holds | Verdict::Missed => None,
            },
        }
    }
}

impl Row {
    fn new(
        (workload, stack, clients): (&'static str, Stack, usize),
        prediction: Prediction,
        measured: Measured,
        saturated: bool,
    ) -> Self {
        Self {
            workload,
            stack: stack.name(),
            clients,
            predicted: prediction.as_ref().ok().copied(),
            not_known: prediction.err(),
            rate_per_s: measured.rate_per_s,
            mean_us: measured.mean_us,
            disturbed: measured.disturbed,
            others: measured.others,
            saturated,
        }
    }

    /// How far the prediction is from the rate and from the mean.
    fn errors(&self) -> Option<[f64; 2]> {
        let predicted = self.predicted?;
        Some([
            predicted.rate_per_s / self.rate_per_s.median - 1.0,
            predicted.mean_us / self.mean_us.median - 1.0,
        ])
    }
}

/// Runs the comparison; exit status 1 where a prediction missed its bound, or none could be held against it.
pub fn execute(json: bool) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::catch()?;
    let say = Say::from_now();
    say.say("calibrating: the kernel's calls");
    let preset = of_the_calls(BATCHES)?;
    let testbed = Testbed::create(interrupt.clone())?;
    let mut bench = Bench {
        control: Control::start(&testbed, &say)?,
        testbed: &testbed,
        preset,
        machine: 1.0,
        say: &say,
    };
    let mut redis = Redis::find(&testbed, &interrupt)?;
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for (place, stack) in Stack::ALL.into_iter().enumerate() {
        // It may have become another machine for longer than anybody waits.
        if place > 0 {
            bench.control.look(&testbed)?;
        }
        if !bench.calibrate(stack)? {
            missing.push(format!(
                "{stack}, whose calibration failed as was said on standard error"
            ));
            continue;
        }
        own_server(&bench, stack, &mut rows)?;
        if let Some(redis) = &mut redis {
            redis.measure(&bench, stack, &mut rows)?;
        }
    }
    if redis.is_none() {
        missing.push("redis-server and redis-benchmark are not in PATH".to_owned());
    }
    let judged: Vec<Judged<'_>> = rows.iter().map(Judged::of).collect();
    output::print_result(json, &judged, || {
        report::of(&rows, &bench.preset, testbed.idle_not_held(), &missing).to_text()
    })?;
    let is = |verdict: Verdict| rows.iter().any(|row| row.verdict() == verdict);
    // Where nothing is known nothing was held against anything.
    let is_failure = is(Verdict::Missed) || !is(Verdict::Holds);
    Ok(ExitCode::from(u8::from(is_failure)))
}

/// What rows are measured and predicted with.
struct Bench<'a> {
    testbed: &'a Testbed,
    control: Control,
    preset: Preset,
    /// How fast the machine was while the stack was calibrated.
    machine: f64,
    say: &'a Say,
}

impl Bench<'_> {
    /// How many requests a server on the kernel answered each second meanwhile.
    fn machine_per_s(&self) -> f64 {
        self.machine * self.control.usual_per_s()
    }

    /// Measures a stack's costs; false: it could not be.
    fn calibrate(&mut self, stack: Stack) -> anyhow::Result<bool> {
        let by = (self.testbed, &self.control);
        let machine = of_a_stack(&mut self.preset, by, stack, BATCHES, self.say)?;
        self.machine = machine.unwrap_or(self.machine);
        Ok(machine.is_some())
    }

    /// Says what came of a row at once: a run that is interrupted has said that much.
    fn add(&self, rows: &mut Vec<Row>, row: Row) {
        self.say.say(&report::line(&row));
        rows.push(row);
    }
}

/// How much faster or slower, where that is more than is allowed.
fn speed_change(by: f64) -> Option<String> {
    let how = if by < 0.0 { "slower" } else { "faster" };
    (by.abs() > CHANGE).then(|| format!("{:.0} % {how}", 100.0 * by.abs()))
}

/// Why nothing is known of a row whose work was recorded when the machine was so fast, where it is as fast as this now.
fn recorded_on_another(then_per_s: f64, now_per_s: f64) -> Option<String> {
    speed_change(now_per_s / then_per_s - 1.0).map(|change| {
        format!(
            "the machine is {change} than when redis was recorded: so says a server on the kernel that was asked the same then and now ({:.0} % are allowed)",
            100.0 * CHANGE
        )
    })
}

/// Why nothing is known of a row beside whose runs the machine was so fast, where it was so fast while the stack was calibrated.
fn changed(then: f64, ratios: &[f64]) -> Option<String> {
    if ratios.iter().any(|ratio| control::is_another(*ratio)) {
        let why = "the machine was seldom as fast as usual: so says a server on the kernel that was asked the same beside all runs";
        return Some(why.to_owned());
    }
    speed_change(Summary::of(ratios)?.median / then - 1.0).map(|change| {
        format!(
            "the machine had become {change} since its costs were measured: a server on the kernel that was asked the same then and now says so ({:.0} % are allowed)",
            100.0 * CHANGE
        )
    })
}

fn own_server(bench: &Bench<'_>, stack: Stack, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let Bench {
        testbed,
        preset,
        say,
        ..
    } = bench;
    for (name, work, counts) in [
        ("own server", WORK, &CLIENTS[..]),
        ("own server, 8 KiB", LARGE, &[FEW]),
    ] {
        let workload = workload_of(work);
        let server = testbed.serve(stack, work)?;
        say.say(&format!("{name}, {stack}, {counts:?} clients"));
        let mut rows_of_it = Vec::new();
        for &clients in counts {
            rows_of_it.push((
                clients,
                match unknown(preset, stack, clients) {
                    Some(why) => Err(why),
                    None => Ok(predicted(
                        &workload,
                        preset,
                        Extra::default(),
                        stack,
                        clients,
                    )?),
                },
            ));
        }
        let found = measured(bench, &server, rows_of_it, |index| {
            let seen = testbed.ask(&server, work, counts[index], RUN)?;
            Ok((seen.rate_per_s, seen.mean_us))
        })?;
        for (&clients, (prediction, measured)) in counts.iter().zip(found) {
            let saturated = clients >= SATURATING;
            let row = Row::new((name, stack, clients), prediction, measured, saturated);
            bench.add(rows, row);
        }
    }
    busy_machine(bench, stack, rows)
}

const BUSY: &str = "how long a request waits for a processor that other programs compute on is decided by Linux's scheduler, which the model does not have";

/// Why nothing is known of so many clients: the trials of the calibration with as many contradict the model. It is said before
/// anything is measured.
fn unknown(preset: &Preset, stack: Stack, clients: usize) -> Option<String> {
    let trials = preset.stacks.get(stack.name()).map(|costs| &costs.trials)?;
    let off = between(trials, clients as f64)?.off;
    (off > BOUND).then(|| {
        format!(
            "calibrated on this machine a moment ago, the model is {:.0} % off of trials with about as many clients whose result it knows (the bound is {:.0} %)",
            100.0 * off,
            100.0 * BOUND
        )
    })
}

/// How often a row is measured: where something is predicted until the median of rate and mean is known within the bound. Whether
/// the prediction is near has no part in it.
fn runs(prediction: &Prediction) -> Wanted<Run> {
    match prediction {
        Err(_) => Wanted::exactly(RUNS_UNKNOWN),
        Ok(_) => Wanted {
            least: *RUNS.start(),
            most: *RUNS.end(),
            is_enough: |runs| {
                let known = |values: Vec<f64>| {
                    Summary::of(&values).is_some_and(|summary| width(&summary) <= BOUND)
                };
                known(runs.iter().map(|run| run.rate_per_s).collect())
                    && known(runs.iter().map(|run| run.mean_us).collect())
            },
        },
    }
}

/// The own server beside a program on each processor that only computes.
fn busy_machine(bench: &Bench<'_>, stack: Stack, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let Bench { testbed, say, .. } = bench;
    say.say(&format!("own server beside other load, {stack}"));
    let server = testbed.serve(stack, WORK)?;
    let mut runs = Vec::new();
    for _ in 0..RUNS_UNKNOWN {
        let (seen, _) = beside(|| testbed.ask(&server, WORK, FEW, RUN))?;
        runs.push(Run {
            rate_per_s: seen.rate_per_s,
            mean_us: seen.mean_us,
            ratio: 1.0,
            others: 0.0,
        });
    }
    let measured = Measured::of(QuietRuns {
        runs,
        disturbed: 0,
        others: 0.0,
    })?;
    let what = ("own server, busy machine", stack, FEW);
    let row = Row::new(what, Err(BUSY.to_owned()), measured, false);
    bench.add(rows, row);
    Ok(())
}

/// What one run measured.
#[derive(Debug, Clone, Copy)]
struct Run {
    rate_per_s: f64,
    mean_us: f64,
    /// How fast the machine was beside it ([`Control::beside`]).
    ratio: f64,
    /// The part of a processor that others used beside it.
    others: f64,
}

/// What some runs measured.
#[derive(Debug)]
struct Measured {
    rate_per_s: Summary,
    mean_us: Summary,
    disturbed: usize,
    others: f64,
}

impl Measured {
    fn of(found: QuietRuns<Run>) -> anyhow::Result<Self> {
        let rates: Vec<f64> = found.runs.iter().map(|run| run.rate_per_s).collect();
        let means: Vec<f64> = found.runs.iter().map(|run| run.mean_us).collect();
        Ok(Self {
            rate_per_s: Summary::of(&rates).context("no run")?,
            mean_us: Summary::of(&means).context("no run")?,
            disturbed: found.disturbed,
            others: found.runs.iter().map(|run| run.others).fold(0.0, f64::max),
        })
    }
}

/// Measures rate and mean time of each row of a server in turns. A run beside which the machine was another one does not count.
fn measured(
    bench: &Bench<'_>,
    server: &Server,
    rows: Vec<(usize, Prediction)>,
    mut run: impl FnMut(usize) -> anyhow::Result<(f64, f64)>,
) -> anyhow::Result<Vec<(Prediction, Measured)>> {
    let Bench {
        testbed, control, ..
    } = bench;
    let wanted: Vec<Wanted<Run>> = rows
        .iter()
        .map(|(_, prediction)| runs(prediction))
        .collect();
    let found = in_turns(&wanted, |index| {
        let run = || testbed.with_others(server, || run(index));
        let (((rate_per_s, mean_us), others), ratio) = control.beside(testbed, run)?;
        let run = Run {
            rate_per_s,
            mean_us,
            ratio,
            others,
        };
        Ok((run, control::disturbance(others, ratio)))
    })?;
    let judged = rows.into_iter().zip(found);
    let judged = judged.map(|((_, prediction), found)| {
        let ratios: Vec<f64> = found.runs.iter().map(|run| run.ratio).collect();
        let changed = changed(bench.machine, &ratios);
        let prediction = prediction.and_then(|known| changed.map_or(Ok(known), Err));
        Ok((prediction, Measured::of(found)?))
    });
    judged.collect()
}

/// What a client takes per request beyond the one that was calibrated with.
#[derive(Debug, Clone, Copy, Default)]
struct Extra {
    client_ns: f64,
}

fn predicted(
    workload: &Workload,
    preset: &Preset,
    extra: Extra,
    stack: Stack,
    clients: usize,
) -> anyhow::Result<ClosedLoop> {
    let costs = preset.stacks.get(stack.name());
    let costs = costs.context("invariant: the shipped preset knows every stack")?;
    let client = costs
        .client()
        .context("invariant: every stack was calibrated")?;
    let client = Client {
        request_ns: (client.request_ns + extra.client_ns).max(0.0),
        ..client
    };
    Ok(closed_loop(workload, costs, &client, clients))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_measured_until_its_median_is_known_whatever_was_predicted() {
        let of = |rates: &[f64]| {
            let run = |rate: &f64| Run {
                rate_per_s: *rate,
                mean_us: 1e6 / rate,
                ratio: 1.0,
                others: 0.0,
            };
            let runs: Vec<Run> = rates.iter().map(run).collect();
            let wanted = runs_of_a_prediction();
            (wanted.is_enough)(&runs.iter().collect::<Vec<_>>())
        };
        assert!(of(&[100.0; 9]));
        let two_ways: Vec<f64> = (0..9)
            .map(|n| if n % 2 == 0 { 90.0 } else { 120.0 })
            .collect();
        assert!(!of(&two_ways));
        assert_eq!(runs(&Err(String::new())).most, RUNS_UNKNOWN);
    }

    #[test]
    fn nothing_is_known_of_a_row_beside_which_the_machine_was_another_one() {
        assert_eq!(changed(0.95, &[0.93, 0.97, 0.99]), None);
        assert!(changed(1.0, &[0.92; 9]).unwrap().contains("8 % slower"));
        assert!(changed(0.93, &[1.0; 9]).unwrap().contains("8 % faster"));
        // Runs that do not count were kept for want of others.
        assert!(changed(1.0, &[1.0, 0.6, 1.0]).unwrap().contains("seldom"));
    }

    #[test]
    fn nothing_is_known_of_redis_on_another_machine_than_it_was_recorded_on() {
        assert_eq!(recorded_on_another(50.0, 51.0), None);
        let why = recorded_on_another(50.0, 38.5).unwrap();
        assert!(why.contains("23 % slower"), "{why}");
    }

    fn runs_of_a_prediction() -> Wanted<Run> {
        let preset = Preset::shipped();
        let prediction = predicted(
            &workload_of(WORK),
            &preset,
            Extra::default(),
            Stack::Kernel,
            8,
        );
        runs(&Ok(prediction.unwrap()))
    }
}
