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
use crate::control::{self, Control, on_the_usual};
use judge::{Verdict, width};
use redis::Redis;
use statistics::Summary;

/// The bound within which a prediction is good enough to decide with.
const BOUND: f64 = 0.1;
/// Batches of each trial of the calibration; medians count.
const BATCHES: u8 = 7;
/// Runs of a row with a prediction: more and more, until their median is known within the bound.
const RUNS: std::ops::RangeInclusive<usize> = 9..=41;
/// Runs of a row that is not predicted.
const RUNS_UNKNOWN: usize = 3;
const RUN: Duration = Duration::from_millis(250);
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
    say: &'a Say,
}

impl Bench<'_> {
    /// Measures a stack's costs; false: it could not be.
    fn calibrate(&mut self, stack: Stack) -> anyhow::Result<bool> {
        let by = (self.testbed, &self.control);
        of_a_stack(&mut self.preset, by, stack, BATCHES, self.say)
    }

    /// Says what came of a row at once: a run that is interrupted has said that much.
    fn add(&self, rows: &mut Vec<Row>, row: Row) {
        self.say.say(&report::line(&row));
        rows.push(row);
    }
}

/// Why nothing is known of a row some of whose runs were of another machine.
const SELDOM: &str = "the machine was seldom as fast as usual: so says a server on the kernel that was asked the same beside all runs";

/// What is predicted for the usual machine, on one of that ratio. What the server computes it measures off by the clock.
fn on_this_machine(predicted: ClosedLoop, by_clock_ns: f64, ratio: f64) -> ClosedLoop {
    let between_ns = 1e9 / predicted.rate_per_s;
    let longer = on_the_usual(between_ns, by_clock_ns, 1.0 / ratio) / between_ns;
    ClosedLoop {
        rate_per_s: predicted.rate_per_s / longer,
        mean_us: predicted.mean_us * longer,
        p50_us: predicted.p50_us * longer,
        p99_us: predicted.p99_us * longer,
        ..predicted
    }
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
        let by_clock_ns = work.compute_ns as f64;
        let found = measured(bench, (&server, by_clock_ns), rows_of_it, |index| {
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

/// How often a row is measured: where something is predicted until the median of rate and mean is known within the bound, and that of how fast the machine
/// was beside it as well. Whether the prediction is near has no part in it.
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
                    && known(runs.iter().map(|run| run.ratio).collect())
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
            is_another: false,
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
    /// It was another one.
    is_another: bool,
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

/// Measures rate and mean time of each row of a server in turns, which computes so long by the clock. A run beside which the machine was another one does not
/// count.
fn measured(
    bench: &Bench<'_>,
    (server, by_clock_ns): (&Server, f64),
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
        let (((rate_per_s, mean_us), others), speed) = control.beside(testbed, run)?;
        let run = Run {
            rate_per_s,
            mean_us,
            ratio: speed.ratio(),
            is_another: speed.is_another(),
            others,
        };
        Ok((run, control::disturbance(others, speed)))
    })?;
    let judged = rows.into_iter().zip(found);
    let judged = judged.map(|((_, prediction), found)| {
        let ratios: Vec<f64> = found.runs.iter().map(|run| run.ratio).collect();
        let ratio = Summary::of(&ratios).context("no run")?.median;
        let prediction = match found.runs.iter().any(|run| run.is_another) {
            true => prediction.and(Err(SELDOM.to_owned())),
            false => prediction.map(|known| on_this_machine(known, by_clock_ns, ratio)),
        };
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
        let of = |rates: &[f64], ratios: &[f64]| {
            let run = |(rate, ratio): (&f64, &f64)| Run {
                rate_per_s: *rate,
                mean_us: 1e6 / rate,
                ratio: *ratio,
                is_another: false,
                others: 0.0,
            };
            let runs: Vec<Run> = rates.iter().zip(ratios).map(run).collect();
            let wanted = runs_of_a_prediction();
            (wanted.is_enough)(&runs.iter().collect::<Vec<_>>())
        };
        assert!(of(&[100.0; 9], &[1.0; 9]));
        let two_ways: Vec<f64> = (0..9)
            .map(|n| if n % 2 == 0 { 90.0 } else { 120.0 })
            .collect();
        assert!(!of(&two_ways, &[1.0; 9]));
        // Nor is it known how fast the machine was.
        let ratios: Vec<f64> = two_ways.iter().map(|rate| rate / 100.0).collect();
        assert!(!of(&[100.0; 9], &ratios));
        assert_eq!(runs(&Err(String::new())).most, RUNS_UNKNOWN);
    }

    #[test]
    fn a_prediction_follows_the_machine_but_for_what_the_clock_measures_off() {
        let costs = Preset::shipped();
        let workload = workload_of(WORK);
        let usual = predicted(&workload, &costs, Extra::default(), Stack::Kernel, 32).unwrap();
        let slower = on_this_machine(usual, 3000.0, 0.9);
        let between_ns = |of: &ClosedLoop| 1e9 / of.rate_per_s;
        let rest = (between_ns(&slower) - 3000.0) / (between_ns(&usual) - 3000.0);
        assert!((rest * 0.9 - 1.0).abs() < 1e-9, "{rest}");
        // Little's law holds as before.
        let clients = |of: &ClosedLoop| of.rate_per_s * of.mean_us;
        assert!((clients(&slower) / clients(&usual) - 1.0).abs() < 1e-9);
        let same = on_this_machine(usual, 3000.0, 1.0);
        assert!((same.rate_per_s / usual.rate_per_s - 1.0).abs() < 1e-9);
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
