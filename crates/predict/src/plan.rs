//! `shunt sim plan`: what offload would buy a workload, from a file or from a program that runs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use sim::plan::{Plan, Preset, Workload, plan};

use load::interrupt::Interrupt;
use observe::observe;
use output::write_file;

/// Say what offload would buy a workload: buys, not known, buys nothing, or hurts, and why
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt sim plan workloads/rpc.toml
  shunt sim plan --record 4711 30s                     a running program, watched from outside
  shunt sim plan --record 4711 30s --out mine.toml     and what was seen as a file to change
  shunt sim calibrate --out costs.toml && shunt sim plan mine.toml --preset costs.toml
  shunt sim plan mine.toml --json
  shunt sim plan --verify                              predictions beside measurements: ten minutes and more

A recording counts connections, bytes and segments (INET_DIAG) and processor time, sleeps and
calls (/proc); nothing is traced and the program is not slowed down. What it cannot see stands in
the file.

workloads/ has one case that gains and four that do not; docs/simulator.md lists the keys.")]
pub struct Arguments {
    /// The workload (TOML)
    #[arg(required_unless_present_any = ["record", "verify"], conflicts_with_all = ["record", "verify"])]
    file: Option<PathBuf>,
    /// Watch this process and its children, by default for 30s, and plan for what they do
    #[arg(long, num_args = 1..=2, value_names = ["PID", "TIME"])]
    record: Option<Vec<String>>,
    /// Write what was recorded to this workload file
    #[arg(long, value_name = "FILE", requires = "record")]
    out: Option<PathBuf>,
    /// Calibrate, predict, measure, and print the errors; exit status 1 where a bound is missed or nothing is known
    #[arg(long, conflicts_with_all = ["record", "preset"])]
    verify: bool,
    /// Costs as `shunt sim calibrate` writes them; by default those that come with the program
    #[arg(long, value_name = "FILE")]
    preset: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How long a program is watched unless its user says so.
const RECORDING: Duration = Duration::from_secs(30);
/// Shorter than this, nothing is learnt; longer, nobody waits.
const RECORDING_S: std::ops::RangeInclusive<f64> = 0.5..=86_400.0;

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.verify {
        return crate::verify::execute(arguments.json);
    }
    let preset = preset(arguments.preset.as_deref())?;
    let (workload, plan) = match (&arguments.record, &arguments.file) {
        (Some(words), _) => {
            let workload = record(words, arguments)?;
            let plan = plan(&workload, &preset).context("in the recording")?;
            (workload, plan)
        }
        (None, Some(file)) => of_file(file, &preset)?,
        (None, None) => anyhow::bail!("name a workload file, or --record a process"),
    };
    output::print_result(arguments.json, &plan, || {
        plan.report(&workload, &preset.machine).to_text()
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The costs of a file, or the shipped ones.
fn preset(file: Option<&Path>) -> anyhow::Result<Preset> {
    match file {
        None => Ok(Preset::shipped()),
        Some(file) => {
            let text =
                fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
            Preset::parse(&text).with_context(|| format!("--preset: in {}", file.display()))
        }
    }
}

/// The workload of a file and its plan; errors name the line.
fn of_file(file: &Path, preset: &Preset) -> anyhow::Result<(Workload, Plan)> {
    let named = || format!("in {}", file.display());
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let workload = Workload::parse(&text).with_context(named)?;
    let plan = plan(&workload, preset).map_err(|error| error.in_text(&text));
    Ok((workload, plan.with_context(named)?))
}

fn record(words: &[String], arguments: &Arguments) -> anyhow::Result<Workload> {
    let (pid, time) = process_and_time(words)?;
    let interrupt = Interrupt::catch()?;
    note!(
        "watching process {pid} for {} s (Ctrl-C ends it earlier)",
        time.as_secs_f64()
    );
    let observation = observe(pid, time, interrupt.flag())?;
    let text = observation.to_toml()?;
    match &arguments.out {
        Some(file) => write_file("--out", file, &text)?,
        // Comments of the file are for readers: those of the terminal too.
        None => note!("{text}"),
    }
    Ok(observation.workload()?)
}

/// `PID` or `PID TIME`, a time as `30s`, `500ms`, `2m` or a number of seconds.
fn process_and_time(words: &[String]) -> anyhow::Result<(u32, Duration)> {
    let pid = words.first().context("--record: no process given")?;
    let pid: u32 = pid
        .parse()
        .with_context(|| format!("--record: \"{pid}\" is no process number"))?;
    let time = match words.get(1) {
        None => RECORDING,
        Some(text) => {
            let wrong =
                || format!("--record: \"{text}\" is no time between 500ms and 24h: 30s, 2m");
            duration(text).with_context(wrong)?
        }
    };
    Ok((pid, time))
}

fn duration(text: &str) -> Option<Duration> {
    let units = [
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
        ("", 1.0),
    ];
    let (number, unit_s) = units
        .into_iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))?;
    let seconds = number.parse::<f64>().ok()? * unit_s;
    let fits = RECORDING_S.contains(&seconds);
    fits.then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_watched_for_the_time_that_is_given() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let of = |text: &str| process_and_time(&words(text));
        assert_eq!(of("12").unwrap(), (12, Duration::from_secs(30)));
        assert_eq!(of("12 500ms").unwrap().1, Duration::from_millis(500));
        assert_eq!(of("12 2m").unwrap().1, Duration::from_secs(120));
        assert_eq!(of("12 7").unwrap().1, Duration::from_secs(7));
        for wrong in ["x", "12 soon", "12 0s", "12 -1s", "12 25h", "12 NaNs"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
