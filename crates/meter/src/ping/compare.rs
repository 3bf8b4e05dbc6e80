//! `--compare`: the same measurement over several stacks, round by round in one run, in the other order every second
//! time; and ratios with an interval. Each measurement is a child of its own, under `shunt run` where it is Shunt's.

use std::{
    ffi::OsString,
    path::Path,
    process::{Command, ExitCode},
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, ensure};
use hostif::stages::STAGES_VARIABLE;
use output::Table;
use serde::Serialize;
use statistics::{Distribution, Interval, Summary, median_ratio};

use super::{Arguments, status};
use crate::runs::{Row, summary_table};
use crate::{
    probe::Kind,
    report::{FIGURES, Figure, Report, VERSION, html, warning},
    stages::timeline::ASK,
    testbed::{self, Mode, Testbed},
};

#[derive(Debug, Serialize)]
struct Comparison {
    version: u32,
    modes: Vec<ModeRounds>,
    ratios: Vec<Ratio>,
    /// What speaks against the figures; each round has its own in full.
    warnings: Vec<String>,
    /// Limits that were not kept, with the mode and round.
    exceeded: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ModeRounds {
    mode: Mode,
    rounds: Vec<Report>,
}

/// A mode beside the first one.
#[derive(Debug, Serialize)]
struct Ratio {
    mode: Mode,
    baseline: Mode,
    figure: &'static str,
    interval: Interval,
}

/// Measures over each stack in turn.
pub fn execute(arguments: &Arguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let kind = arguments.kind();
    let on_this_host = arguments.target.is_some() || !arguments.nic.is_empty();
    ensure!(
        kind != Kind::Icmp || !on_this_host,
        "--compare: the kernel asks by ICMP whatever runs on this host; leave HOST out to compare who answers, or use --udp"
    );
    let testbed = if on_this_host {
        None
    } else {
        Some(Testbed::create(stop)?)
    };
    let mut modes: Vec<ModeRounds> = Vec::new();
    for mode in &arguments.compare {
        ensure!(
            modes.iter().all(|one| one.mode != *mode),
            "--compare: {} is there twice",
            mode.name()
        );
        modes.push(ModeRounds {
            mode: *mode,
            rounds: Vec::new(),
        });
    }
    measure_rounds(arguments, testbed.as_ref(), &mut modes, stop)?;
    let comparison = Comparison::of(modes);
    output::print_result(arguments.json, &comparison, || comparison.text())?;
    if let Some(file) = &arguments.report {
        output::write_file("--report", file, &comparison.page())?;
    }
    Ok(status(!comparison.exceeded.is_empty()))
}

/// Measures round by round. Where somebody ends it, the rounds that are whole count.
fn measure_rounds(
    arguments: &Arguments,
    testbed: Option<&Testbed<'_>>,
    modes: &mut [ModeRounds],
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    'rounds: for round in 0..arguments.rounds {
        let mut order: Vec<&mut ModeRounds> = modes.iter_mut().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for one in order {
            let measured = measure(arguments, testbed, one.mode, None);
            if stop.load(Ordering::Relaxed) {
                // The same signal has ended the measurement.
                break 'rounds;
            }
            let report = measured
                .with_context(|| format!("--compare: {}, round {}", one.mode.name(), round + 1))?;
            if !arguments.json {
                let p50 = report.round_trip.as_ref().and_then(Distribution::median_us);
                let p50 = p50.map_or("nothing was answered".to_owned(), |us| {
                    format!("p50 {us:.2} µs")
                });
                note!(
                    "round {} of {}: {} {p50}",
                    round + 1,
                    arguments.rounds,
                    one.mode.name()
                );
            }
            one.rounds.push(report);
        }
    }
    let whole = modes.iter().map(|one| one.rounds.len()).min().unwrap_or(0);
    ensure!(whole > 0, "interrupted before each stack was measured once");
    for one in modes.iter_mut() {
        one.rounds.truncate(whole);
    }
    if stop.load(Ordering::Relaxed) {
        note!("interrupted: what follows is what the rounds before came to");
    }
    Ok(())
}

