//! `shunt compare`: saved runs beside each other, by label. Runs were made at different times: what the machine and the
//! network did meanwhile is in the difference, and only several runs of each label tell how large that is.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use output::Table;
use serde::Serialize;
use statistics::{Interval, Summary, median_ratio_of_runs};

use crate::{
    report::{FIGURES, Figure, Report, VERSION},
    saved,
};

/// Compare results that `shunt ping --save` wrote, by file and label.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt ping 10.0.0.5 --save runs.json --label before      three times or more
  shunt ping 10.0.0.5 --save runs.json --label after       three times or more
  shunt compare runs.json                                  after by before, with an interval
  shunt compare monday.json tuesday.json --json
  shunt compare runs.json --limit p50=1.05                 exit status 1 where a p50 is surely 5 % larger

The first label of the first file is what the others are compared with. To compare stacks, shunt ping --compare measures
them in turns, which says more. Exit status: 0 compared, 1 a limit was not kept, 2 wrong usage or system error.")]
pub struct Arguments {
    /// Files of --save.
    #[arg(required = true, num_args = 1..=16, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// So many times the first label's value at most, such as p50=1.05; may be given several times. The exit status is 1
    /// where a label's interval lies above it.
    #[arg(long, value_name = "FIGURE=RATIO", value_parser = parse_limit)]
    limit: Vec<RatioLimit>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What a ratio may be at most.
#[derive(Debug, Clone, Copy, PartialEq)]
struct RatioLimit {
    figure: &'static str,
    most: f64,
}

fn parse_limit(text: &str) -> Result<RatioLimit, String> {
    let parsed = || {
        let (name, most) = text.split_once('=')?;
        let (figure, _) = FIGURES.iter().find(|(known, _)| *known == name)?;
        let most: f64 = most.parse().ok()?;
        (most.is_finite() && most > 0.0).then_some(RatioLimit { figure, most })
    };
    parsed().ok_or_else(|| format!("{text:?} is no limit such as mean=1.05, p50=1.1 or p99=2"))
}

/// Runs of one label.
#[derive(Debug, Serialize)]
struct Group {
    name: String,
    heading: String,
    runs: usize,
    sent: u64,
    lost: u64,
    /// By figure, in microseconds; those that every run has.
    figures: Vec<(&'static str, Summary)>,
    /// By the first group's.
    ratios: Vec<Ratio>,
}

#[derive(Debug, Serialize)]
struct Ratio {
    figure: &'static str,
    ratio: f64,
    /// None with fewer than three runs of either.
    interval: Option<Interval>,
}

#[derive(Debug, Serialize)]
struct Comparison {
    version: u32,
    groups: Vec<Group>,
    warnings: Vec<String>,
    /// Limits that were not kept.
    exceeded: Vec<String>,
}

/// Compares.
///
/// # Errors
/// A file cannot be read.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut groups: Vec<(String, Vec<Report>)> = Vec::new();
    for file in &arguments.files {
        for report in saved::read(file)? {
            let label = report.label.as_deref().unwrap_or("no label");
            let name = if arguments.files.len() > 1 {
                format!("{}: {label}", file.display())
            } else {
                label.to_owned()
            };
            match groups.iter_mut().find(|(known, _)| *known == name) {
                Some((_, reports)) => reports.push(report),
                None => groups.push((name, vec![report])),
            }
        }
    }
    let mut comparison = Comparison::of(&groups);
    comparison.judge(&arguments.limit);
    output::print_result(arguments.json, &comparison, || comparison.text())?;
    Ok(ExitCode::from(u8::from(!comparison.exceeded.is_empty())))
}

/// What rounds or runs of one kind came to, times in microseconds.
pub(crate) struct Row<'n> {
    pub name: &'n str,
    pub rounds: usize,
    /// Probes sent in all.
    pub sent: u64,
    /// Probes lost in all.
    pub lost: u64,
    /// Median of the means.
    pub mean: Option<f64>,
    /// Median, least and most.
    pub p50: Option<[f64; 3]>,
    /// Median.
    pub p99: Option<f64>,
}

/// One row for each; `rounds` is what is counted.
pub(crate) fn summary_table<'n>(rounds: &str, rows: impl Iterator<Item = Row<'n>>) -> Table {
    let mut table = Table::new(&format!(
        "µs, median of {rounds} | {rounds} | sent | lost | mean | p50 | p99 | p50 least | p50 most"
    ));
    let us = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.2}"));
    for row in rows {
        let p50 = |at: usize| us(row.p50.map(|found| found[at]));
        table.row([
            row.name.to_owned(),
            row.rounds.to_string(),
            row.sent.to_string(),
            row.lost.to_string(),
            us(row.mean),
            p50(0),
            us(row.p99),
            p50(1),
            p50(2),
        ]);
    }
    table
}

fn values(reports: &[Report], figure: &Figure) -> Option<Vec<f64>> {
    reports.iter().map(figure.1).collect()
}

/// What runs must have in common to be compared.
fn subject(report: &Report) -> String {
    let sending = &report.sending;
    format!(
        "{}, {} bytes, {} loop{}",
        report.kind.title(),
        report.payload_bytes,
        sending.r#loop,
        sending
            .rate_per_s
            .map_or(String::new(), |rate| format!(" at {rate} per second"))
    )
}

