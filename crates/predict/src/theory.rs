//! `shunt sim theory`: the simulator's extensions against what theory says.

use std::process::ExitCode;

use clap::Args;
use sim::{report::document::Document, theory::statements};

/// Check what goes beyond the paper against queueing theory and formulas
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt sim theory
  shunt sim theory --json

Exit status 1 where the simulation and the theory disagree.")]
pub struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let statements = statements();
    if arguments.json {
        output::print_json(&statements)?;
    } else {
        let mut document = Document::new("The simulator beside theory");
        let rows = statements.iter().map(|s| {
            vec![
                s.name.to_owned(),
                format!("{:.4}", s.theory),
                format!("{:.4}", s.simulated),
                format!("{:.2} %", 100.0 * s.error()),
                format!("{:.4} %", 100.0 * s.bound),
                if s.holds() { "holds" } else { "FAILS" }.to_owned(),
            ]
        });
        let headings = "statement | theory | simulated | apart | allowed | ".split(" | ");
        document.table(headings, rows.collect());
        output::print(&document.to_text())?;
    }
    let all = statements.iter().all(sim::theory::Statement::holds);
    Ok(if all {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}
