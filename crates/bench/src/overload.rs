//! `shunt bench overload`: whether a server still serves when more is asked of it than it can do, on the kernel's
//! stack and on Shunt's.
//!
//! A stack in user space that receives everything before it serves anything answers nobody under overload: the
//! receive livelock of Mogul and Ramakrishnan, which `shunt sim paper --figure fig8` shows at seven clients. Here
//! datagrams come at multiples of what the server was seen to answer; nothing but the stack holds them back.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, ensure};
use clap::Args;
use serde::Serialize;
use sim::report::document::Document;

use load::{
    interrupt::Interrupt,
    trial::{Say, Stack, Testbed},
};
use statistics::Summary;

/// Offer a server more datagrams than it can answer: it must go on answering
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt bench overload
  shunt bench overload --x 0.5,1,2,4 --runs 5 --json

The offered load is in multiples of what the server answers when it is never asked more than it
can do. On machines with two processors there is none left for an engine beside server and client,
and the report says so.")]
pub struct Arguments {
    /// Offered load, in multiples of what the server can answer
    #[arg(long, value_delimiter = ',', default_value = "0.5,1,1.5,2,3")]
    x: Vec<f64>,
    /// Computation per datagram, microseconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    compute_us: u32,
    /// Runs of each load
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100))]
    runs: u8,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How long datagrams are sent at each load.
const TIME: Duration = Duration::from_millis(600);
/// More than this no client can offer.
const MOST: f64 = 100.0;
/// Processors that server, engine and client take.
const WITH_ENGINE: usize = 3;

/// One stack under one load.
#[derive(Debug, Serialize)]
struct Row {
    stack: &'static str,
    /// Offered, as a multiple of the capacity.
    x: f64,
    offered_per_s: Summary,
    answered_per_s: Summary,
    /// Median time of an answered datagram; none where none was answered.
    p50_us: Option<Summary>,
    /// Answers as a part of the most that this stack gave under any load.
    of_best: f64,
}

/// What was measured, and what was not.
#[derive(Debug, Serialize)]
struct Results {
    compute_us: u32,
    rows: Vec<Row>,
    skipped: Vec<String>,
}

/// What the kernel and an engine inside the server still answer at some loads, of the most that they answered under any, in
/// one run each.
///
/// # Errors
/// A trial fails, or somebody asked this process to end.
pub fn kept(x: &[f64], runs: u8, interrupt: Interrupt) -> anyhow::Result<[Vec<f64>; 2]> {
    let testbed = Testbed::create(interrupt)?;
    let say = Say::from_now();
    let arguments = Arguments {
        x: x.to_vec(),
        compute_us: 20,
        runs: 1,
        json: false,
    };
    let mut kept = [Vec::new(), Vec::new()];
    for run in 0..runs {
        let mut order = [(0, Stack::Kernel), (1, Stack::Inline)];
        if run % 2 == 1 {
            order.reverse();
        }
        for (side, stack) in order {
            let rows = measure(&testbed, stack, &arguments, &say)?;
            kept[side].extend(rows.last().map(|row| row.of_best));
        }
    }
    Ok(kept)
}

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    for x in &arguments.x {
        ensure!(
            *x > 0.0 && *x <= MOST,
            "--x: {x} is no load between 0 and {MOST}"
        );
    }
    let testbed = Testbed::create(Interrupt::catch()?)?;
    let say = Say::from_now();
    let mut results = Results {
        compute_us: arguments.compute_us,
        rows: Vec::new(),
        skipped: Vec::new(),
    };
    for stack in Stack::ALL {
        if stack == Stack::Engine && testbed.processors() < WITH_ENGINE {
            results.skipped.push(format!(
                "{stack}: server, engine and client need {WITH_ENGINE} processors, there are {}",
                testbed.processors()
            ));
            continue;
        }
        match measure(&testbed, stack, arguments, &say) {
            Ok(rows) => results.rows.extend(rows),
            // Not every kernel and interface has it.
            Err(error) if stack == Stack::AfXdp => {
                testbed.check_interrupt()?;
                results.skipped.push(format!("{stack}: {error:#}"));
            }
            Err(error) => return Err(error),
        }
    }
    output::print_result(arguments.json, &results, || report(&results).to_text())?;
    Ok(ExitCode::SUCCESS)
}

