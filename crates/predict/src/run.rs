//! `shunt sim run` and `shunt sim explain`: one scenario.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use sim::{
    machine::{Machine, Outcome, Work},
    report,
    report::document::Block,
    scenario::Scenario,
    statistics::summary::{Summary, background_phase, offered_loads, replicate_with},
    time::from_ms,
};

use output::write_file;

use crate::{command::scenario, progress::Progress};

/// Simulate one scenario
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt sim run scenarios/fig8.toml --set workload.clients=6
  shunt sim run my.toml --set nic.clock_mhz=200 --seed 7 --json
  shunt sim run my.toml --until 2                 runs until the mean is known within ± 2 %
  shunt sim run my.toml --trace host.jsonl --delays host.cdf   delays for a packet-level simulator
  shunt sim run my.toml --html run.html           with who ran what, when")]
pub struct Arguments {
    /// The scenario (TOML; docs/simulator.md lists the keys)
    file: PathBuf,
    /// Another value for a key: nic.clock_mhz=200; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Seed of the first run
    #[arg(long, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// More runs until the 95 % confidence interval of the mean is ± this many percent
    #[arg(long, value_name = "PERCENT", value_parser = percent, allow_negative_numbers = true)]
    until: Option<f64>,
    /// Write each request's times at the host, one JSON object a line
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write the distribution of the host's delays, as ns-3's EmpiricalRandomVariable takes it
    #[arg(long, value_name = "FILE")]
    delays: Option<PathBuf>,
    /// Write one HTML page with a timeline of the first run
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok();
    value
        .filter(|value| *value > 0.0 && value.is_finite())
        .ok_or_else(|| format!("{text} is no part of a mean, in percent and above 0"))
}

/// Show which processor does what in a scenario, and what its load asks of each
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt sim explain scenarios/fig8.toml
  shunt sim explain scenarios/fig10.toml --set nic.clock_mhz=200 --json")]
pub struct Explain {
    /// The scenario (TOML)
    file: PathBuf,
    /// Another value for a key
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Whole<'a> {
    version: &'static str,
    scenario: &'a Scenario,
    summary: &'a Summary,
    warnings: Vec<String>,
}

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut settings = arguments.set.clone();
    settings.extend(arguments.seed.map(|seed| format!("runs.seed={seed}")));
    settings.extend(
        arguments
            .until
            .map(|until| format!("runs.until_percent={until}")),
    );
    let scenario = scenario(&arguments.file, &settings)?;
    let mut trace = String::new();
    let known = scenario.runs.until_percent == 0.0;
    let mut progress = Progress::new("runs", known.then_some(scenario.runs.replications));
    let summary = replicate_with(&scenario, |run, outcome| {
        if arguments.trace.is_some() {
            trace += &lines(run, outcome);
        }
        progress.step();
    });
    if let Some(file) = &arguments.trace {
        write_file("--trace", file, &trace)?;
    }
    if let Some(file) = &arguments.delays {
        let outcome = Machine::run(
            &scenario,
            scenario.runs.seed,
            background_phase(&scenario, 0),
        );
        write_file("--delays", file, &report::host_delays(&outcome))?;
    }
    if let Some(file) = &arguments.html {
        html(&scenario, &summary, file)?;
    }
    output::print_result(
        arguments.json,
        &Whole {
            version: env!("CARGO_PKG_VERSION"),
            scenario: &scenario,
            warnings: report::warnings(&summary),
            summary: &summary,
        },
        || report::of_run(&scenario, &summary).to_text(),
    )?;
    std::io::stdout().flush().context("writing the result")?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Serialize)]
struct TraceLine {
    run: usize,
    client: u32,
    arrived_ns: u64,
    left_ns: u64,
    host_delay_ns: u64,
}

fn lines(run: usize, outcome: &Outcome) -> String {
    let line = |times: sim::machine::Times| {
        let line = TraceLine {
            run,
            client: times.client,
            arrived_ns: times.arrived_ns,
            left_ns: times.left_ns,
            host_delay_ns: times.left_ns - times.arrived_ns,
        };
        serde_json::to_string(&line).map_or_else(|_| String::new(), |line| line + "\n")
    };
    outcome.times().map(line).collect()
}

/// Most spans and longest stretch of the timeline: what a picture can show.
const SPANS: usize = 4000;
const SHOWN_MS: f64 = 500.0;

fn html(scenario: &Scenario, summary: &Summary, file: &Path) -> anyhow::Result<()> {
    let phase = background_phase(scenario, 0);
    let outcome = Machine::run_with_timeline(scenario, scenario.runs.seed, phase, SPANS);
    let mut document = report::of_run(scenario, summary);
    let last = outcome.spans.last().map_or(1, |span| span.to);
    let end = last.min(from_ms(SHOWN_MS));
    document.heading("Who ran what in the first run");
    let drawing = report::timeline(&outcome.spans, 0, end);
    document.blocks.push(Block::Drawing(drawing));
    write_file("--html", file, &document.to_html())
}

#[derive(Debug, Serialize)]
struct Explained<'a> {
    packets_per_request: usize,
    steps: Vec<report::Step>,
    /// What the load asks of each resource, as a part of what it can do.
    asked_of: BTreeMap<&'static str, f64>,
    scenario: &'a Scenario,
}

pub fn explain(arguments: &Explain) -> anyhow::Result<ExitCode> {
    let scenario = scenario(&arguments.file, &arguments.set)?;
    output::print_result(
        arguments.json,
        &Explained {
            packets_per_request: Work::new(&scenario).packets,
            steps: report::steps(&scenario),
            asked_of: offered_loads(&scenario),
            scenario: &scenario,
        },
        || report::explain(&scenario).to_text(),
    )?;
    Ok(ExitCode::SUCCESS)
}
