//! `shunt lab list`: the labs of this user.

use std::process::ExitCode;

use clap::Args;
use lab::Lab;

use super::Description;

/// List the labs of this user, dead ones included.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt lab list
  shunt lab list --json")]
pub struct Arguments {
    /// Print the list as JSON.
    #[arg(long)]
    json: bool,
}

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut labs = Vec::new();
    for name in Lab::names()? {
        match Lab::open(&name) {
            Ok(lab) => labs.push(Description::of(&lab)),
            Err(error) => note!("shunt: {error}"),
        }
    }
    if arguments.json {
        output::print_json(&labs)?;
    } else if labs.is_empty() {
        output::print("no lab; start one with `shunt lab up`\n")?;
    } else {
        output::print(&labs.iter().map(Description::text).collect::<String>())?;
    }
    Ok(ExitCode::SUCCESS)
}