impl Comparison {
    fn of(groups: &[(String, Vec<Report>)]) -> Self {
        let baseline = groups.first().map_or(&[][..], |(_, reports)| reports);
        let mut warnings = Vec::new();
        let first = baseline.first().map(subject);
        for (name, reports) in groups {
            if let Some(other) = reports
                .iter()
                .map(subject)
                .find(|other| Some(other) != first.as_ref())
            {
                let first = first.as_deref().unwrap_or_default();
                warnings.push(format!(
                    "{name} has a run of something else ({other}) than the first ({first}): they are not compared"
                ));
            }
            let busy = reports
                .iter()
                .filter(|report| !report.warnings.is_empty())
                .count();
            if busy > 0 {
                warnings.push(format!(
                    "{name}: {busy} of {} runs have warnings of their own",
                    reports.len()
                ));
            }
        }
        if groups.len() < 2 {
            warnings.push("there is one label only: nothing is compared; give --label another name, or another file".to_owned());
        }
        let groups = groups.iter().enumerate().map(|(index, (name, reports))| {
            let is_alike = reports.iter().map(subject).all(|of| Some(of) == first);
            let beside = (index > 0 && is_alike).then_some(baseline);
            Group::of(name, reports, beside)
        });
        Self {
            version: VERSION,
            groups: groups.collect(),
            warnings,
            exceeded: Vec::new(),
        }
    }

    /// Finds the limits that were not kept: what was not compared keeps none.
    fn judge(&mut self, limits: &[RatioLimit]) {
        for RatioLimit { figure, most } in limits {
            for group in self.groups.iter().skip(1) {
                let of = group.ratios.iter().find(|ratio| ratio.figure == *figure);
                let name = &group.name;
                let said = match of {
                    None => format!("{name}: {figure} was not compared"),
                    Some(ratio) => {
                        // Without an interval nobody knows how sure it is.
                        let least = ratio.interval.map_or(ratio.ratio, |interval| interval.low);
                        if least <= *most {
                            continue;
                        }
                        format!(
                            "{name}: {figure} is {least:.3} times the first label's at least, {most} is the limit"
                        )
                    }
                };
                self.exceeded.push(said);
            }
            if self.groups.len() < 2 {
                self.exceeded.push(format!("{figure} was not compared"));
            }
        }
    }

    fn text(&self) -> String {
        let rows = self.groups.iter().map(|group| Row {
            name: &group.name,
            rounds: group.runs,
            sent: group.sent,
            lost: group.lost,
            mean: group.figure("mean").map(|found| found.median),
            p50: group
                .figure("p50")
                .map(|found| [found.median, found.min, found.max]),
            p99: group.figure("p99").map(|found| found.median),
        });
        let table = summary_table("runs", rows);
        let mut text = String::new();
        for group in &self.groups {
            text += &format!("{}: {}\n", group.name, group.heading);
        }
        text += &format!("\n{}\n", table.render());
        let first = self.groups.first().map_or("", |group| &group.name);
        for group in &self.groups {
            for ratio in &group.ratios {
                let interval = match ratio.interval {
                    Some(Interval { low, high, .. }) => format!("({low:.3} to {high:.3})"),
                    None => "(no interval: it needs three runs of each)".to_owned(),
                };
                text += &format!(
                    "{} by {first}, {}: {:.3} {interval}\n",
                    group.name, ratio.figure, ratio.ratio
                );
            }
        }
        if self
            .groups
            .iter()
            .flat_map(|group| &group.ratios)
            .any(|ratio| ratio.interval.is_some())
        {
            text += "in brackets the interval of 95 % by bootstrap over runs\n";
        }
        for warning in &self.warnings {
            text += &format!("warning: {warning}\n");
        }
        for exceeded in &self.exceeded {
            text += &format!("failed: {exceeded}\n");
        }
        text
    }
}

impl Group {
    fn of(name: &str, reports: &[Report], baseline: Option<&[Report]>) -> Self {
        let summary = |figure: &Figure| Some((figure.0, Summary::of(&values(reports, figure)?)?));
        let ratio = |figure: &Figure| {
            let (ours, theirs) = (values(reports, figure)?, values(baseline?, figure)?);
            let ratio = Summary::of(&ours)?.median
                / Summary::of(&theirs)
                    .filter(|found| found.median > 0.0)?
                    .median;
            Some(Ratio {
                figure: figure.0,
                ratio,
                interval: median_ratio_of_runs(&ours, &theirs),
            })
        };
        Self {
            name: name.to_owned(),
            heading: reports.first().map_or(String::new(), |report| {
                let bytes = format!("{} bytes", report.payload_bytes);
                format!("{}, over {}", report.subject_of(&bytes), report.stack)
            }),
            runs: reports.len(),
            sent: reports.iter().map(|report| report.counts.sent).sum(),
            lost: reports.iter().map(|report| report.counts.lost).sum(),
            figures: FIGURES.iter().filter_map(summary).collect(),
            ratios: FIGURES.iter().filter_map(ratio).collect(),
        }
    }

    fn figure(&self, name: &str) -> Option<&Summary> {
        self.figures
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, found)| found)
    }
}
