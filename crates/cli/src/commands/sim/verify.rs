//! `shunt sim plan --verify`: the planner's predictions held against measurements on this machine.
//!
//! First the costs are calibrated with one workload; then others are predicted from these costs
//! and measured: a server that computes a little and answers with a kilobyte, and redis as it
//! was seen while it ran on the kernel. What is compared is what clients see who wait for each answer.

mod redis;
mod report;

use std::{collections::BTreeMap, process::ExitCode, time::Duration};

use anyhow::Context;
use serde::Serialize;
use sim::plan::{ClosedLoop, Preset, Workload, closed_loop};

use super::calibrate::{Calibration, of_the_calls, of_the_stacks};
use crate::{
    bench::{interrupt::Interrupt, statistics::Summary},
    output,
    trial::{Bed, Say, Stack, Work},
};

/// The bounds within which a prediction is good enough to decide with.
const CAPACITY_BOUND: f64 = 0.2;
const MEAN_BOUND: f64 = 0.3;
/// Batches of the calibration and of each measurement; medians count.
const BATCHES: u8 = 5;
const RUNS: usize = 5;
const RUN: Duration = Duration::from_millis(800);
/// Clients of the own server; with the last number it is as busy as it can be.
const CLIENTS: [usize; 3] = [1, 8, 32];
const WORK: Work = Work {
    request_bytes: 128,
    response_bytes: 1024,
    compute_ns: 3000,
    together: false,
};

/// One prediction and what came of it.
#[derive(Debug, Serialize)]
struct Row {
    workload: &'static str,
    stack: &'static str,
    predicted: ClosedLoop,
    rate_per_s: Summary,
    mean_us: Summary,
    /// Whether so many clients keep the server as busy as it can be.
    saturated: bool,
}

impl Row {
    fn rate_error(&self) -> f64 {
        self.predicted.rate_per_s / self.rate_per_s.median - 1.0
    }

    fn mean_error(&self) -> f64 {
        self.predicted.mean_us / self.mean_us.median - 1.0
    }

    fn holds(&self) -> bool {
        let capacity = !self.saturated || self.rate_error().abs() <= CAPACITY_BOUND;
        capacity && self.mean_error().abs() <= MEAN_BOUND
    }
}

/// Runs the comparison; exit status 1 where a prediction missed its bound.
pub fn execute(json: bool) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::catch()?;
    let say = Say::new();
    say.say("calibrating: the kernel's calls");
    let preset = of_the_calls(BATCHES)?;
    let bed = Bed::create(interrupt.clone())?;
    let calibration = of_the_stacks(preset, &bed, BATCHES, &say)?;
    let mut rows = Vec::new();
    let measured = |stack: &Stack| calibration.client_ns.contains_key(stack.name());
    let stacks: Vec<Stack> = Stack::ALL.into_iter().filter(measured).collect();
    for &stack in &stacks {
        own_server(&bed, stack, &calibration, &say, &mut rows)?;
    }
    let redis_missing = redis::measure(&bed, &stacks, &calibration, &interrupt, &say, &mut rows)?;
    if json {
        output::print_json(&rows)?;
    } else {
        let document = report::of(&rows, &calibration.preset, bed.idle_held(), redis_missing);
        output::print(&document.to_text())?;
    }
    Ok(match rows.iter().all(Row::holds) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}

fn own_server(
    bed: &Bed,
    stack: Stack,
    calibration: &Calibration,
    say: &Say,
    rows: &mut Vec<Row>,
) -> anyhow::Result<()> {
    let client_ns = calibration.client_ns.get(stack.name()).copied();
    let workload = Workload {
        request_bytes: WORK.request_bytes as f64,
        response_bytes: WORK.response_bytes as f64,
        application_ns: WORK.compute_ns as f64,
        client_ns: client_ns.context("invariant: every stack was calibrated")?,
        ..one_thread()
    };
    let server = bed.serve(stack, WORK)?;
    for clients in CLIENTS {
        say.say(&format!("own server, {stack}, {clients} clients"));
        let (mut rates, mut means) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            let seen = bed.ask(&server, WORK, clients, RUN)?;
            rates.push(seen.rate_per_s);
            means.push(seen.mean_us);
        }
        rows.push(Row {
            workload: "own server",
            stack: stack.name(),
            predicted: predicted(&workload, &calibration.preset, stack, clients)?,
            rate_per_s: Summary::of(&rates).context("no run")?,
            mean_us: Summary::of(&means).context("no run")?,
            saturated: clients == 32,
        });
    }
    Ok(())
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

fn predicted(
    workload: &Workload,
    preset: &Preset,
    stack: Stack,
    clients: usize,
) -> anyhow::Result<ClosedLoop> {
    let costs = preset.stacks.get(stack.name());
    let costs = costs.context("invariant: the shipped preset knows every stack")?;
    Ok(closed_loop(workload, costs, clients))
}

/// How dear a client of this stack is beside one of the kernel's.
fn client_ratio(client_ns: &BTreeMap<&'static str, f64>, stack: Stack) -> f64 {
    let of = |stack: Stack| client_ns.get(stack.name()).copied().unwrap_or(0.0);
    match of(Stack::Kernel) > 0.0 {
        true => of(stack) / of(Stack::Kernel),
        false => 1.0,
    }
}
