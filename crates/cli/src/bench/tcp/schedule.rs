//! Runs the jobs on several test beds at once, in the order of the list as far as that goes.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::{
    bed::Bed,
    grid::{Combination, Job, Stack},
};
use crate::{bench::interrupt::Interrupt, commands::traffic::Outcome};

/// How often progress is said.
const PROGRESS: Duration = Duration::from_secs(5);

/// A job and what became of it.
#[derive(Debug, Clone)]
pub struct Done {
    pub job: Job,
    pub outcome: Outcome,
}

struct Shared {
    jobs: VecDeque<Job>,
    done: Vec<Done>,
    /// Why beds could not be built; the others go on.
    failures: Vec<String>,
    said: Instant,
    total: usize,
}

/// Does all jobs, `beds` at a time. Fails if no bed can be built or somebody interrupts.
pub fn run(
    label: &str,
    jobs: Vec<Job>,
    beds: usize,
    interrupt: &Interrupt,
    begun: Instant,
) -> anyhow::Result<Vec<Done>> {
    let total = jobs.len();
    let shared = Mutex::new(Shared {
        jobs: jobs.into(),
        done: Vec::with_capacity(total),
        failures: Vec::new(),
        said: Instant::now(),
        total,
    });
    thread::scope(|scope| {
        for number in 0..beds.min(total) {
            let shared = &shared;
            scope.spawn(move || {
                if let Err(error) = work(label, number, shared, interrupt, begun) {
                    lock(shared).failures.push(format!("{error:#}"));
                }
            });
        }
    });
    interrupt.check()?;
    let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !shared.jobs.is_empty() {
        anyhow::bail!("no test bed works: {}", shared.failures.join("; "));
    }
    Ok(shared.done)
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One bed's life: after a failed transfer it is built anew, because what failed may still be there.
fn work(
    label: &str,
    number: usize,
    shared: &Mutex<Shared>,
    interrupt: &Interrupt,
    begun: Instant,
) -> anyhow::Result<()> {
    let name = format!("tcp-{}-{number}", std::process::id());
    let mut bed = Bed::create(&name, interrupt)?;
    loop {
        interrupt.check()?;
        let Some(job) = lock(shared).jobs.pop_front() else {
            return Ok(());
        };
        let result = bed.transfer(&job);
        interrupt.check()?;
        let outcome = result.unwrap_or_else(|error| Outcome {
            error: Some(format!("{error:#}")),
            ..Outcome::default()
        });
        let failed = outcome.error.is_some();
        finish(label, &mut lock(shared), Done { job, outcome }, begun);
        if failed {
            drop(bed);
            bed = Bed::create(&name, interrupt)?;
        }
    }
}

fn finish(label: &str, shared: &mut Shared, done: Done, begun: Instant) {
    if let Some(error) = &done.outcome.error {
        eprintln!("failed: {}: {error}", describe(&done.job));
    }
    shared.done.push(done);
    if shared.said.elapsed() > PROGRESS || shared.done.len() == shared.total {
        shared.said = Instant::now();
        let (so_far, total) = (shared.done.len(), shared.total);
        eprintln!(
            "[{:>4} s] {label}: {so_far} of {total} transfers",
            begun.elapsed().as_secs()
        );
    }
}

/// A job in words.
pub fn describe(job: &Job) -> String {
    let stack = |stack| match stack {
        Stack::Kernel => "kernel",
        Stack::Shunt => "Shunt",
    };
    let Combination { sender, receiver } = job.combination;
    format!(
        "{} to {}, {}, {} Mbit/s, {} ms, {} % loss, seed {}",
        stack(sender),
        stack(receiver),
        job.congestion,
        job.cell.rate_mbit,
        job.cell.rtt_ms,
        job.cell.loss * 100.0,
        job.seed
    )
}
