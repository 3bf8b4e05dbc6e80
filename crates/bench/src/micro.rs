//! `shunt bench latency`, `bulk`, `rate`, `connect`, `cpu`, `calls`, `response`, `left`, `notify`, `matrix`,
//! `driver`, `trading`, `placement`: what Shunt has set itself, and what of it is reached on this machine.
//!
//! Each command runs its setups in turn, once per run and in the other order every second time, and compares
//! within runs. A run that goes wrong is a failure; what is slower than the kernel is none.

mod asked;
mod bulk;
mod calls;
mod connect;
mod cpu;
pub mod driver;
mod ends;
mod latency;
mod left;
mod matrix;
mod notify;
mod placement;
mod purpose;
mod rate;
pub(super) mod report;
mod response;
pub mod row;
mod samples;
mod setup;
pub(super) mod testbed;
mod trading;

use std::{process::ExitCode, time::Instant};

use clap::{Args, ValueEnum};
use load::{idle::IdleLatency, interrupt::Interrupt};

use crate::{distance, paper, tools};
use samples::Samples;
use setup::{Idle, Plan, Setup};
use testbed::{Scale, Testbed, Unavailable};

/// How a measurement is run and shown.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Few and short runs.
    #[arg(long)]
    quick: bool,
    /// Runs of each setup [default: 5; with --quick 2].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Length of each run, where it has any, in seconds [default: 1; with --quick 0.3].
    #[arg(long, value_parser = parse_seconds)]
    seconds: Option<f64>,
    /// Only the rows in whose name these words stand, such as "same host"; several with commas between them, or by
    /// several --only. A whole name may have commas of its own.
    #[arg(long, value_name = "WORDS")]
    only: Vec<String>,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Subject {
    Latency,
    Bulk,
    Rate,
    Connect,
    Cpu,
    Calls,
    Response,
    Left,
    Notify,
    Matrix,
    Driver,
    Trading,
    Placement,
}

impl Subject {
    /// As the command line has it.
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn plan(self) -> anyhow::Result<Plan> {
        Ok(match self {
            Self::Latency => latency::plan(),
            Self::Bulk => bulk::plan(),
            Self::Rate => rate::plan(),
            Self::Connect => connect::plan(),
            Self::Cpu => cpu::plan(),
            Self::Calls => calls::plan()?,
            Self::Response => response::plan(),
            Self::Left => left::plan(),
            Self::Notify => notify::plan(),
            Self::Matrix => matrix::plan(),
            Self::Driver => driver::plan(),
            Self::Trading => trading::plan(),
            Self::Placement => placement::plan(),
        })
    }

    /// What a paper reports of it, as a whole.
    fn published(self) -> Vec<String> {
        match self {
            Self::Trading => paper::of_trading(),
            _ => Vec::new(),
        }
    }
}

/// How long a measurement may take.
#[derive(Debug, Clone, Copy)]
pub struct Length {
    /// Runs of each setup.
    pub runs: u32,
    /// Of each run, where a program takes any.
    pub seconds: f64,
    /// No round is begun that would end after this, but for the first [`LEAST_RUNS`].
    pub until: Option<Instant>,
}

/// So many runs an interval needs.
pub const LEAST_RUNS: u32 = 3;

/// The length of a run, of the command line.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("it is a number from 0.01 to 60".to_owned()),
    }
}

pub fn execute(subject: Subject, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::catch()?;
    let (runs, seconds) = if arguments.quick { (2, 0.3) } else { (5, 1.0) };
    let length = Length {
        runs: arguments.runs.unwrap_or(runs),
        seconds: arguments.seconds.unwrap_or(seconds),
        until: None,
    };
    let report = some_rows(subject, &arguments.only, length, interrupt)?;
    output::print_result(arguments.json, &report, || report.text())?;
    Ok(ExitCode::from(u8::from(report.failed())))
}

/// The rows of a subject in whose name one of the words stands; all where there are no words.
pub fn some_rows(
    subject: Subject,
    words: &[impl AsRef<str>],
    length: Length,
    interrupt: Interrupt,
) -> anyhow::Result<report::Report> {
    let plan = subject.plan()?.only(words)?;
    let mut report = run(&subject.name(), &plan, length, interrupt)?;
    report.published = subject.published();
    Ok(report)
}

/// The names of the rows that [`some_rows`] measures.
#[cfg(test)]
pub fn names(subject: Subject, words: &[impl AsRef<str>]) -> anyhow::Result<Vec<String>> {
    let plan = subject.plan()?.only(words)?;
    Ok(plan.rows.into_iter().map(|row| row.what).collect())
}

/// What Shunt is for, beside the kernel.
///
/// # Errors
/// The lab cannot be built, or somebody asked this process to end.
pub fn purpose(runs: u32, seconds: f64, interrupt: Interrupt) -> anyhow::Result<report::Report> {
    let length = Length {
        runs,
        seconds,
        until: None,
    };
    run("purpose", &purpose::plan()?, length, interrupt)
}