/// One stack under each load.
fn measure(
    testbed: &Testbed,
    stack: Stack,
    arguments: &Arguments,
    say: &Say,
) -> anyhow::Result<Vec<Row>> {
    let server = testbed.serve_datagrams(stack, u64::from(arguments.compute_us) * 1000)?;
    say.say(&format!("{stack}: what the server can answer"));
    let mut capacities = Vec::new();
    for _ in 0..arguments.runs {
        capacities.push(testbed.flood(&server, 0, TIME)?.answered_per_s);
    }
    let capacity = Summary::of(&capacities).context("no run")?.median;
    ensure!(capacity > 0.0, "{stack}: the server answers nothing");
    let mut rows = Vec::new();
    for &x in &arguments.x {
        say.say(&format!("{stack}: {x} times that"));
        let per_s = Duration::from_secs_f64(1.0 / (x * capacity)).as_nanos();
        let per_s = u64::try_from(1_000_000_000 / per_s.max(1))?;
        let (mut offered, mut answered, mut times) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..arguments.runs {
            let flooded = testbed.flood(&server, per_s, TIME)?;
            offered.push(flooded.offered_per_s);
            answered.push(flooded.answered_per_s);
            times.extend(flooded.p50_us);
        }
        rows.push(Row {
            stack: stack.name(),
            x,
            offered_per_s: Summary::of(&offered).context("no run")?,
            answered_per_s: Summary::of(&answered).context("no run")?,
            p50_us: Summary::of(&times),
            of_best: 0.0,
        });
    }
    let answers = rows.iter().map(|row| row.answered_per_s.median);
    let best = answers.fold(capacity, f64::max);
    for row in &mut rows {
        row.of_best = row.answered_per_s.median / best;
    }
    Ok(rows)
}

fn report(results: &Results) -> Document {
    let mut d = Document::new("A server under overload");
    d.text(format!(
        "Datagrams of 64 bytes, {} µs of computation each, offered at multiples of what the server answers when its \
         client never has more than 16 under way. Medians of the runs; spread is largest less smallest as a part of \
         the median.",
        results.compute_us
    ));
    let headings =
        "stack | load | offered/s | answered/s | spread | of its best | p50 µs".split(" | ");
    let cells = |row: &Row| {
        vec![
            row.stack.to_owned(),
            format!("{} ×", row.x),
            format!("{:.0}", row.offered_per_s.median),
            format!("{:.0}", row.answered_per_s.median),
            format!("{:.0} %", 100.0 * row.answered_per_s.spread()),
            format!("{:.0} %", 100.0 * row.of_best),
            row.p50_us
                .as_ref()
                .map_or("none".to_owned(), |times| format!("{:.0}", times.median)),
        ]
    };
    d.table(headings, results.rows.iter().map(cells).collect());
    d.text("From 1 × on a stack that holds keeps the most that it answered under any load; below, it answers what it is asked.");
    d.list(results.skipped.iter().map(|why| format!("skipped: {why}")));
    d
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_its_best_that_a_stack_keeps_is_told() {
        let row = |x: f64, answered: f64| Row {
            stack: "inline",
            x,
            offered_per_s: Summary::of(&[x * 50_000.0]).unwrap(),
            answered_per_s: Summary::of(&[answered]).unwrap(),
            p50_us: None,
            of_best: answered / 50_000.0,
        };
        let results = Results {
            compute_us: 20,
            rows: vec![row(0.5, 25_000.0), row(1.0, 50_000.0), row(3.0, 2000.0)],
            skipped: vec!["engine: needs more".to_owned()],
        };
        let text = report(&results).to_text();
        let line = |load: &str| text.lines().find(|line| line.contains(load)).unwrap();
        assert!(
            line("1 ×").contains("100 %") && line("3 ×").contains("4 %"),
            "{text}"
        );
        assert!(line("3 ×").contains("none") && text.contains("skipped: engine: needs more"));
    }
}
