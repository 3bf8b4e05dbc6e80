//! `--sizes`: round trips by size, and the line through their means: what a round trip costs whatever its size, and what
//! a byte adds.
//!
//! Sizes are measured in turns, so that what the machine does meanwhile falls on all of them alike.

use std::{
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

use output::Table;
use serde::Serialize;
use statistics::{Distribution, Line, Point};

use super::{Arguments, single, status};
use crate::{
    environment::Environment,
    measure::Request,
    report::{Report, VERSION, csv, warning},
    session::Outcome,
};

/// Turns in which the count of each size is divided.
const TURNS: u64 = 5;

#[derive(Debug, Serialize)]
struct Sweep {
    version: u32,
    sizes: Vec<Report>,
    /// Through the medians, in microseconds and microseconds per byte; none with fewer than three sizes that were answered.
    fit: Option<Line>,
    /// The same through the means, which what disturbs the machine moves more.
    fit_of_means: Option<Line>,
}

/// Measures each size.
pub fn execute(arguments: &Arguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let base = single::request(arguments)?;
    let requests: Vec<Request> = arguments
        .sizes
        .iter()
        .map(|bytes| Request {
            payload_bytes: *bytes,
            ..base.clone()
        })
        .collect();
    requests.iter().try_for_each(Request::check_size)?;
    let clock = single::prepare(arguments)?;
    let mut outcomes: Vec<Outcome> = requests.iter().map(|_| Outcome::default()).collect();
    let turns = base.plan.count.min(TURNS);
    for turn in 0..turns {
        for (request, outcome) in requests.iter().zip(&mut outcomes) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let mut part = request.clone();
            part.plan.count = base.plan.count / turns + u64::from(turn < base.plan.count % turns);
            part.plan.time = base
                .plan
                .time
                .map(|time| time / u32::try_from(turns).unwrap_or(1));
            outcome.add(&part.measure(&clock, stop, !arguments.json)?.outcome);
        }
    }
    let environment: Environment = base.environment(&clock);
    let reports = requests.iter().zip(&outcomes).map(|(request, outcome)| {
        let mut report = Report::of(
            request.subject(),
            &request.plan,
            outcome,
            environment.clone(),
        );
        report.judge(&arguments.limit, arguments.max_loss);
        report
    });
    let sizes: Vec<Report> = reports.collect();
    let sweep = Sweep {
        version: VERSION,
        fit: fit(&sizes, |found| {
            Some((found.median_us()?, found.median_error_us()?))
        }),
        fit_of_means: fit(&sizes, |found| {
            Some((found.mean_us, found.mean_error_us()?))
        }),
        sizes,
    };
    if arguments.csv {
        output::print(&csv::text(&sweep.sizes))?;
    } else {
        output::print_result(arguments.json, &sweep, || sweep.text())?;
    }
    Ok(status(sweep.sizes.iter().any(Report::is_failure)))
}

fn fit(sizes: &[Report], of: impl Fn(&Distribution) -> Option<(f64, f64)>) -> Option<Line> {
    let point = |report: &Report| {
        let (y, error) = of(report.round_trip.as_ref()?)?;
        Some(Point {
            x: report.payload_bytes as f64,
            y,
            error,
        })
    };
    Line::through(&sizes.iter().filter_map(point).collect::<Vec<Point>>())
}

fn line_text(of: &str, line: &Line) -> String {
    format!(
        "fit through the {of}: {:.2} ± {:.2} µs, and {:.2} ± {:.2} ns for each byte, there and back; it explains {:.1} % of the \
         variation\n",
        line.intercept,
        line.intercept_error,
        line.slope * 1e3,
        line.slope_error * 1e3,
        line.explained * 100.0
    )
}

impl Sweep {
    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(first) = self.sizes.first() {
            let subject = first.subject_of("by size");
            text += &format!("{subject}, over {}\n\n", first.stack);
        }
        let mut table = Table::new(
            "bytes | sent | received | min µs | mean µs | ± µs | p50 µs | p99 µs | max µs",
        );
        for report in &self.sizes {
            let found = report.round_trip.as_ref();
            let us = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.2}"));
            table.row([
                report.payload_bytes.to_string(),
                report.counts.sent.to_string(),
                report.counts.received.to_string(),
                us(found.map(|found| found.min_us)),
                us(found.map(|found| found.mean_us)),
                us(found.and_then(Distribution::mean_error_us)),
                us(found.and_then(Distribution::median_us)),
                us(found.and_then(|found| found.percentile_us(99.0))),
                us(found.map(|found| found.max_us)),
            ]);
        }
        text += &table.render();
        text.push('\n');
        let fits = [("medians", &self.fit), ("means", &self.fit_of_means)];
        text.extend(
            fits.iter()
                .filter_map(|(of, line)| Some(line_text(of, line.as_ref()?))),
        );
        text += match self.fit {
            Some(_) => "± is a standard error\n",
            None => "no fit: it needs three sizes with four round trips each\n",
        };
        let Some(last) = self.sizes.last() else {
            return text;
        };
        text.push('\n');
        for line in last.environment.lines() {
            text += &format!("{line}\n");
        }
        for warning in warning::by_kind(self.sizes.iter(), "sizes") {
            text += &format!("warning: {warning}\n");
        }
        for report in &self.sizes {
            let bytes = report.payload_bytes;
            for exceeded in &report.exceeded {
                text += &format!("failed, {bytes} bytes: {exceeded}\n");
            }
        }
        text
    }
}
