//! `shunt sim plan --verify`: the planner's predictions held against measurements on this machine.
//!
//! First the costs are calibrated with some workloads; then others are predicted from these costs and measured: a
//! server that computes a little and answers with a kilobyte, and redis as it was seen while it ran on the kernel
//! under other clients. No row that is judged was calibrated with. What is compared is what clients see who wait for
//! each answer. What the model does not know is measured all the same, and its row says so in place of a prediction.

mod redis;
mod report;

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use load::trial::{Say, Server, Stack, Testbed, Work, quiet::quiet};
use load::{competing::beside, interrupt::Interrupt};
use serde::Serialize;
use sim::plan::{Client, ClosedLoop, Preset, Workload, closed_loop};

use crate::calibrate::{of_the_calls, of_the_stacks};
use statistics::Summary;

/// The bound within which a prediction is good enough to decide with.
const BOUND: f64 = 0.1;
/// Batches of the calibration and of each measurement; medians count.
const BATCHES: u8 = 3;
const RUNS: usize = 5;
/// Runs of a row that others may disturb before the least disturbed ones count.
const MOST_DISTURBED: usize = 15;
const RUN: Duration = Duration::from_millis(800);
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
type Prediction = Result<ClosedLoop, &'static str>;

/// One prediction and what came of it.
#[derive(Debug, Serialize)]
struct Row {
    workload: &'static str,
    stack: &'static str,
    clients: usize,
    predicted: Option<ClosedLoop>,
    /// Why nothing is predicted.
    not_known: Option<&'static str>,
    rate_per_s: Summary,
    mean_us: Summary,
    /// Runs that others disturbed and that do not count.
    disturbed: usize,
    /// The part of a processor that others used beside the runs that count, at most.
    others: f64,
    /// Whether so many clients keep the server as busy as it can be.
    saturated: bool,
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
            not_known: prediction.err(),
            predicted: prediction.ok(),
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

    fn holds(&self) -> bool {
        self.errors().is_none_or(|[rate, mean]| {
            (!self.saturated || rate.abs() <= BOUND) && mean.abs() <= BOUND
        })
    }
}

/// Runs the comparison; exit status 1 where a prediction missed its bound.
pub fn execute(json: bool) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::catch()?;
    let say = Say::from_now();
    say.say("calibrating: the kernel's calls");
    let preset = of_the_calls(BATCHES)?;
    let testbed = Testbed::create(interrupt.clone())?;
    let preset = of_the_stacks(preset, &testbed, BATCHES, &say)?;
    let mut rows = Vec::new();
    let measured = |stack: &Stack| {
        preset
            .stacks
            .get(stack.name())
            .is_some_and(|costs| costs.client().is_some())
    };
    let stacks: Vec<Stack> = Stack::ALL.into_iter().filter(measured).collect();
    for &stack in &stacks {
        own_server(&testbed, stack, &preset, &say, &mut rows)?;
    }
    let redis_missing = redis::measure(&testbed, &stacks, &preset, &interrupt, &say, &mut rows)?;
    if json {
        output::print_json(&rows)?;
    } else {
        let document = report::of(&rows, &preset, testbed.idle_held(), redis_missing);
        output::print(&document.to_text())?;
    }
    Ok(match rows.iter().all(Row::holds) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}

fn own_server(
    testbed: &Testbed,
    stack: Stack,
    preset: &Preset,
    say: &Say,
    rows: &mut Vec<Row>,
) -> anyhow::Result<()> {
    for (name, work, counts) in [
        ("own server", WORK, &CLIENTS[..]),
        ("own server, 8 KiB", LARGE, &[FEW]),
    ] {
        let workload = Workload {
            request_bytes: work.request_bytes as f64,
            response_bytes: work.response_bytes as f64,
            application_ns: work.compute_ns as f64,
            ..one_thread()
        };
        let server = testbed.serve(stack, work)?;
        for &clients in counts {
            say.say(&format!("{name}, {stack}, {clients} clients"));
            let measured = measured(testbed, &server, || {
                let seen = testbed.ask(&server, work, clients, RUN)?;
                Ok((seen.rate_per_s, seen.mean_us))
            })?;
            let prediction = match crowded(testbed, stack, clients) {
                Some(why) => Err(why),
                None => Ok(predicted(
                    &workload,
                    preset,
                    Extra::default(),
                    stack,
                    clients,
                )?),
            };
            let saturated = clients >= SATURATING;
            rows.push(Row::new(
                (name, stack, clients),
                prediction,
                measured,
                saturated,
            ));
        }
    }
    busy_machine(testbed, stack, say, rows)
}

const BUSY: &str =
    "who shares its processors with programs that compute gets them when Linux gives them";
const CROWDED: &str =
    "program, engine and clients share two processors, and Linux takes one away within a turn";

/// Why nothing is known of clients that leave an engine no processor of its own.
fn crowded(testbed: &Testbed, stack: Stack, clients: usize) -> Option<&'static str> {
    let is_crowded = stack == Stack::Engine && clients > 1 && testbed.processors() < 3;
    is_crowded.then_some(CROWDED)
}

/// The own server beside a program on each processor that only computes.
fn busy_machine(
    testbed: &Testbed,
    stack: Stack,
    say: &Say,
    rows: &mut Vec<Row>,
) -> anyhow::Result<()> {
    say.say(&format!("own server beside other load, {stack}"));
    let server = testbed.serve(stack, WORK)?;
    let (mut rates, mut means) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (seen, _) = beside(|| testbed.ask(&server, WORK, FEW, RUN))?;
        rates.push(seen.rate_per_s);
        means.push(seen.mean_us);
    }
    let measured = Measured {
        rate_per_s: Summary::of(&rates).context("no run")?,
        mean_us: Summary::of(&means).context("no run")?,
        disturbed: 0,
        others: 0.0,
    };
    let what = ("own server, busy machine", stack, FEW);
    rows.push(Row::new(what, Err(BUSY), measured, false));
    Ok(())
}

/// What some runs measured.
#[derive(Debug)]
struct Measured {
    rate_per_s: Summary,
    mean_us: Summary,
    disturbed: usize,
    others: f64,
}

/// Measures rate and mean time until enough runs were not disturbed.
fn measured(
    testbed: &Testbed,
    server: &Server,
    mut run: impl FnMut() -> anyhow::Result<(f64, f64)>,
) -> anyhow::Result<Measured> {
    let found = quiet(RUNS, MOST_DISTURBED, || {
        testbed.with_others(server, &mut run)
    })?;
    let (rates, means): (Vec<f64>, Vec<f64>) = found.runs.into_iter().unzip();
    Ok(Measured {
        rate_per_s: Summary::of(&rates).context("no run")?,
        mean_us: Summary::of(&means).context("no run")?,
        disturbed: found.disturbed,
        others: found.others,
    })
}

/// A server of one thread on two processors, of which its clients use the other.
fn one_thread() -> Workload {
    Workload {
        threads: 1,
        host_cores: 2,
        wake_share: 0.0,
        ..Workload::default()
    }
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
