//! `shunt sim sweep` and `shunt sim merge`: many points, on all processors, in shards.
//!
//! A result is one line of JSON that depends on its scenario alone; lines are sorted by the hash of the
//! scenario. So any number of processors or shards gives the same bytes once merged, and what is
//! already in the file need not be computed again.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use load::interrupt::Interrupt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use sim::{
    machine::bounds::Bounds,
    report::{self, Point},
    scenario::{Axis, Scenario, points},
    statistics::summary::{Summary, replicate_within},
};

use output::write_file;

use crate::{command::scenario, progress::Progress};

/// Simulate every combination of values, on all processors
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt sim sweep scenarios/fig8.toml                        the axes in the file
  shunt sim sweep my.toml --axis clients=1..9 --axis nic.clock_mhz=50,100,200 --html out.html
  shunt sim sweep my.toml --shard 3/64 --out part-3.jsonl    a 64th; shards count from 0
  shunt sim merge part-*.jsonl --out all.jsonl               the same bytes as without shards

A sweep that was interrupted (Ctrl-C) goes on where it stopped when it is given the same --out.")]
pub struct Arguments {
    /// The scenario (TOML)
    file: PathBuf,
    /// KEY=VALUES with values 1..9, 0..1:0.25 or 50,100; may be given several times
    #[arg(long, value_name = "KEY=VALUES")]
    axis: Vec<String>,
    /// Another value for a key
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Threads; all processors by default
    #[arg(long)]
    jobs: Option<usize>,
    /// Only part I of N of the points, counted from 0
    #[arg(long, value_name = "I/N", value_parser = shard)]
    shard: Option<Shard>,
    /// Write one line of JSON per point to this file; goes on where it stopped
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a table of comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write one HTML page with a chart
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one line of JSON per point
    #[arg(long)]
    json: bool,
}

/// Join the results of shards: the same bytes as one sweep
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt sim merge part-*.jsonl --out all.jsonl
  shunt sim merge part-*.jsonl | wc -l          points that are there

A point that two files have with different results is an error: another version made one of them.")]
pub struct Merge {
    /// Files written by `sim sweep --out`
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Write to this file in place of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shard {
    index: usize,
    of: usize,
}

fn shard(text: &str) -> Result<Shard, String> {
    let parts = text.split_once('/');
    let parsed = parts.and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    match parsed {
        Some((index, of)) if index < of => Ok(Shard { index, of }),
        Some((_, of)) => Err(format!(
            "counts from 0: the last one is {}/{of}",
            of.max(1) - 1
        )),
        None => Err("is not I/N, for example 3/64".to_owned()),
    }
}

/// A point that is still to be computed.
struct Task {
    hash: String,
    settings: Vec<String>,
    scenario: Scenario,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    hash: &'a str,
    version: &'static str,
    seed: u64,
    settings: &'a [String],
    summary: &'a Summary,
}

/// What identifies a point: its whole scenario and the program's version.
fn hash(scenario: &Scenario) -> anyhow::Result<String> {
    let text = serde_json::to_string(scenario).context("composing JSON")?;
    let digest = Sha256::digest(format!("{} {text}", env!("CARGO_PKG_VERSION")));
    let digits = digest.iter().take(12).map(|byte| format!("{byte:02x}"));
    Ok(digits.collect())
}

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let base = scenario(&arguments.file, &arguments.set)?;
    let interrupt = Interrupt::catch()?;
    let mut lines = match &arguments.out {
        Some(file) => finished_lines("--out: ", file)?,
        None => BTreeMap::new(),
    };
    let tasks = tasks(arguments, &base)?;
    let wanted: Vec<(String, Vec<String>)> = tasks
        .iter()
        .map(|task| (task.hash.clone(), task.settings.clone()))
        .collect();
    let missing: Vec<Task> = tasks
        .into_iter()
        .filter(|task| !lines.contains_key(&task.hash))
        .collect();
    let mut partial = match &arguments.out {
        Some(file) => Some(append_to(file, &lines)?),
        None => None,
    };
    let available = || thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.unwrap_or_else(available).max(1);
    let mut summaries = BTreeMap::new();
    let mut left = missing.len();
    let mut progress = Progress::new("points", Some(missing.len()));
    compute(&missing, jobs, &interrupt, |task, summary| {
        let line = line(task, &summary)?;
        if let Some(file) = &mut partial {
            writeln!(file, "{line}").context("--out: writing a result")?;
        }
        lines.insert(task.hash.clone(), line);
        summaries.insert(task.hash.clone(), summary);
        left -= 1;
        progress.step();
        Ok(())
    })?;
    drop(partial);
    let text: String = lines.values().map(|line| format!("{line}\n")).collect();
    if let Some(file) = &arguments.out {
        replace(file, &text)?;
    }
    if left > 0 {
        let done = wanted.len() - left;
        bail!(interrupted(done, wanted.len(), arguments.out.as_deref()));
    }
    if arguments.json {
        output::print(&text)?;
    }
    add_earlier(&wanted, &lines, &mut summaries)?;
    present(arguments, &base, &wanted, &summaries)?;
    Ok(ExitCode::SUCCESS)
}

/// What somebody who pressed Ctrl-C wants to know.
fn interrupted(done: usize, of: usize, out: Option<&Path>) -> String {
    match out {
        Some(file) => format!(
            "interrupted: {done} of {of} points are in {}; the same command goes on from there",
            file.display()
        ),
        None => format!("interrupted after {done} of {of} points, which --out would have kept"),
    }
}

