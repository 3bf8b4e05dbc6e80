//! `shunt bench apps`: unmodified programs on Shunt and on the kernel, side by side.
//!
//! One lab, the same programs, both sides in turn within each run. The peer is always the kernel of
//! the other host. Each sample starts its server anew, and the engine too: while the kernel is
//! measured no engine runs.

pub mod case;
mod content;
mod context;
mod nginx;
mod python;
pub mod redis;
pub mod report;
mod side;
pub mod sockperf;

pub use content::parse_size;

use anyhow::bail;
use clap::{Args, ValueEnum};
use load::interrupt::Interrupt;

use crate::{distance, tools};
use case::{Case, Collected};
use context::Context;
use side::Side;

/// Compare unmodified programs on Shunt and on the kernel: nginx, curl, redis, python, sockperf.
///
/// Builds a lab of two hosts, runs each program on both sides in turn, checks content by SHA-256,
/// and prints medians with their spread. Needs the programs: scripts/install-packages.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt bench apps                                about three minutes
  shunt bench apps --only redis --sides kernel,inline,process
  shunt bench apps --quick                        a first impression
  shunt bench apps --only nginx,redis --runs 9 --json
  shunt bench apps --sides kernel                 the kernel alone

Exit status: 1 where a program failed on either side.")]
pub struct Arguments {
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Few runs and small files.
    #[arg(long)]
    quick: bool,
    /// Only these programs.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Program>,
    /// Runs per program and side [default: 3; with --quick 2].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Size of the files served, such as 256M or 4G [default: 1G; with --quick 64M].
    #[arg(long, value_parser = parse_size)]
    size: Option<u64>,
    /// Which sides to measure.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "kernel,shunt"
    )]
    sides: Vec<Side>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Program {
    /// nginx serves curl, with ordinary segments and with large ones.
    Nginx,
    /// curl fetches from nginx, with ordinary segments and with large ones.
    Curl,
    /// redis-server serves redis-benchmark.
    Redis,
    /// Python's http.server serves wget.
    Python,
    /// sockperf answers sockperf.
    Sockperf,
    /// What Shunt is for: both ends on it, on two hosts and on one; small messages; processor time.
    Purpose,
}

/// Sizes and counts of one invocation.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    runs: u32,
    file_bytes: u64,
    /// Requests per redis test; sixteen at a time make it four times as many.
    redis_requests: u32,
    sockperf_seconds: u32,
}

impl Scale {
    fn of(arguments: &Arguments) -> Self {
        let (runs, file_bytes, redis_requests, sockperf_seconds) = if arguments.quick {
            (2, 64 << 20, 30_000, 1)
        } else {
            (3, 1 << 30, 100_000, 2)
        };
        Self {
            runs: arguments.runs.unwrap_or(runs),
            file_bytes: arguments.size.unwrap_or(file_bytes),
            redis_requests,
            sockperf_seconds,
        }
    }
}

impl Arguments {
    /// How often and how long the rows are measured that show what Shunt is for; `None`: they are not asked for.
    pub fn purpose(&self) -> Option<(u32, f64)> {
        let is_chosen = self.chooses(Program::Purpose) && self.sides.contains(&Side::Shunt);
        let seconds = if self.quick { 0.3 } else { 1.0 };
        is_chosen.then(|| (Scale::of(self).runs, seconds))
    }

    /// Whether the result is printed as JSON.
    pub fn json(&self) -> bool {
        self.json
    }

    fn chooses(&self, program: Program) -> bool {
        self.only.is_empty() || self.only.contains(&program)
    }
}

/// Measures the programs that are asked for; `None`: there are none.
///
/// # Errors
/// A program is missing, the lab cannot be built or has ended, or somebody asked this process to end.
pub fn measure_all(
    arguments: &Arguments,
    interrupt: Interrupt,
) -> anyhow::Result<Option<report::Report>> {
    let mut sides = arguments.sides.clone();
    sides.dedup();
    let mut cases = CASES.to_vec();
    cases.retain(|(program, _)| arguments.chooses(*program));
    if cases.is_empty() {
        return Ok(None);
    }
    let needed = cases.iter().flat_map(|(_, case)| case.tools);
    tools::require(&needed.copied().collect::<Vec<_>>())?;

    let context = Context::create(Scale::of(arguments), interrupt)?;
    let mut collected = Vec::new();
    for (_, case) in &cases {
        let other_lab;
        let segment_bytes = case.segment_bytes;
        let context = if segment_bytes == context.lab().segment_bytes() {
            &context
        } else {
            other_lab = context.with_segments(segment_bytes)?;
            &other_lab
        };
        collected.push(measure(case, context, &sides)?);
    }
    Ok(Some(report::Report::of(&context, &collected, &sides)))
}

const CASES: [(Program, Case); 7] = [
    (Program::Nginx, nginx::SERVES),
    (Program::Nginx, nginx::SERVES_BIG),
    (Program::Curl, nginx::IS_FETCHED),
    (Program::Curl, nginx::IS_FETCHED_BIG),
    (Program::Redis, redis::SERVES),
    (Program::Python, python::SERVES),
    (Program::Sockperf, sockperf::ANSWERS),
];

/// Measures one case: a checked run of each side, then all runs with the sides in turn. A side that
/// fails is not tried again; the other goes on.
fn measure(case: &Case, context: &Context, sides: &[Side]) -> anyhow::Result<Collected> {
    let mut collected = Collected::new(case);
    for &side in sides {
        context.say(&format!("{}: {side}: checking", case.title));
        collected.runs(side, context.mode(side, case.tested)?);
        let result = (case.check)(context, side);
        context.common.interrupt.check()?;
        collected.checked(side, result);
    }
    for run in 0..context.common.scale.runs {
        // Whoever comes second finds warmer caches: take turns.
        let mut order = sides.to_vec();
        if run % 2 == 1 {
            order.reverse();
        }
        for side in order {
            if collected.has_failed(side) {
                continue;
            }
            let (result, distance_ns) = distance::beside(|| (case.sample)(context, side));
            context.common.interrupt.check()?;
            let shown = match &result {
                Ok(samples) => samples
                    .iter()
                    .map(case::Sample::text)
                    .collect::<Vec<_>>()
                    .join(", "),
                Err(_) => "failed".to_owned(),
            };
            context.say(&format!(
                "{}: {side}: run {} of {}: {shown}",
                case.title,
                run + 1,
                context.common.scale.runs
            ));
            collected.add(side, result, distance_ns);
        }
    }
    if !sides.is_empty()
        && sides.iter().all(|side| collected.has_failed(*side))
        && !context.lab().alive()
    {
        bail!("the lab has ended: {}", collected.failures().join("; "));
    }
    Ok(collected)
}
