//! All bodies in turn, each for its share of a round, in a process for each share and worker.

use crate::{BODIES, Body};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{env, thread};

/// Each part of the time, in a round.
const PART: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Default)]
struct Count {
    executions: u64,
    faults: u64,
    time: Duration,
}

type Counts = [Count; BODIES.len()];

/// Runs for `minutes` with so many workers; prints the table.
pub fn run(minutes: u64, workers: u64, sequence: u64) -> ExitCode {
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let counts = Mutex::new(Counts::default());
    thread::scope(|scope| {
        for worker in 0..workers {
            let counts = &counts;
            // Sequences of different workers and rounds are different ones.
            scope.spawn(move || work(end, (sequence << 40) + (worker << 24), counts));
        }
    });
    let counts = counts
        .into_inner()
        .unwrap_or_else(|error| error.into_inner());
    print(&counts);
    let is_whole = counts.iter().all(|count| count.faults == 0);
    if is_whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn work(end: Instant, first: u64, counts: &Mutex<Counts>) {
    for sequence in first.. {
        for (at, body) in BODIES.iter().enumerate() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let count = part(body, sequence, left.min(PART * body.share));
            let mut counts = counts.lock().unwrap_or_else(|error| error.into_inner());
            counts[at].executions += count.executions;
            counts[at].faults += count.faults;
            counts[at].time += count.time;
        }
        let counts = *counts.lock().unwrap_or_else(|error| error.into_inner());
        let each = BODIES.iter().zip(&counts);
        let each: Vec<_> = each
            .map(|(body, count)| format!("{} {}", body.name, count.executions))
            .collect();
        let faults: u64 = counts.iter().map(|count| count.faults).sum();
        eprintln!("{faults} faults: {}", each.join(", "));
    }
}

/// One body in a process of its own. A process that is killed, or says nothing, is a fault.
fn part(body: &Body, sequence: u64, time: Duration) -> Count {
    let begin = Instant::now();
    let output = env::current_exe().and_then(|program| {
        Command::new(program)
            .args([
                body.name,
                &sequence.to_string(),
                &time.as_millis().to_string(),
            ])
            .stderr(Stdio::inherit())
            .output()
    });
    let (executions, is_whole) = match &output {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            (text.trim().parse().ok(), output.status.success())
        }
        Err(_) => (None, false),
    };
    let is_fault = executions.is_none() || !is_whole;
    if is_fault {
        eprintln!("fault: {} in sequence {sequence}: {output:?}", body.name);
    }
    Count {
        executions: executions.unwrap_or(0),
        faults: u64::from(is_fault),
        time: begin.elapsed(),
    }
}

fn print(counts: &Counts) {
    println!("| body | executions | seconds | faults |");
    println!("|---|---|---|---|");
    let mut all = Count::default();
    for (body, count) in BODIES.iter().zip(counts) {
        row(body.name, *count);
        all.executions += count.executions;
        all.faults += count.faults;
        all.time += count.time;
    }
    row("all", all);
}

fn row(name: &str, count: Count) {
    println!(
        "| `{name}` | {} | {} | {} |",
        count.executions,
        count.time.as_secs(),
        count.faults
    );
}