fn run(
    name: &str,
    plan: &Plan,
    Length {
        runs,
        seconds,
        until,
    }: Length,
    interrupt: Interrupt,
) -> anyhow::Result<report::Report> {
    plan.check_alike()?;
    let testbed = Testbed::create(Scale { seconds }, lab::ORDINARY_SEGMENT_BYTES, interrupt)?;
    let mut samples = Samples::default();
    for setup in &plan.setups {
        let missing = tools::missing(setup.tools);
        if !missing.is_empty() {
            let names = missing.join(", ");
            let why = format!("not installed: {names}; run scripts/install-packages bench");
            samples.skip(setup.key, why);
        }
    }
    let begun = Instant::now();
    let mut done = 0;
    for run in 0..runs {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // Another round takes as long as those before.
        if done >= LEAST_RUNS && left.is_some_and(|left| left < begun.elapsed() / done) {
            break;
        }
        done += 1;
        // Whoever comes later finds warmer caches: take turns.
        let mut order: Vec<&Setup> = plan.setups.iter().collect();
        if run % 2 == 1 {
            order.reverse();
        }
        for setup in order {
            if !samples.is_over(setup.key) {
                measure(&testbed, setup, run, runs, &mut samples);
            }
            testbed.interrupt.check()?;
        }
    }
    Ok(report::Report::of(name, done, &testbed, plan, &samples))
}

/// Measures a setup once.
fn measure(testbed: &Testbed, setup: &Setup, run: u32, runs: u32, samples: &mut Samples) {
    let (result, distance_ns) = distance::beside(|| {
        let _held = (setup.idle == Idle::Held).then(IdleLatency::hold);
        (setup.measure)(testbed, setup)
    });
    let say = |text: &str| {
        testbed.say(&format!(
            "{}: run {} of {runs}: {text}",
            setup.title,
            run + 1
        ))
    };
    match result {
        Ok(values) => {
            let shown = values
                .iter()
                .map(|(name, value)| format!("{name} {value:.2}"));
            say(&shown.collect::<Vec<_>>().join(", "));
            samples.add(setup.key, run, values, distance_ns);
        }
        Err(error) if error.is::<Unavailable>() => {
            say(&format!("skipped: {error}"));
            samples.skip(setup.key, format!("{}: {error}", setup.title));
        }
        Err(error) => {
            say(&format!("failed: {error:#}"));
            samples.fail(setup.key, format!("{}: {error:#}", setup.title));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Subject> {
        Subject::value_variants().iter().copied()
    }

    fn only(subject: Subject, words: &[&str]) -> anyhow::Result<Plan> {
        subject.plan()?.only(words)
    }

    #[test]
    fn every_row_has_its_setups_and_every_setup_a_row() {
        for subject in all() {
            let plan = subject.plan().unwrap();
            for row in &plan.rows {
                for key in row.kernel.into_iter().chain([row.shunt]) {
                    let its = plan.setups.iter().filter(|one| one.key == key);
                    assert_eq!(its.count(), 1, "{}: {}", subject.name(), row.what);
                }
            }
            for setup in &plan.setups {
                let what = format!("{}: {}", subject.name(), setup.title);
                assert!(plan.needs(setup), "{what}");
                // Every stack has a name that is known.
                assert!(!setup.stacks.is_empty(), "{what}");
            }
        }
    }

    #[test]
    fn all_that_the_trading_paper_reports_stands_beside_its_rows() {
        let facts = Subject::Trading.published();
        assert_eq!(facts.len(), 11);
        for figure in ["175 us", "393 us", "131 us"] {
            assert!(facts.iter().any(|fact| fact.contains(figure)), "{figure}");
        }
        assert!(Subject::Latency.published().is_empty());
    }

    #[test]
    fn what_is_measured_under_other_conditions_is_not_compared() {
        for subject in all() {
            subject.plan().unwrap().check_alike().unwrap();
        }
        let mut plan = only(Subject::Latency, &["same host, both inline"]).unwrap();
        plan.setups[0].idle = Idle::Untouched;
        let said = plan.check_alike().unwrap_err().to_string();
        assert!(said.contains("idle"), "{said}");
    }

    #[test]
    fn only_some_rows_are_measured_with_the_setups_that_they_need() {
        let plan = only(Subject::Latency, &["Same Host"]).unwrap();
        let keys: Vec<_> = plan.setups.iter().map(|setup| setup.key).collect();
        assert_eq!(
            keys,
            [
                "loopback-spin",
                "same-inline",
                "same-engine",
                "host-sleep",
                "host-inline",
                "host-loopback"
            ]
        );
        // With the tail's rows below them.
        assert_eq!(plan.rows.len(), 12);
        let plan = only(Subject::Bulk, &["same host, both inline", "tap"]).unwrap();
        let keys: Vec<_> = plan.setups.iter().map(|setup| setup.key).collect();
        assert_eq!(keys, ["kernel", "tap", "loopback", "same"]);
        assert_eq!(plan.rows.len(), 3);
        // As they are printed, commas and all, and several in one.
        for subject in all() {
            for row in subject.plan().unwrap().rows {
                let name = row.what.trim();
                if row.what.starts_with(' ') {
                    continue;
                }
                let kept = only(subject, &[name]).unwrap().rows;
                let mut whole = kept.iter().filter(|row| !row.what.starts_with(' '));
                assert!(whole.all(|row| row.what.contains(name)), "{name}");
            }
        }
        let both = only(Subject::Bulk, &["same host, both inline,tap"]).unwrap();
        assert_eq!(both.rows.len(), 3);
        let error = only(Subject::Connect, &["same host"]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("no row") && text.contains("  socket create"),
            "{text}"
        );
    }
}
