//! The `shunt` command: reads the command line and hands over to one file per command.
//!
//! Exit status: 0 success, 1 something was measured or checked and failed, 2 wrong usage or a
//! system error, 130 interrupted. `shunt run` and `shunt lab exec` end with the status of the program they start.

mod bench;
mod commands;
mod control;
mod observe;
mod output;
mod sys;
mod trial;

use std::process::ExitCode;

use clap::Parser;

use bench::interrupt::{self, Interrupted};

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
    match Cli::parse().command.execute() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("shunt: {error:#}");
            let interrupted = error.chain().any(|cause| cause.is::<Interrupted>());
            ExitCode::from(if interrupted { interrupt::STATUS } else { 2 })
        }
    }
}
