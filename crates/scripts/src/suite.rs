//! Many scripts, sides and versions of IP at once: most of a script's time is waiting. Benches are kept
//! and handed from one script to the next with the same setting.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::bench::{Bench, Setting, Tools};
use crate::parse::{self, ParseError};
use crate::player::{self, Failure, USUAL_MTU};
use crate::report::{Outcome, Verdict};
use crate::script::{Family, Reason, Script, Side};

/// How often at most a script is run that failed where runner or host had no processor for a while: that says nothing about the
/// host.
const TRIES: u32 = 8;
/// How often a worker without work looks for some.
const IDLE: Duration = Duration::from_millis(20);

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sides.
    pub sides: Vec<Side>,
    /// Versions of IP.
    pub families: Vec<Family>,
    /// Scripts whose names contain one of these; none: all.
    pub filters: Vec<String>,
    /// The slow ones: `None` both kinds, else only those that are or are not.
    pub slow: Option<bool>,
    /// How many run at once.
    pub workers: usize,
    /// Run one again that failed while runner or host waited for a processor.
    pub retry: bool,
}

/// Reads every script below a folder, sorted by name.
///
/// # Errors
/// Each file that cannot be read or understood.
pub fn load(folder: &Path) -> Result<Vec<Script>, Vec<String>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "script")
            {
                files.push(path);
            }
        }
    }
    files.sort();
    let (mut scripts, mut errors) = (Vec::new(), Vec::new());
    for file in files {
        match read(folder, &file) {
            Ok(script) => scripts.push(script),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        Ok(scripts)
    } else {
        Err(errors)
    }
}

fn read(folder: &Path, file: &PathBuf) -> Result<Script, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let name = file.strip_prefix(folder).unwrap_or(file).with_extension("");
    parse::parse(&name.to_string_lossy(), &text).map_err(|error: ParseError| {
        ParseError {
            name: file.display().to_string(),
            ..error
        }
        .to_string()
    })
}

/// One script on one side over one version of IP.
struct Job<'s> {
    script: &'s Script,
    side: Side,
    family: Family,
    tries: u32,
}

