//! One file per command; this one is the list of them.

mod capture;
mod doctor;
pub mod engine;
mod lab;
mod measure;
mod ping;
mod run;
mod transfer;
mod ui;
mod upgrade;

use std::{env, process::ExitCode};

use clap::{Parser, Subcommand};
use inspect::{explain, metrics, ss, stacks, status, top};
use predict::path;

/// Every command of `shunt`.
#[derive(Debug, Subcommand)]
pub enum Command {
    Run(run::Arguments),
    Engine(engine::arguments::Arguments),
    Lab(lab::Arguments),
    Doctor(doctor::Arguments),
    Status(status::Arguments),
    Ss(ss::Arguments),
    Stacks(stacks::Arguments),
    Explain(explain::Arguments),
    Top(top::Arguments),
    Capture(capture::Arguments),
    Metrics(metrics::Arguments),
    Upgrade(upgrade::Arguments),
    Bench(bench::Arguments),
    Ping(meter::ping::Arguments),
    Echo(meter::echo::Arguments),
    Compare(meter::runs::Arguments),
    Measure(measure::Arguments),
    Sim(predict::Arguments),
    Path(path::Arguments),
    Ui(ui::Arguments),
    Send(transfer::SendArguments),
    Recv(transfer::RecvArguments),
    #[command(hide = true)]
    Load(load::Arguments),
}

/// `shunt run` without the others. A program's start waits for it, and to build the flags of every command takes as long as all else it does.
#[derive(Debug, Parser)]
#[command(name = "shunt", version, max_term_width = 100)]
enum RunAlone {
    Run(run::Arguments),
}

impl Command {
    /// Reads the command line where it asks for `shunt run`.
    pub fn run_alone() -> Option<Self> {
        let is_run = env::args_os().nth(1).is_some_and(|word| word == "run");
        is_run.then(|| {
            let RunAlone::Run(arguments) = RunAlone::parse();
            Self::Run(arguments)
        })
    }

    /// Runs the command; its result is the exit status.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Run(arguments) => run::execute(arguments),
            Self::Engine(arguments) => engine::execute(&arguments),
            Self::Status(arguments) => status::execute(&arguments),
            Self::Ss(arguments) => ss::execute(&arguments),
            Self::Stacks(arguments) => stacks::execute(&arguments),
            Self::Explain(arguments) => explain::execute(&arguments),
            Self::Metrics(arguments) => metrics::execute(arguments),
            Self::Upgrade(arguments) => upgrade::execute(&arguments),
            Self::Top(arguments) => top::execute(arguments),
            Self::Capture(arguments) => capture::execute(&arguments),
            Self::Lab(arguments) => lab::execute(arguments),
            Self::Doctor(arguments) => doctor::execute(&arguments, engine_mode),
            Self::Bench(arguments) => bench::execute(&arguments),
            Self::Ping(arguments) => ping::ping(&arguments),
            Self::Echo(arguments) => ping::echo(&arguments),
            Self::Compare(arguments) => meter::runs::execute(&arguments),
            Self::Measure(arguments) => measure::execute(&arguments),
            Self::Sim(arguments) => predict::execute(&arguments),
            Self::Path(arguments) => path::execute(&arguments),
            Self::Ui(arguments) => ui::execute(arguments),
            Self::Send(arguments) => transfer::send(&arguments),
            Self::Recv(arguments) => transfer::recv(&arguments),
            Self::Load(arguments) => load::execute(&arguments),
        }
    }
}

/// Where `shunt run` would put the engine of a program.
fn engine_mode(program: &elf::Program) -> Option<doctor::program::Mode> {
    let choice = run::usual_choice(program).ok()?;
    Some(doctor::program::Mode {
        mode: choice.name(),
        because: choice.because,
    })
}
