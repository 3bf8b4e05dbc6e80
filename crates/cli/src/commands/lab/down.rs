//! `shunt lab down`: removes a lab with everything that runs in it.

use std::process::ExitCode;

use clap::Args;
use lab::Lab;
use serde::Serialize;

use super::{Name, cable};

/// Remove the lab and end every program that runs in it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt lab down
  shunt lab down --name wan")]
pub struct Arguments {
    #[command(flatten)]
    name: Name,
    /// Print what was done as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    name: &'a str,
    was_alive: bool,
    programs_stopped: usize,
}

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let name = arguments.name.name.as_str();
    let done = Lab::down(name)?;
    cable::forget(name)?;
    let report = Report {
        name,
        was_alive: done.was_alive,
        programs_stopped: done.programs_stopped,
    };
    if arguments.json {
        output::print_json(&report)?;
        return Ok(ExitCode::SUCCESS);
    }
    let before = if report.was_alive {
        ""
    } else {
        ", which had lost its holders"
    };
    let programs = match report.programs_stopped {
        0 => String::new(),
        count => format!("; programs ended: {count}"),
    };
    output::print(&format!("lab {name}{before}: removed{programs}\n"))?;
    Ok(ExitCode::SUCCESS)
}
