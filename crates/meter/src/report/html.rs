//! A report as one page for a browser: no script, nothing from elsewhere.

use std::fmt::Write;

use output::html::{self, escaped};
use statistics::Distribution;

use super::Report;
use crate::graph;

/// Of the lines, in the order of what is compared.
const COLOURS: [&str; 3] = ["var(--mark)", "var(--second)", "var(--third)"];
/// Size of a figure.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
/// Around the plot: for numbers.
const MARGIN: f64 = 96.0;
const ABOVE_AND_BELOW: f64 = 60.0;

/// The page of a measurement.
pub fn page(report: &Report) -> String {
    let mut page = head(&report.heading());
    page += &counts(report);
    match &report.round_trip {
        None => page += "<p class=\"bad\">No round trip was measured.</p>\n",
        Some(found) => {
            page += &times(report, found);
            page += &format!("<h2>Distribution</h2>\n{}", bars(found));
            page += &format!("<h2>By percentile</h2>\n{}", curves(&[("", found)]));
        }
    }
    page += "<h2>Where it was measured</h2>\n<ul>\n";
    for line in report.environment.lines() {
        page += &format!("<li>{}</li>\n", escaped(&line));
    }
    page += &format!("<li>{}</li>\n</ul>\n", escaped(&report.contention.line()));
    for said in report.warnings.iter().chain(&report.exceeded) {
        page += &format!("<p class=\"bad\">{}</p>\n", escaped(said));
    }
    page + html::FOOT
}

/// The page of a comparison: its text, and a curve for each of what was compared.
pub fn comparison(heading: &str, text: &str, compared: &[(&str, &Distribution)]) -> String {
    let mut page = head(heading);
    page += &format!("<pre>{}</pre>\n", escaped(text));
    if !compared.is_empty() {
        page += "<h2>By percentile</h2>\n<p>Of each the round whose p50 is the median of all rounds.</p>\n";
        page += &curves(compared);
    }
    page + html::FOOT
}

fn head(heading: &str) -> String {
    let text = escaped(heading);
    html::head(heading) + &format!("<h1>Round trips</h1>\n<p>{text}</p>\n")
}

fn counts(report: &Report) -> String {
    let numbers = report.counts.numbers();
    let names: String = numbers
        .iter()
        .map(|(name, _)| format!("<th>{name}</th>"))
        .collect();
    let values: String = numbers
        .iter()
        .map(|(_, count)| format!("<td>{count}</td>"))
        .collect();
    format!("<table><tr>{names}</tr><tr>{values}</tr></table>\n")
}

fn times(report: &Report, found: &Distribution) -> String {
    let mut rows = vec![("round trip", found)];
    rows.extend(
        report
            .from_sending
            .as_ref()
            .map(|found| ("from when sent", found)),
    );
    rows.extend(
        report
            .lateness
            .as_ref()
            .map(|found| ("sender's lateness", found)),
    );
    let mut table =
        String::from("<table><tr><th>µs</th><th>min</th><th>mean</th><th>deviation</th>");
    for told in &found.percentiles {
        let _ = write!(table, "<th>p{}</th>", told.percent);
    }
    table += "<th>max</th></tr>\n";
    for (name, row) in rows {
        let deviation = row
            .deviation_us
            .map_or("-".to_owned(), |us| format!("{us:.2}"));
        let _ = write!(
            table,
            "<tr><td>{name}</td><td>{:.2}</td><td>{:.2}</td><td>{deviation}</td>",
            row.min_us, row.mean_us
        );
        for told in &found.percentiles {
            let us = row
                .percentile_us(told.percent)
                .map_or("-".to_owned(), |us| format!("{us:.2}"));
            let _ = write!(table, "<td>{us}</td>");
        }
        let _ = writeln!(table, "<td>{:.2}</td></tr>", row.max_us);
    }
    let half = found.median_us().map_or(String::new(), |us| {
        format!("<p>One way, if both ways took the same: {:.2} µs. An estimate, half of p50: no clock at the other end was asked.</p>\n", us / 2.0)
    });
    table + "</table>\n" + &half
}

