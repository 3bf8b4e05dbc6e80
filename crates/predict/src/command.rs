//! `shunt sim`: what offload would buy, simulated. docs/simulator.md explains the model.

use std::{fs, path::Path, process::ExitCode};

use anyhow::Context;
use clap::{Args, Subcommand};
use sim::scenario::Scenario;

use crate::{calibrate, paper, plan, run, sweep, theory};

/// Simulate hosts, NIC processors, buses and links: what would offload buy?
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt sim paper --check
  shunt sim run scenarios/fig8.toml --set workload.clients=6 --set stack.kind=user
  shunt sim sweep scenarios/fig10.toml --html fig10.html
  shunt sim plan workloads/rpc.toml

Exit status: 0 success, 1 a check failed, 2 wrong usage or a scenario that cannot be, 130
interrupted.")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Paper(paper::Arguments),
    Run(run::Arguments),
    Explain(run::Explain),
    Sweep(sweep::Arguments),
    Merge(sweep::Merge),
    Plan(plan::Arguments),
    Calibrate(calibrate::Arguments),
    Theory(theory::Arguments),
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        Command::Paper(arguments) => paper::execute(arguments),
        Command::Run(arguments) => run::execute(arguments),
        Command::Explain(arguments) => run::explain(arguments),
        Command::Sweep(arguments) => sweep::execute(arguments),
        Command::Merge(arguments) => sweep::merge(arguments),
        Command::Plan(arguments) => plan::execute(arguments),
        Command::Calibrate(arguments) => calibrate::execute(arguments),
        Command::Theory(arguments) => theory::execute(arguments),
    }
}

/// Reads a scenario file and changes single keys; errors name the file.
pub fn scenario(file: &Path, settings: &[String]) -> anyhow::Result<Scenario> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let scenario = sim::scenario::parse(&text).with_context(|| format!("in {}", file.display()))?;
    let settings = settings.iter().map(String::as_str);
    sim::scenario::with_settings(&scenario, settings).context("in --set")
}
