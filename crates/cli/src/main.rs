//! The `shunt` command: reads the command line and hands over to one file per command.
//!
//! Exit status: 0 success, 1 something was measured or checked and failed, 2 wrong usage or a
//! system error, 130 interrupted. `shunt run` and `shunt lab exec` end with the status of the program they start.

#![deny(clippy::print_stderr, clippy::print_stdout)] // they end the process where nobody reads: see `output`

#[macro_use]
extern crate output;

mod commands;
mod sys;

use std::process::ExitCode;

use clap::Parser;
use load::interrupt::{self, Interrupted};

/// A host-independent network stack: TCP/IP beside the kernel, for programs as they are.
#[derive(Debug, Parser)]
#[command(
    name = "shunt",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let command = commands::Command::run_alone().unwrap_or_else(|| Cli::parse().command);
    let code = match (command.execute(), output::failed()) {
        (Ok(code), None) => code,
        (Ok(_), Some(error)) => {
            note!("shunt: {error:#}");
            ExitCode::from(2)
        }
        (Err(error), _) => {
            note!("shunt: {error:#}");
            let interrupted = error.chain().any(|cause| cause.is::<Interrupted>());
            ExitCode::from(if interrupted { interrupt::STATUS } else { 2 })
        }
    };
    output::log::flush();
    code
}
