//! The result: parts, their rows, what a difference is worth, and all of it as text.

use output::Table;
use serde::Serialize;
use statistics::{Interval, Summary};

use super::{limits::Limit, part::Part, stages::Stages};
use crate::{
    micro::row::interval,
    paper::Published,
    unit::{Better, ratio_figure},
};

/// A row of the page.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub what: String,
    pub unit: &'static str,
    pub better: Better,
    /// What ours is compared with.
    pub baseline: Option<Summary>,
    pub ours: Option<Summary>,
    /// The median of the ratios within runs.
    pub ratio: Option<f64>,
    /// The interval that holds it; None with fewer than three runs.
    pub interval: Option<Interval>,
    /// What a paper measured of the same question.
    pub paper: Option<Published>,
    /// What this machine allows.
    pub limit: Option<Limit>,
    /// Why there are no values.
    pub missing: Vec<String>,
}

/// What a difference between the two sides is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Better,
    Worse,
    /// The runs differ by more than the sides do.
    Noise,
    /// Nothing is compared, or too few runs were made.
    Unknown,
}

impl Row {
    pub fn verdict(&self) -> Verdict {
        let Some(interval) = self.interval else {
            return Verdict::Unknown;
        };
        let is_lower = interval.high < 1.0;
        match self.better {
            _ if !is_lower && interval.low <= 1.0 => Verdict::Noise,
            Better::Lower if is_lower => Verdict::Better,
            Better::Higher if !is_lower => Verdict::Better,
            Better::Lower | Better::Higher => Verdict::Worse,
        }
    }

    /// Compares run by run.
    pub fn compared(
        what: String,
        (unit, better): (&'static str, Better),
        [baseline, ours]: [Option<Summary>; 2],
    ) -> Self {
        let both = baseline.as_ref().zip(ours.as_ref());
        let ratios: Vec<f64> = both.map_or_else(Vec::new, |(theirs, ours)| {
            let runs = ours.samples.iter().zip(&theirs.samples);
            runs.map(|(ours, theirs)| ours / theirs).collect()
        });
        Self {
            what,
            unit,
            better,
            interval: interval(&ratios),
            ratio: Summary::of(&ratios).map(|ratio| ratio.median),
            baseline,
            ours,
            paper: None,
            limit: None,
            missing: Vec::new(),
        }
    }
}

/// One part of the page with what was measured.
#[derive(Debug, Serialize)]
pub(super) struct Section {
    pub part: Part,
    pub title: &'static str,
    /// What the two sides are.
    pub sides: [&'static str; 2],
    pub conditions: Vec<String>,
    pub rows: Vec<Row>,
    pub stages: Option<Stages>,
    pub skipped: Vec<String>,
    pub failures: Vec<String>,
}

impl Section {
    pub fn new(part: Part, sides: [&'static str; 2]) -> Self {
        Self {
            part,
            title: part.title(),
            sides,
            conditions: Vec::new(),
            rows: Vec::new(),
            stages: None,
            skipped: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Nothing of it was measured.
    pub fn is_empty(&self) -> bool {
        self.stages.is_none() && self.rows.iter().all(|row| row.ours.is_none())
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub version: &'static str,
    pub kernel: String,
    pub processors: usize,
    pub runs: u32,
    pub quick: bool,
    pub duration_s: u64,
    /// What speaks against all of the figures.
    pub warnings: Vec<String>,
    pub sections: Vec<Section>,
}

impl Report {
    /// How many rows say what, in a sentence.
    pub(super) fn summary(&self) -> String {
        let rows = || self.sections.iter().flat_map(|section| &section.rows);
        let compared = || rows().filter(|row| row.ratio.is_some());
        let count = |verdict| compared().filter(|row| row.verdict() == verdict).count();
        let [better, worse, noise, unknown] = [
            Verdict::Better,
            Verdict::Worse,
            Verdict::Noise,
            Verdict::Unknown,
        ]
        .map(count);
        let unmeasured = rows().filter(|row| row.ours.is_none()).count();
        let mut text = format!(
            "Of {} rows with a ratio ours is better in {better} and worse in {worse}; in {noise} the difference is smaller than the noise",
            compared().count()
        );
        if unknown > 0 {
            text += &format!(", and {unknown} have too few runs to say");
        }
        if unmeasured > 0 {
            text += &format!(". {unmeasured} rows were not measured, each says why");
        }
        text + "."
    }

    /// Parts in which something went wrong, or that measured nothing.
    pub(super) fn failed_parts(&self) -> Vec<&'static str> {
        let went_wrong = |section: &&Section| !section.failures.is_empty() || section.is_empty();
        let failed = self.sections.iter().filter(went_wrong);
        failed.map(|section| section.title).collect()
    }

    /// For people, without the conditions that the page has.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "\nshunt {}, Linux {}, {} processors; up to {} interleaved runs, {} s\n\
             ~: smaller than the noise of the runs; the interval holds the ratio in 95 of 100 such runs\n{}\n",
            self.version,
            self.kernel,
            self.processors,
            self.runs,
            self.duration_s,
            self.summary()
        );
        for warning in &self.warnings {
            text += &format!("warning: {warning}\n");
        }
        for section in &self.sections {
            text += &format!("\n{}", section.text());
        }
        text
    }
}

impl Section {
    pub(super) fn text(&self) -> String {
        let [baseline, ours] = self.sides;
        let mut table = Table::new(&format!(
            "{} | unit | {baseline} | {ours} | ratio | interval | runs | paper | limit",
            self.title
        ));
        let dash = || "-".to_owned();
        for row in &self.rows {
            let median = |side: &Option<Summary>| {
                side.as_ref().map_or_else(dash, |side| figure(side.median))
            };
            table.row([
                row.what.clone(),
                row.unit.to_owned(),
                median(&row.baseline),
                median(&row.ours),
                row.ratio_text(),
                row.interval.map_or_else(dash, |of| {
                    format!("{}–{}", ratio_figure(of.low), ratio_figure(of.high))
                }),
                row.ours
                    .as_ref()
                    .map_or(0, |of| of.samples.len())
                    .to_string(),
                row.paper.as_ref().map_or_else(dash, Published::ratio_text),
                row.limit.as_ref().map_or_else(dash, |of| figure(of.value)),
            ]);
        }
        let mut text = String::new();
        if !self.rows.is_empty() {
            text += &table.render();
        }
        if let Some(stages) = &self.stages {
            text += &format!("{}\n{}", self.title, stages.text());
        }
        for skipped in &self.skipped {
            text += &format!("not measured: {skipped}\n");
        }
        for failure in &self.failures {
            text += &format!("failed: {failure}\n");
        }
        text
    }
}

impl Row {
    pub(super) fn ratio_text(&self) -> String {
        let mark = if self.verdict() == Verdict::Noise {
            " ~"
        } else {
            ""
        };
        self.ratio.map_or("-".to_owned(), |ratio| {
            format!("{}{mark}", ratio_figure(ratio))
        })
    }
}

/// A number with about three digits.
pub(super) fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
