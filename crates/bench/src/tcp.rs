//! `shunt bench tcp`: goodput of every pair of stacks on the same bad cable.
//!
//! Kernel and Shunt send to kernel and Shunt over one cable of TAPs with seeded loss, delay, rate and
//! buffer; each cell of the table is measured with several seeds, and what Shunt reaches stands beside
//! what the kernel reaches. Slow cells run several at a time on testbeds of their own, those that fill a
//! processor one after the other.

mod estimate;
mod fairness;
mod grid;
mod marking;
mod report;
mod schedule;
mod seeds;
mod testbed;

use std::{
    process::ExitCode,
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use clap::Args;
use load::interrupt::{self, Interrupt};

use crate::tools;
use grid::{Cell, Combination, Grid, Job, Load, Stack};
use report::Report;
use schedule::{Done, Further, Stage};

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

Each row is said on stderr when it is complete; Ctrl-C ends with what was measured until then.

Exit status: 1 where a transfer failed or, with --check, a ratio is below 0.95 or a share unfair.")]
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
    /// Congestion controls [default: reno,cubic,bbr,dctcp; with --quick cubic].
    #[arg(long, value_delimiter = ',')]
    congestion: Vec<String>,
    /// Transfers of each combination in each cell [default: 10, of BBR 3; with --quick 3].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// The same of a ratio that cannot be told from 0.95 by fewer, as far as nine minutes allow [default: 40; with --quick or --seeds no more than those].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds_most: Option<u64>,
    /// Leave the flows that share a bottleneck out.
    #[arg(long)]
    no_fairness: bool,
    /// Slow cells measured at once; of those that losses keep slow three times as many.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=64))]
    testbeds: u64,
    /// Fail where a ratio to the kernel is below 0.95, or a share of a bottleneck outside of 0.4 to 0.6.
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
        let seeds = self.seeds.unwrap_or(if self.quick { 3 } else { 10 });
        let goes_on = self.seeds.is_none() && !self.quick;
        Grid {
            losses: or(&self.loss, self.quick, &[0.0, 0.01], &all_losses),
            rtts_ms: or(&self.rtt_ms, self.quick, &[20], &[0, 20, 100]),
            rates_mbit: or(&self.rate_mbit, self.quick, &[10, 1000], &[10, 1000]),
            seeds,
            seeds_most: self.seeds_most.unwrap_or(if goes_on { 40 } else { seeds }),
            seeds_reported: self.seeds.unwrap_or(3),
        }
    }

    fn wants_dctcp(&self) -> bool {
        if self.congestion.is_empty() {
            !self.quick
        } else {
            self.congestion.iter().any(|name| name == DCTCP)
        }
    }

    fn congestion(&self) -> Vec<String> {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        match (self.congestion.is_empty(), self.quick) {
            (false, _) => {
                let beside = self.congestion.iter().filter(|name| *name != DCTCP);
                beside.cloned().collect()
            }
            (true, true) => names(&["cubic"]),
            (true, false) => names(&["reno", "cubic", "bbr"]),
        }
    }
}

/// No more seeds are begun after so long: the whole shall take less than ten minutes.
const FURTHER_UNTIL: Duration = Duration::from_secs(540);