/// Adds what an earlier run of the same sweep left in its file, so that tables and pages are whole.
fn add_earlier(
    wanted: &[(String, Vec<String>)],
    lines: &BTreeMap<String, String>,
    summaries: &mut BTreeMap<String, Summary>,
) -> anyhow::Result<()> {
    #[derive(Deserialize)]
    struct Earlier {
        summary: Summary,
    }
    for (hash, _) in wanted {
        if let (Entry::Vacant(entry), Some(line)) = (summaries.entry(hash.clone()), lines.get(hash))
        {
            let earlier: Earlier = serde_json::from_str(line)
                .with_context(|| format!("--out: the line of point {hash} is no result"))?;
            entry.insert(earlier.summary);
        }
    }
    Ok(())
}

fn tasks(arguments: &Arguments, base: &Scenario) -> anyhow::Result<Vec<Task>> {
    let own = base
        .sweep
        .iter()
        .map(|axis| format!("{}={}", axis.key, axis.values));
    let given: Vec<String> = match arguments.axis.is_empty() {
        true => own.collect(),
        false => arguments.axis.clone(),
    };
    ensure!(
        !given.is_empty(),
        "nothing to sweep: give --axis KEY=VALUES, or [[sweep]] in {}",
        arguments.file.display()
    );
    let axes: Vec<Axis> = given
        .iter()
        .map(|text| Axis::parse(text))
        .collect::<Result<_, _>>()?;
    let shard = arguments.shard.unwrap_or(Shard { index: 0, of: 1 });
    let points = points(base, &axes)?.into_iter().enumerate();
    let mine = points.filter(|(index, _)| index % shard.of == shard.index);
    let mut tasks: Vec<Task> = Vec::new();
    for (_, (settings, scenario)) in mine {
        tasks.push(Task {
            hash: hash(&scenario)?,
            settings,
            scenario,
        });
    }
    Ok(tasks)
}

fn line(task: &Task, summary: &Summary) -> anyhow::Result<String> {
    serde_json::to_string(&Line {
        hash: &task.hash,
        version: env!("CARGO_PKG_VERSION"),
        seed: task.scenario.runs.seed,
        settings: &task.settings,
        summary,
    })
    .context("composing JSON")
}

/// Runs the tasks on some threads; results come in any order, one at a time. An interruption ends it within
/// milliseconds, and what was under way then is no result.
fn compute(
    tasks: &[Task],
    jobs: usize,
    interrupt: &Interrupt,
    mut done: impl FnMut(&Task, Summary) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.min(tasks.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                let bounds = Bounds {
                    events: u64::MAX,
                    stopped: &|| interrupt.came(),
                };
                while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let summary = replicate_within(&task.scenario, bounds, |_, _| {});
                    if interrupt.came() || sender.send((task, summary)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let result = receiver
            .iter()
            .try_for_each(|(task, summary)| done(task, summary));
        // Where a result could not be kept, the threads need not go on.
        next.store(tasks.len(), Ordering::Relaxed);
        result
    })
}

/// The whole lines of a file of results, by hash; what a killed sweep left half written is dropped.
/// `named` is how the command line names the file.
fn finished_lines(named: &str, file: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error).context(format!("{named}reading {}", file.display())),
    };
    let keyed = |line: &str| {
        let value: Value = serde_json::from_str(line).ok()?;
        let hash = value.get("hash")?.as_str()?.to_owned();
        Some((hash, line.to_owned()))
    };
    let lines: BTreeMap<String, String> = text.lines().filter_map(keyed).collect();
    ensure!(
        !lines.is_empty() || text.is_empty(),
        "{named}{} is no file of results as `shunt sim sweep --out` writes them; give another name",
        file.display()
    );
    Ok(lines)
}

fn append_to(file: &Path, lines: &BTreeMap<String, String>) -> anyhow::Result<File> {
    let whole: String = lines.values().map(|line| format!("{line}\n")).collect();
    replace(file, &whole)?;
    let opened = OpenOptions::new().append(true).open(file);
    opened.with_context(|| format!("--out: opening {}", file.display()))
}

/// Writes a file beside its place and moves it there: it is never half written.
fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let beside = file.with_file_name(name);
    write_file("--out", &beside, text)?;
    fs::rename(&beside, file).with_context(|| format!("--out: writing {}", file.display()))
}

fn present(
    arguments: &Arguments,
    base: &Scenario,
    wanted: &[(String, Vec<String>)],
    summaries: &BTreeMap<String, Summary>,
) -> anyhow::Result<()> {
    let points: Vec<Point> = wanted
        .iter()
        .filter_map(|(hash, settings)| {
            let summary = summaries.get(hash)?;
            Some(Point { settings, summary })
        })
        .collect();
    let document = report::of_sweep(&base.title, &points);
    if let Some(file) = &arguments.html {
        write_file("--html", file, &document.to_html())?;
    }
    if let Some(file) = &arguments.csv {
        write_file("--csv", file, &document.to_csv())?;
    }
    if !arguments.json {
        output::print(&document.to_text())?;
    }
    Ok(())
}

pub fn merge(arguments: &Merge) -> anyhow::Result<ExitCode> {
    let mut lines: BTreeMap<String, String> = BTreeMap::new();
    for file in &arguments.files {
        ensure!(file.exists(), "{} does not exist", file.display());
        for (hash, line) in finished_lines("", file)? {
            match lines.entry(hash) {
                Entry::Vacant(entry) => {
                    entry.insert(line);
                }
                Entry::Occupied(entry) if *entry.get() == line => {}
                Entry::Occupied(entry) => bail!(
                    "{}: point {} has another result than in an earlier file",
                    file.display(),
                    entry.key()
                ),
            }
        }
    }
    let text: String = lines.values().map(|line| format!("{line}\n")).collect();
    match &arguments.out {
        Some(file) => replace(file, &text)?,
        None => output::print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}