/// One measurement over one stack; where it is looked into, with a file for its round trips, and a folder for what is noted of
/// stages.
pub fn measure(
    arguments: &Arguments,
    testbed: Option<&Testbed<'_>>,
    mode: Mode,
    looked_into: Option<(&Path, Option<&Path>)>,
) -> anyhow::Result<Report> {
    // On Shunt's stack a call that waits spins as long as it pays, by itself.
    let spin = arguments.spin && !matches!(mode, Mode::Engine | Mode::Inline);
    let kind = arguments.kind();
    let mut words = arguments.child_words(spin);
    words.push("--stack".to_owned());
    words.push(mode.title(kind).to_owned());
    words.extend(looked_into.map(|(samples, _)| format!("--samples={}", samples.display())));
    let noted_in = looked_into.and_then(|(_, folder)| folder);
    let mut report = match testbed {
        Some(testbed) => {
            words.extend((kind == Kind::Raw).then(|| format!("--nic={}", lab::INTERFACE)));
            testbed.measure(mode, kind, &words, spin, noted_in)?
        }
        None => on_this_host(arguments, mode, &words, noted_in)?,
    };
    report.judge(&arguments.limit, arguments.max_loss);
    Ok(report)
}

fn on_this_host(
    arguments: &Arguments,
    mode: Mode,
    words: &[String],
    noted_in: Option<&Path>,
) -> anyhow::Result<Report> {
    let process = if mode == Mode::Engine {
        "--engine-mode=process"
    } else {
        ""
    };
    let flags = arguments.run.as_deref().unwrap_or_default();
    let line = testbed::prefix(mode, &format!("{process} {} {flags}", testbed::IDLE))?;
    let (program, rest) = line
        .split_first()
        .context("invariant: a line names a program")?;
    let target = arguments.target.as_ref().map(OsString::from);
    let output = Command::new(program)
        .args(rest)
        .arg("ping")
        .args(target)
        .args(words)
        .args((!arguments.nic.is_empty()).then(|| format!("--nic={}", arguments.nic.join(","))))
        .args(mode.frame_driver().map(testbed::driver_word))
        .envs(noted_in.map(|folder| (STAGES_VARIABLE, folder.join(ASK))))
        .output()
        .context("starting the measuring program")?;
    let report = testbed::parse(
        &String::from_utf8_lossy(&output.stdout),
        &String::from_utf8_lossy(&output.stderr),
    )?;
    check_engine(arguments, mode, &report)?;
    Ok(report)
}

/// Refuses what another engine served than was asked for, and leaves the address free for one inside the program.
fn check_engine(arguments: &Arguments, mode: Mode, report: &Report) -> anyhow::Result<()> {
    let Some(served) = report.served.as_ref().filter(|found| !found.is_inside) else {
        return Ok(());
    };
    ensure!(
        mode != Mode::Inline,
        "engine {} serves that address already and served this program too, from a process of its own: end it, or name another address, \
         as --run '--nic eth0 --address 10.0.0.9/24'",
        served.engine
    );
    if arguments.compare.contains(&Mode::Inline) {
        served.wait_until_ended();
    }
    Ok(())
}

fn heading(report: &Report) -> String {
    let what = match report.kind {
        Kind::Raw => "in several ways",
        _ => "over several stacks",
    };
    format!("{}, {what} in turns", report.subject())
}

/// The warnings of all rounds by what they say first, with the number of rounds; and what a binary says of itself.
fn warnings(modes: &[ModeRounds]) -> Vec<String> {
    let rounds = modes.iter().flat_map(|one| &one.rounds);
    let mut told = warning::by_kind(rounds, "measurements");
    if !told.is_empty() {
        told.push("more --rounds make the interval sure on a machine that others use".to_owned());
    }
    let is_ours = |one: &ModeRounds| matches!(one.mode, Mode::Engine | Mode::Inline);
    let unoptimised = output::unoptimised().filter(|_| modes.iter().any(is_ours));
    told.extend(unoptimised.map(str::to_owned));
    told
}

impl ModeRounds {
    /// The distribution of the round whose median is the middle one.
    fn middle(&self) -> Option<&Distribution> {
        let mut answered: Vec<&Distribution> = self
            .rounds
            .iter()
            .filter_map(|report| report.round_trip.as_ref())
            .collect();
        let median = |found: &Distribution| found.median_us().unwrap_or(f64::INFINITY);
        answered.sort_by(|a, b| median(a).total_cmp(&median(b)));
        answered.get(answered.len().saturating_sub(1) / 2).copied()
    }
}

