//! `shunt bench tcp`: goodput of every pair of stacks on the same bad cable.
//!
//! Kernel and Shunt send to kernel and Shunt over one cable of TAPs with seeded loss, delay, rate and
//! buffer; each cell of the table is measured with several seeds, and what Shunt reaches stands beside
//! what the kernel reaches. Slow cells run several at a time on beds of their own, those that fill a
//! processor one after the other.

mod bed;
mod estimate;
mod fairness;
mod grid;
mod report;
mod schedule;

use std::{process::ExitCode, time::Instant};

use clap::Args;

use crate::{bench::interrupt::Interrupt, output};
use grid::{Combination, Grid, Job, Stack};
use report::{Report, Row};

/// Compare TCP on a bad cable: kernel and Shunt, each to each, over loss, delay and rate.
///
/// Needs root, or a user namespace and /dev/net/tun. A congestion control that a stack lacks is skipped
/// and named.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt bench tcp                                        the whole table, below ten minutes
  shunt bench tcp --quick                                a first impression
  shunt bench tcp --loss 0.01 --rtt-ms 20 --rate-mbit 10 --seeds 20 --congestion cubic
  shunt bench tcp --json > tcp.json

Exit status: 1 where a transfer failed or, with --check, where a goal is missed.")]
pub struct Arguments {
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Few cells and few seeds.
    #[arg(long)]
    quick: bool,
    /// Probabilities of loss [default: 0,0.001,0.01,0.03; with --quick 0,0.01].
    #[arg(long, value_delimiter = ',')]
    loss: Vec<f64>,
    /// Round trips in milliseconds [default: 0,20,100; with --quick 20].
    #[arg(long, value_delimiter = ',')]
    rtt_ms: Vec<u64>,
    /// Rates in Mbit/s [default: 10,1000].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rate_mbit: Vec<u64>,
    /// Congestion controls [default: reno,cubic,bbr; with --quick cubic].
    #[arg(long, value_delimiter = ',')]
    congestion: Vec<String>,
    /// Transfers of each combination in each cell [default: 10; with --quick 3].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// Leave the flows that share a bottleneck out.
    #[arg(long)]
    no_fairness: bool,
    /// Slow cells measured at once.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=64))]
    beds: u64,
    /// Fail where a goal is missed.
    #[arg(long)]
    check: bool,
}

impl Arguments {
    fn grid(&self) -> Grid {
        fn or<T: Clone>(given: &[T], quick: bool, few: &[T], all: &[T]) -> Vec<T> {
            match (given.is_empty(), quick) {
                (false, _) => given.to_vec(),
                (true, true) => few.to_vec(),
                (true, false) => all.to_vec(),
            }
        }
        let all_losses = [0.0, 0.001, 0.01, 0.03];
        Grid {
            losses: or(&self.loss, self.quick, &[0.0, 0.01], &all_losses),
            rtts_ms: or(&self.rtt_ms, self.quick, &[20], &[0, 20, 100]),
            rates_mbit: or(&self.rate_mbit, self.quick, &[10, 1000], &[10, 1000]),
            seeds: self.seeds.unwrap_or(if self.quick { 3 } else { 10 }),
        }
    }

    fn congestion(&self) -> Vec<String> {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        match (self.congestion.is_empty(), self.quick) {
            (false, _) => self.congestion.clone(),
            (true, true) => names(&["cubic"]),
            (true, false) => names(&["reno", "cubic", "bbr"]),
        }
    }
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let interrupt = Interrupt::catch()?;
    let grid = arguments.grid();
    let mut skipped = Vec::new();
    let able = probe(&arguments.congestion(), &interrupt, &mut skipped)?;
    let jobs = jobs(&grid, &able);
    let beds = usize::try_from(arguments.beds)?;
    let (heavy, light): (Vec<Job>, Vec<Job>) =
        jobs.into_iter().partition(|job| job.cell.is_heavy());
    let mut done = schedule::run("slow cells", light, beds, &interrupt, begun)?;
    done.extend(schedule::run("fast cells", heavy, 1, &interrupt, begun)?);

    let mut fairness = Vec::new();
    if !arguments.no_fairness {
        for (congestion, stacks) in &able {
            // BBR shares with nobody in a way that a number between 0.4 and 0.6 describes.
            if stacks.len() == 2 && congestion != "bbr" {
                let seeds = grid.seeds.min(5);
                fairness.extend(fairness::measure(congestion, seeds, &interrupt, begun)?);
            }
        }
    }
    let rows = able.iter().flat_map(|(congestion, _)| {
        let cells = grid.cells().into_iter();
        cells.filter_map(|cell| Row::of(&cell, congestion, &done))
    });
    let report = Report {
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        parameters: bed::PARAMETERS
            .iter()
            .map(|(name, value)| format!("{name} = {value}"))
            .collect(),
        engine_flags: bed::ENGINE_FLAGS.to_vec(),
        rows: rows.collect(),
        fairness,
        skipped,
        failures: report::failures(&done),
        duration_s: begun.elapsed().as_secs(),
        grid,
    };
    if arguments.json {
        output::print_json(&report)?;
    } else {
        output::print(&report.text())?;
    }
    let missed = arguments.check && !report.reaches_goals();
    Ok(if report.failed() || missed {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

/// Which stacks can send with which congestion control: a small transfer of each tells.
fn probe(
    congestion: &[String],
    interrupt: &Interrupt,
    skipped: &mut Vec<String>,
) -> anyhow::Result<Vec<(String, Vec<Stack>)>> {
    let mut bed = bed::Bed::create(&format!("tcp-{}-probe", std::process::id()), interrupt)?;
    let mut able = Vec::new();
    for name in congestion {
        let mut stacks = Vec::new();
        for (stack, title) in [(Stack::Kernel, "the kernel"), (Stack::Shunt, "Shunt")] {
            let job = Job {
                cell: grid::Cell::new(0.0, 0, 100),
                congestion: name.clone(),
                combination: Combination::of(stack, Stack::Kernel),
                seed: 0,
            };
            match bed.transfer(&job)?.error {
                None => stacks.push(stack),
                Some(error) => skipped.push(format!("{name}: {title} cannot: {error}")),
            }
        }
        if !stacks.is_empty() {
            able.push((name.clone(), stacks));
        }
    }
    Ok(able)
}

/// All transfers, the combinations of each seed next to each other, so that what disturbs the machine
/// for a while disturbs them alike.
fn jobs(grid: &Grid, able: &[(String, Vec<Stack>)]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for cell in grid.cells() {
        for (congestion, stacks) in able {
            for seed in 0..grid.seeds {
                let senders = Combination::ALL
                    .into_iter()
                    .filter(|combination| stacks.contains(&combination.sender));
                jobs.extend(senders.map(|combination| Job {
                    cell,
                    congestion: congestion.clone(),
                    combination,
                    seed,
                }));
            }
        }
    }
    jobs
}
