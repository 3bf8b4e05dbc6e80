//! `shunt bench`: side-by-side measurements against the kernel.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::bench::{apps, tcp};

/// Measure Shunt and the kernel side by side.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt bench apps
  shunt bench tcp --quick
  shunt bench apps --only nginx,redis --runs 7 --json")]
pub struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    Apps(apps::Arguments),
    Tcp(tcp::Arguments),
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match &arguments.benchmark {
        Benchmark::Apps(arguments) => apps::execute(arguments),
        Benchmark::Tcp(arguments) => tcp::execute(arguments),
    }
}