/// Has a table of its own: nothing stands beside it.
const DCTCP: &str = "dctcp";

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let interrupt = Interrupt::catch()?;
    let grid = arguments.grid();
    let mut skipped = Vec::new();
    let able = probe(&arguments.congestion(), &interrupt, &mut skipped)?;
    let measured = measure(arguments, &grid, &able, &interrupt, begun)?;
    let done = &measured.done;
    let report = Report {
        kernel: tools::kernel_release(),
        cores: tools::processors(),
        parameters: testbed::PARAMETERS
            .iter()
            .map(|(name, value)| format!("{name} = {value}"))
            .collect(),
        engine_flags: testbed::ENGINE_FLAGS.to_vec(),
        rows: report::rows(&grid, &able, done),
        failures: report::failures(done),
        fairness: measured.fairness,
        marked: measured.marked,
        skipped,
        interrupted: interrupt.came(),
        duration_s: begun.elapsed().as_secs(),
        grid,
    };
    output::print_result(arguments.json, &report, || report.text())?;
    let missed = arguments.check && !report.is_as_kernel();
    Ok(if report.interrupted {
        ExitCode::from(interrupt::STATUS)
    } else if report.failed() || missed {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

struct Measured {
    done: Vec<Done>,
    fairness: Vec<fairness::Share>,
    marked: Vec<marking::Marked>,
}

/// Measures everything, or what there is until somebody interrupts: first what takes time and no
/// processor, all at once, then the other cells, the lighter ones first; then, as long as there is time, what could not
/// be told from 0.95, in the same order.
fn measure(
    arguments: &Arguments,
    grid: &Grid,
    able: &[(String, Vec<Stack>)],
    interrupt: &Interrupt,
    begun: Instant,
) -> anyhow::Result<Measured> {
    let testbeds = usize::try_from(arguments.testbeds)?;
    let marks = if arguments.wants_dctcp() {
        grid.seeds
    } else {
        0
    };
    let mut jobs = jobs(grid, able);
    let mut first = |load: Load| {
        let stage = Stage {
            label: load.title(),
            jobs: jobs.extract_if(.., |job| job.cell.load() == load).collect(),
            testbeds: load.testbeds(testbeds),
            earlier: Vec::new(),
            further: None,
        };
        schedule::run(stage, interrupt, begun)
    };
    let (mut done, fairness, mut marked) = thread::scope(|scope| -> anyhow::Result<_> {
        let fair = able.iter().filter(|(congestion, stacks)| {
            // BBR shares with nobody in a way that a number between 0.4 and 0.6 describes.
            !arguments.no_fairness && stacks.len() == 2 && congestion != "bbr"
        });
        let fair: Vec<_> = fair
            .map(|(congestion, _)| {
                let seeds = grid.seeds.min(5);
                scope.spawn(move || fairness::measure(congestion, seeds, interrupt, begun))
            })
            .collect();
        let slow = |cell: &Cell| cell.load() <= Load::Light;
        let marked = scope.spawn(move || marking::measure(marks, slow, interrupt, begun));
        let done = first(Load::Idle)?;
        let mut fairness = Vec::new();
        for thread in fair {
            fairness.extend(join(thread)?);
        }
        Ok((done, fairness, join(marked)?))
    })?;
    for load in Load::ALL {
        done.extend(first(load)?);
    }
    let fast = |cell: &Cell| cell.load() > Load::Light;
    marked.extend(marking::measure(marks, fast, interrupt, begun)?);
    let done = go_on(done, grid, able, testbeds, interrupt, begun)?;
    Ok(Measured {
        done,
        fairness,
        marked,
    })
}

/// More seeds for what cannot be told from 0.95, as long as there is time.
fn go_on(
    mut done: Vec<Done>,
    grid: &Grid,
    able: &[(String, Vec<Stack>)],
    testbeds: usize,
    interrupt: &Interrupt,
    begun: Instant,
) -> anyhow::Result<Vec<Done>> {
    for load in Load::ALL {
        let of_load = done.extract_if(.., |one| one.job.cell.load() == load);
        let earlier: Vec<Done> = of_load.collect();
        let rows = report::rows(grid, able, &earlier);
        let jobs = rows.iter();
        let stage = Stage {
            label: load.title(),
            jobs: jobs
                .flat_map(|row| seeds::further(row, grid.seeds_most))
                .collect(),
            testbeds: load.testbeds(testbeds),
            earlier,
            further: Some(Further {
                most: grid.seeds_most,
                until: begun + FURTHER_UNTIL,
            }),
        };
        done.extend(schedule::run(stage, interrupt, begun)?);
    }
    Ok(done)
}

fn join<T>(thread: ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    let panicked = |_| Err(anyhow::anyhow!("a measurement ended with a panic"));
    thread.join().unwrap_or_else(panicked)
}

/// Which stacks can send with which congestion control: a small transfer of each tells.
fn probe(
    congestion: &[String],
    interrupt: &Interrupt,
    skipped: &mut Vec<String>,
) -> anyhow::Result<Vec<(String, Vec<Stack>)>> {
    let name = format!("tcp-{}-probe", std::process::id());
    let mut testbed = testbed::Testbed::create(&name, &[], interrupt)?;
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
            match testbed.transfer(&job)?.error {
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
            for seed in 0..grid.seeds_of(congestion) {
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