/// Runs the plan; `on_outcome` hears of each run as it ends. Outcomes come sorted.
pub fn run(
    scripts: &[Script],
    plan: &Plan,
    tools: &Tools,
    on_outcome: impl Fn(&Outcome) + Sync,
) -> Vec<Outcome> {
    let chosen = |script: &&Script| {
        let is_named =
            plan.filters.is_empty() || plan.filters.iter().any(|part| script.name.contains(part));
        is_named && plan.slow.is_none_or(|slow| script.slow == slow)
    };
    let mut jobs = VecDeque::new();
    for script in scripts.iter().filter(chosen) {
        for &family in &plan.families {
            if script.only.is_none_or(|only| only == family) {
                for &side in &plan.sides {
                    jobs.push_back(Job {
                        script,
                        side,
                        family,
                        tries: 0,
                    });
                }
            }
        }
    }
    let unfinished = AtomicUsize::new(jobs.len());
    let jobs = Mutex::new(jobs);
    let benches = Mutex::new(Vec::new());
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..plan.workers.max(1) {
            scope.spawn(|| {
                while unfinished.load(Ordering::Relaxed) > 0 {
                    let Some(mut job) = next(&jobs) else {
                        // Programs end with the thread that has started them: an engine that another
                        // thread still uses may be one of ours.
                        std::thread::sleep(IDLE);
                        continue;
                    };
                    job.tries += 1;
                    let outcome = perform(&job, tools, &benches);
                    let is_disturbed = match &outcome.verdict {
                        Verdict::Failed(failure) => failure.is_disturbed,
                        _ => false,
                    };
                    if plan.retry && is_disturbed && job.tries < TRIES {
                        // At the end of the queue, when the machine is calmer.
                        locked(&jobs).push_back(job);
                        continue;
                    }
                    on_outcome(&outcome);
                    locked(&outcomes).push(outcome);
                    unfinished.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
    });
    let mut outcomes = outcomes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by(|a, b| (&a.name, a.family, a.side).cmp(&(&b.name, b.family, b.side)));
    outcomes
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn next<'s>(jobs: &Mutex<VecDeque<Job<'s>>>) -> Option<Job<'s>> {
    locked(jobs).pop_front()
}

fn reason(reasons: &[Reason], job: &Job<'_>) -> Option<String> {
    let found = reasons
        .iter()
        .find(|reason| reason.scope.covers(job.side, job.family));
    found.map(|reason| reason.text.clone())
}

fn perform(job: &Job<'_>, tools: &Tools, benches: &Mutex<Vec<Bench>>) -> Outcome {
    let began = Instant::now();
    let verdict = match skipped(job, tools) {
        Some(why) => Verdict::Skipped(why),
        None => match play(job, tools, benches) {
            Ok(()) => match reason(&job.script.open, job) {
                Some(why) => Verdict::OpenButPassed(why),
                None => Verdict::Passed,
            },
            Err(failure) => match reason(&job.script.open, job) {
                Some(why) => Verdict::Open(why, failure),
                None => Verdict::Failed(failure),
            },
        },
    };
    Outcome {
        name: job.script.name.clone(),
        side: job.side,
        family: job.family,
        verdict,
        tries: job.tries,
        took: began.elapsed(),
    }
}

fn skipped(job: &Job<'_>, tools: &Tools) -> Option<String> {
    if let Some(why) = reason(&job.script.skip, job) {
        return Some(why);
    }
    if job.side == Side::Shunt {
        if job.family == Family::Ip6 && !tools.serves_ip6 {
            return Some("the engine takes no IPv6 address".to_owned());
        }
        let flags = job
            .script
            .engine
            .iter()
            .filter(|word| word.starts_with("--"));
        for flag in flags {
            let name = flag.split('=').next().unwrap_or(flag);
            if !tools.engine_flags.iter().any(|known| known == name) {
                return Some(format!("the engine has no flag {name}"));
            }
        }
    }
    None
}

fn setting(job: &Job<'_>) -> Setting {
    let engine = match job.side {
        Side::Kernel => Vec::new(),
        Side::Shunt => job
            .script
            .engine
            .iter()
            .filter(|word| *word != "default")
            .cloned()
            .collect(),
    };
    Setting {
        side: job.side,
        engine,
        mtu: job.script.mtu.unwrap_or(USUAL_MTU),
        settings: job.script.settings.clone(),
    }
}

fn broken(problem: &anyhow::Error) -> Box<Failure> {
    Box::new(Failure {
        line: 0,
        text: String::new(),
        problem: format!("{problem:#}"),
        trace: Vec::new(),
        is_disturbed: true,
    })
}

/// Takes a bench for the script, or builds one, and plays.
fn play(job: &Job<'_>, tools: &Tools, benches: &Mutex<Vec<Bench>>) -> Result<(), Box<Failure>> {
    let setting = setting(job);
    let kept = {
        let mut benches = locked(benches);
        let at = benches.iter().position(|bench| *bench.setting() == setting);
        at.map(|at| benches.swap_remove(at))
    };
    let mut bench = match kept {
        Some(bench) => bench,
        None => Bench::build(setting, tools).map_err(|error| broken(&error))?,
    };
    let result = on_bench(job, &mut bench);
    // A bench on which something failed may be in any state.
    if result.is_ok() && !bench.is_worn() {
        locked(benches).push(bench);
    }
    result
}

fn on_bench(job: &Job<'_>, bench: &mut Bench) -> Result<(), Box<Failure>> {
    let sysctls = if job.side == Side::Kernel {
        job.script.sysctls.as_slice()
    } else {
        &[]
    };
    let mut before = Vec::new();
    for (name, value) in sysctls {
        let usual = bench
            .set_sysctl(name, value)
            .map_err(|error| broken(&error))?;
        before.push((name, usual));
    }
    let mut run = bench.next_run(job.family).map_err(|error| broken(&error))?;
    let mut result = player::play(job.script, job.side, job.family, &mut run);
    drop(run);
    if let (Err(failure), Some(death)) = (&mut result, bench.engine_death()) {
        failure.problem = format!("{}; {death}", failure.problem);
    }
    for (name, usual) in before {
        bench
            .set_sysctl(name, &usual)
            .map_err(|error| broken(&error))?;
    }
    result
}

/// How many scripts may run at once by default: they wait, but each also has processes to start.
pub fn usual_workers() -> usize {
    std::thread::available_parallelism().map_or(8, |count| count.get() * 5)
}

/// Sum of the times of all runs: what they would have taken one after the other.
pub fn total(outcomes: &[Outcome]) -> Duration {
    outcomes.iter().map(|outcome| outcome.took).sum()
}
