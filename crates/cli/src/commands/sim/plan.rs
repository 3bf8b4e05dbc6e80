//! `shunt sim plan`: what offload would buy a workload.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::Args;
use sim::plan::{Preset, Workload, plan};

use crate::output;

/// Say what offload would buy a workload: buys, buys nothing, or hurts, and why
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt sim plan workloads/rpc.toml
  shunt sim calibrate --out mine.toml && shunt sim plan my.toml --preset mine.toml
  shunt sim plan my.toml --json

workloads/ has one case that gains and four that do not; docs/simulator.md lists the keys.")]
pub struct Arguments {
    /// The workload (TOML)
    file: PathBuf,
    /// Costs as `shunt sim calibrate` writes them; by default those that come with the program
    #[arg(long, value_name = "FILE")]
    preset: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let read = |file: &PathBuf| {
        fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
    };
    let text = read(&arguments.file)?;
    let named = || format!("in {}", arguments.file.display());
    let workload = Workload::parse(&text).with_context(named)?;
    let preset = match &arguments.preset {
        None => Preset::shipped(),
        Some(file) => Preset::parse(&read(file)?)
            .with_context(|| format!("--preset: in {}", file.display()))?,
    };
    let plan = plan(&workload, &preset).with_context(named)?;
    if arguments.json {
        output::print_json(&plan)?;
    } else {
        output::print(&plan.report(&workload, &preset.machine).to_text())?;
    }
    Ok(ExitCode::SUCCESS)
}
