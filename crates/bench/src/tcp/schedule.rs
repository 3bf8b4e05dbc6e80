//! Runs the jobs on several testbeds at once, in the order of the list as far as that goes.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use load::{interrupt::Interrupt, transfer::Outcome};

use super::{
    grid::{Combination, Job, Stack},
    report::Row,
    seeds,
    testbed::Testbed,
};

/// How often progress is said.
const PROGRESS: Duration = Duration::from_secs(5);
/// How often a testbed without work looks whether somebody interrupts.
const LOOK: Duration = Duration::from_millis(200);

/// A job and what became of it.
#[derive(Debug, Clone)]
pub struct Done {
    pub job: Job,
    pub outcome: Outcome,
}

impl Done {
    /// What the receiver got over the time that it took.
    pub fn goodput_mbit(&self) -> f64 {
        self.outcome.bytes as f64 * 8.0 / self.outcome.seconds / 1e6
    }
}

struct Shared {
    jobs: VecDeque<Job>,
    /// Transfers of each row of the table that are still to be made.
    missing: HashMap<(String, String), usize>,
    done: Vec<Done>,
    /// Transfers of this stage.
    made: usize,
    /// Why testbeds could not be built; the others go on.
    failures: Vec<String>,
    said: Instant,
    total: usize,
}

/// More seeds for rows that cannot be told from the threshold, as long as there is time.
#[derive(Debug, Clone, Copy)]
pub struct Further {
    /// Seeds of a ratio at most.
    pub most: u64,
    /// After this no transfer is begun.
    pub until: Instant,
}

/// What all testbeds of one `run` know.
struct Plan<'a> {
    label: &'a str,
    further: Option<Further>,
    interrupt: &'a Interrupt,
    begun: Instant,
    shared: Mutex<Shared>,
    /// Jobs have come, or there will be no more.
    changed: Condvar,
}

/// Transfers that are alike.
pub struct Stage<'a> {
    pub label: &'a str,
    pub jobs: Vec<Job>,
    /// How many at once.
    pub testbeds: usize,
    /// Transfers of the same rows that were made before.
    pub earlier: Vec<Done>,
    /// With what complete rows are continued.
    pub further: Option<Further>,
}

/// Does all jobs of a stage and says each row of the table when it is complete. The result has the earlier ones too. Fails
/// if no testbed can be built; where somebody interrupts, what was done until then is the result.
pub fn run(stage: Stage<'_>, interrupt: &Interrupt, begun: Instant) -> anyhow::Result<Vec<Done>> {
    let Stage {
        label,
        jobs,
        testbeds,
        earlier,
        further,
    } = stage;
    let total = jobs.len();
    let mut missing = HashMap::new();
    for job in &jobs {
        *missing.entry(row_of(job)).or_default() += 1;
    }
    let shared = Mutex::new(Shared {
        jobs: jobs.into(),
        missing,
        made: 0,
        done: earlier,
        failures: Vec::new(),
        said: Instant::now(),
        total,
    });
    let plan = Plan {
        label,
        further,
        interrupt,
        begun,
        shared,
        changed: Condvar::new(),
    };
    thread::scope(|scope| {
        for number in 0..testbeds.min(total) {
            let plan = &plan;
            scope.spawn(move || {
                if let Err(error) = work(number, plan) {
                    lock(&plan.shared).failures.push(format!("{error:#}"));
                }
            });
        }
    });
    let shared = plan.shared.into_inner();
    let shared = shared.unwrap_or_else(PoisonError::into_inner);
    if !shared.jobs.is_empty() && !interrupt.came() {
        anyhow::bail!("no testbed works: {}", shared.failures.join("; "));
    }
    Ok(shared.done)
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next job; none is left where every row is complete. A row that is not may still bring more.
fn next(plan: &Plan<'_>) -> anyhow::Result<Option<Job>> {
    let mut shared = lock(&plan.shared);
    loop {
        plan.interrupt.check()?;
        if plan.further.is_some_and(|it| Instant::now() >= it.until) {
            shared.jobs.clear();
            return Ok(None);
        }
        if let Some(job) = shared.jobs.pop_front() {
            return Ok(Some(job));
        }
        if shared.missing.values().all(|&missing| missing == 0) {
            return Ok(None);
        }
        let waited = plan.changed.wait_timeout(shared, LOOK);
        (shared, _) = waited.unwrap_or_else(PoisonError::into_inner);
    }
}

/// One testbed's life: after a failed transfer it is built anew, because what failed may still be there.
fn work(number: usize, plan: &Plan<'_>) -> anyhow::Result<()> {
    let interrupt = plan.interrupt;
    let name = format!("tcp-{}-{number}", std::process::id());
    let mut testbed = Testbed::create(&name, &[], interrupt)?;
    while let Some(job) = next(plan)? {
        let result = testbed.transfer(&job);
        interrupt.check()?;
        let outcome = result.unwrap_or_else(|error| Outcome {
            error: Some(format!("{error:#}")),
            ..Outcome::default()
        });
        let failed = outcome.error.is_some();
        finish(plan, &mut lock(&plan.shared), Done { job, outcome });
        plan.changed.notify_all();
        if failed {
            drop(testbed);
            testbed = Testbed::create(&name, &[], interrupt)?;
        }
    }
    Ok(())
}

/// Cell and congestion control: what a row of the table is about.
fn row_of(job: &Job) -> (String, String) {
    (format!("{:?}", job.cell), job.congestion.clone())
}

fn finish(plan: &Plan<'_>, shared: &mut Shared, done: Done) {
    let elapsed_s = plan.begun.elapsed().as_secs();
    if let Some(error) = &done.outcome.error {
        note!("failed: {}: {error}", describe(&done.job));
    }
    let (cell, congestion) = (done.job.cell, done.job.congestion.clone());
    let key = row_of(&done.job);
    let missing = shared.missing.entry(key.clone()).or_default();
    *missing = missing.saturating_sub(1);
    let is_last = *missing == 0;
    shared.done.push(done);
    shared.made += 1;
    if is_last && let Some(row) = Row::of(&cell, &congestion, &shared.done) {
        note!("[{elapsed_s:>4} s] {}", row.line());
        let further = plan
            .further
            .map_or_else(Vec::new, |it| seeds::further(&row, it.most));
        shared.missing.insert(key, further.len());
        shared.total += further.len();
        shared.jobs.extend(further);
    }
    if shared.said.elapsed() > PROGRESS || shared.made == shared.total {
        shared.said = Instant::now();
        let (so_far, total) = (shared.made, shared.total);
        let label = plan.label;
        note!("[{elapsed_s:>4} s] {label}: {so_far} of {total} transfers");
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