/// Bars over cells of equal ratio.
fn bars(found: &Distribution) -> String {
    let cells = graph::cells(&found.histogram);
    let most = cells
        .iter()
        .map(|cell| cell.count)
        .max()
        .unwrap_or(1)
        .max(1) as f64;
    let step = (WIDTH - 2.0 * MARGIN) / cells.len().max(1) as f64;
    let mut figure = opened("how many round trips took how long");
    for (index, cell) in cells.iter().enumerate() {
        let height = cell.count as f64 / most * (HEIGHT - ABOVE_AND_BELOW);
        let (x, y) = (MARGIN + index as f64 * step, HEIGHT - 30.0 - height);
        let _ = write!(
            figure,
            "<rect class=\"bar\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\"><title>{:.2} to {:.2} µs: {}</title></rect>",
            (step - 1.0).max(0.5),
            cell.from_ns / 1e3,
            cell.to_ns / 1e3,
            cell.count
        );
        if index % 4 == 0 {
            let _ = write!(
                figure,
                "<text x=\"{x:.1}\" y=\"{:.1}\">{:.1} µs</text>",
                HEIGHT - 12.0,
                cell.from_ns / 1e3
            );
        }
    }
    figure + "</svg>\n"
}

/// Times by percentile, a line for each name; each step to the right is a nine more. No line goes further than there are
/// times.
fn curves(named: &[(&str, &Distribution)]) -> String {
    let most = named
        .iter()
        .map(|(_, found)| found.count)
        .max()
        .unwrap_or(1)
        .max(10) as f64;
    let least_us = named
        .iter()
        .map(|(_, found)| found.min_us)
        .fold(f64::INFINITY, f64::min)
        .max(1e-3);
    let most_us = named
        .iter()
        .map(|(_, found)| found.max_us)
        .fold(least_us + 1e-3, f64::max);
    let (low, high) = (least_us.ln(), most_us.ln());
    let x = |above: f64| MARGIN - above.log10() / most.log10() * (WIDTH - 2.0 * MARGIN);
    let y = |us: f64| {
        HEIGHT
            - 30.0
            - (us.max(least_us).ln() - low) / (high - low).max(1e-9) * (HEIGHT - ABOVE_AND_BELOW)
    };
    let mut figure = opened("how long round trips took, by percentile");
    for (index, (name, found)) in named.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points = points(found, x, y);
        let _ = write!(
            figure,
            "<polyline class=\"curve\" style=\"stroke:{colour}\" points=\"{points}\"/>"
        );
        let (at, name) = (16.0 + 14.0 * index as f64, escaped(name));
        let _ = write!(
            figure,
            "<text x=\"{}\" y=\"{at}\" style=\"fill:{colour}\">{name}</text>",
            MARGIN + 8.0
        );
    }
    let longest = named
        .iter()
        .map(|(_, found)| &found.percentiles)
        .max_by_key(|told| told.len());
    for told in longest.into_iter().flatten() {
        let at = x(1.0 - told.percent / 100.0);
        let _ = write!(
            figure,
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">p{}</text>",
            HEIGHT - 12.0,
            told.percent
        );
    }
    for us in [least_us, most_us] {
        let _ = write!(
            figure,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{us:.1} µs</text>",
            MARGIN - 4.0,
            y(us)
        );
    }
    figure + "</svg>\n"
}

/// The corners of a distribution's line.
fn points(found: &Distribution, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> String {
    let count = found.count as f64;
    let at = |below: f64| x((1.0 - below / count).max(1.0 / count));
    let mut points = String::new();
    let mut below = 0.0;
    for (ns, times) in &found.histogram {
        let us = (*ns as f64 / 1e3).min(found.max_us);
        let _ = write!(points, "{:.1},{:.1} ", at(below), y(us));
        below += *times as f64;
        let _ = write!(points, "{:.1},{:.1} ", at(below), y(us));
    }
    points
}

/// The beginning of a figure, with what it shows for those who do not see it.
fn opened(shows: &str) -> String {
    format!(
        "<svg class=\"wide\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{shows}\"><line class=\"axis\" x1=\"{MARGIN}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>",
        WIDTH - MARGIN,
        y = HEIGHT - 30.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_made_of_one_time_too() {
        for times in [1..=1, 1..=1000] {
            let mut recorder = statistics::Recorder::default();
            times.for_each(|us: u64| recorder.add(us * 1000));
            let found = recorder.distribution().unwrap();
            for figure in [bars(&found), curves(&[("one", &found), ("other", &found)])] {
                assert!(
                    figure.starts_with("<svg") && figure.ends_with("</svg>\n"),
                    "{figure}"
                );
                assert!(
                    !figure.contains("NaN") && !figure.contains("inf"),
                    "{figure}"
                );
                // Colours are those of the reader's setting, light or dark.
                assert!(figure.contains("aria-label=") && !figure.contains("=\"#"));
            }
        }
    }
}