impl Comparison {
    fn of(modes: Vec<ModeRounds>) -> Self {
        let values = |one: &ModeRounds, figure: &Figure| {
            one.rounds
                .iter()
                .map(figure.1)
                .collect::<Option<Vec<f64>>>()
        };
        let mut ratios = Vec::new();
        if let Some((baseline, others)) = modes.split_first() {
            for one in others {
                for figure in &FIGURES {
                    let both = values(one, figure).zip(values(baseline, figure));
                    let interval = both.and_then(|(ours, theirs)| median_ratio(&ours, &theirs));
                    ratios.extend(interval.map(|interval| Ratio {
                        mode: one.mode,
                        baseline: baseline.mode,
                        figure: figure.0,
                        interval,
                    }));
                }
            }
        }
        let of_round = |one: &ModeRounds, round: usize, report: &Report| -> Vec<String> {
            let mode = one.mode.name();
            let said = report.exceeded.iter();
            said.map(|said| format!("{mode}, round {}: {said}", round + 1))
                .collect()
        };
        let mut exceeded = Vec::new();
        for one in &modes {
            for (round, report) in one.rounds.iter().enumerate() {
                exceeded.extend(of_round(one, round, report));
            }
        }
        Self {
            version: VERSION,
            warnings: warnings(&modes),
            exceeded,
            ratios,
            modes,
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(first) = self.modes.first().and_then(|one| one.rounds.first()) {
            text += &format!("{}\n\n", heading(first));
        }
        text += &self.table().render();
        text.push('\n');
        text += &self.ratios_text();
        if let Some(last) = self.modes.last().and_then(|one| one.rounds.last()) {
            text.push('\n');
            for line in last.environment.lines() {
                text += &format!("{line}\n");
            }
        }
        for warning in &self.warnings {
            text += &format!("warning: {warning}\n");
        }
        for exceeded in &self.exceeded {
            text += &format!("failed: {exceeded}\n");
        }
        text
    }

    fn page(&self) -> String {
        let first = self.modes.first().and_then(|one| one.rounds.first());
        let heading = first.map_or(String::new(), heading);
        let curves: Vec<(&str, &Distribution)> = self
            .modes
            .iter()
            .filter_map(|one| Some((one.mode.name(), one.middle()?)))
            .collect();
        let text = self.text();
        // It opens with the same heading.
        let text = text.strip_prefix(&heading).unwrap_or(&text).trim_start();
        html::comparison(&heading, text, &curves)
    }

    fn table(&self) -> Table {
        let rows = self.modes.iter().map(|one| {
            let summary = |figure: &Figure| {
                Summary::of(&one.rounds.iter().filter_map(figure.1).collect::<Vec<f64>>())
            };
            let [mean, p50, p99] = FIGURES.map(|figure| summary(&figure));
            Row {
                name: one.mode.name(),
                rounds: one.rounds.len(),
                sent: one.rounds.iter().map(|report| report.counts.sent).sum(),
                lost: one.rounds.iter().map(|report| report.counts.lost).sum(),
                mean: mean.map(|found| found.median),
                p50: p50.map(|found| [found.median, found.min, found.max]),
                p99: p99.map(|found| found.median),
            }
        });
        summary_table("rounds", rows)
    }

    fn ratios_text(&self) -> String {
        let mut text = String::new();
        for ratio in &self.ratios {
            let Interval {
                ratio: value,
                low,
                high,
            } = ratio.interval;
            let verdict = match (low > 1.0, high < 1.0) {
                (true, _) => "slower",
                (_, true) => "faster",
                _ => "not told apart",
            };
            text += &format!(
                "{} by {}, {}: {value:.3} ({low:.3} to {high:.3}), {verdict}\n",
                ratio.mode.name(),
                ratio.baseline.name(),
                ratio.figure
            );
        }
        text += &match self.ratios.first() {
            None => {
                "no ratio: it needs three rounds of each stack with answers in all\n".to_owned()
            }
            Some(ratio) => format!(
                "above 1: it takes longer than {}; in brackets the interval of 95 % by bootstrap over rounds\n",
                ratio.baseline.name()
            ),
        };
        text
    }
}
