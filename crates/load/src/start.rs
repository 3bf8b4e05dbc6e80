//! How long a short program takes from its start to its end, started by what stands before it in its command line.

use std::{
    ffi::OsString,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::Args;
use serde::{Deserialize, Serialize};

/// Start a program again and again, for a time.
#[derive(Debug, Args)]
pub struct Arguments {
    /// How long.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// The program and its arguments; what it prints is thrown away.
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// What was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The median time from fork to exit.
    pub p50_ms: f64,
}

/// Starts that do not count: the first one reads files that later ones find in memory.
const WARM_UP: usize = 3;

/// Runs for the time that was asked for.
pub fn execute(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let length = Duration::from_secs_f64(arguments.seconds);
    let begun = Instant::now();
    let mut times_ms = Vec::new();
    while times_ms.len() <= WARM_UP || begun.elapsed() < length {
        times_ms.push(start(&arguments.command)?.as_secs_f64() * 1e3);
    }
    let counted = &mut times_ms[WARM_UP..];
    counted.sort_by(f64::total_cmp);
    Ok(Outcome {
        p50_ms: counted[counted.len() / 2],
    })
}

/// From the start of one to its end.
fn start(command: &[OsString]) -> anyhow::Result<Duration> {
    let (program, rest) = command.split_first().context("no program given")?;
    let begun = Instant::now();
    let status = Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let took = begun.elapsed();
    if !status.success() {
        bail!("{} ended with {status}", program.display());
    }
    Ok(took)
}
