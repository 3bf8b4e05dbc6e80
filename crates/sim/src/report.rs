//! Reports on a scenario: what a run found, what a sweep found, and which processor does what.

pub mod document;
mod explain;
pub mod plot;

use crate::{
    machine::{Level, Outcome, Span},
    report::document::{Block, Document},
    report::plot::{Plot, Series, escape},
    scenario::{Kind, Scenario},
    statistics::summary::Summary,
    time::{Ns, as_ms},
};

pub use explain::{Step, explain, steps};

fn milliseconds(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.4}")
    } else {
        format!("{value:.1}")
    }
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), milliseconds)
}

fn title_of(scenario: &Scenario) -> String {
    if scenario.title.is_empty() {
        "Scenario without a title".to_owned()
    } else {
        scenario.title.clone()
    }
}

fn pair(name: &str, value: String) -> Vec<String> {
    vec![name.to_owned(), value]
}

/// What must be said before a mean is believed.
pub fn warnings(summary: &Summary) -> Vec<String> {
    let mut warnings: Vec<String> = summary
        .overloaded
        .iter()
        .map(|(name, load)| {
            format!(
                "Unstable: {name} is asked for {:.0} % of what it can do. Its queue grows as long as \
                 load lasts, so the times below belong to this window and to no steady state.",
                100.0 * load
            )
        })
        .collect();
    if let Some(percent) = summary.wider_than_asked_percent {
        warnings.push(format!(
            "Wide: after {} runs the mean is known within ± {percent:.1} %, which is more than runs.until_percent \
             asks; runs.most allows no more runs.",
            summary.runs
        ));
    }
    if summary.cut_runs > 0 {
        warnings.push(format!(
            "Cut: {} of {} runs reached workload.horizon_s or 500 million events with requests unanswered; \
             these are missing from the times below.",
            summary.cut_runs, summary.runs
        ));
    }
    if summary.dropped > 0 {
        warnings.push(format!(
            "Dropped: {} of {} requests; these are missing from the times below.",
            summary.dropped, summary.requests
        ));
    }
    warnings
}

/// The report on the runs of one scenario.
pub fn of_run(scenario: &Scenario, summary: &Summary) -> Document {
    let mut d = Document::new(title_of(scenario));
    d.list(warnings(summary));
    d.heading("Response time");
    let mut rows = Vec::new();
    if let Some(response) = summary.response {
        let half = response.mean_plus_minus_ms;
        let half = half.map_or(String::new(), |ms| format!(" ± {}", milliseconds(ms)));
        // Without a steady state there is no mean to estimate, only one of what happened to be watched.
        let steady = summary.overloaded.is_empty();
        rows.push(pair(
            match steady {
                true => "mean, ms (± 95 %)",
                false => "mean of this window only, ms (± 95 %)",
            },
            milliseconds(response.mean_ms) + &half,
        ));
        rows.push(pair("p50, ms", milliseconds(response.p50_ms)));
        rows.push(pair("p99, ms", milliseconds(response.p99_ms)));
        rows.push(pair("p99.9, ms", milliseconds(response.p999_ms)));
    }
    rows.push(pair(
        "survivors' mean, ms (answered while load arrived)",
        optional(summary.during_load_mean_ms),
    ));
    rows.push(pair(
        "answered",
        format!("{} of {}", summary.answered, summary.requests),
    ));
    rows.push(pair(
        "late share",
        format!("{:.0} %", 100.0 * summary.late_share),
    ));
    rows.push(pair("batches per run", format!("{:.1}", summary.batches)));
    rows.push(pair("runs", summary.runs.to_string()));
    d.table(["what", "value"], rows);
    d.heading("Processor time per request");
    let busy = summary.busy_us_per_request.iter();
    let mut rows: Vec<_> = busy
        .map(|(name, us)| pair(name, format!("{us:.2}")))
        .collect();
    rows.push(pair(
        "interrupts per request",
        format!("{:.3}", summary.interrupts_per_request),
    ));
    d.table(["level", "µs"], rows);
    d.heading("Resources");
    let rows = summary.resources.iter().map(|(name, r)| {
        vec![
            name.clone(),
            format!("{:.1} %", 100.0 * r.utilisation),
            format!("{:.2}", r.wait_mean_us),
            format!("{:.2}", r.wait_p99_us),
        ]
    });
    d.table(
        ["resource", "busy", "mean wait, µs", "p99 wait, µs"],
        rows.collect(),
    );
    if scenario.stack.kind == Kind::Nic {
        let kib = summary.nic_memory_peak_bytes / 1024.0;
        d.text(format!("The NIC's memory held {kib:.1} KiB at most."));
    }
    d
}

/// One point of a sweep, with the settings that made it.
#[derive(Debug)]
pub struct Point<'a> {
    /// `KEY=VALUE`, one for each axis.
    pub settings: &'a [String],
    /// What came out.
    pub summary: &'a Summary,
}

fn value_of(setting: &str) -> &str {
    setting.split_once('=').map_or(setting, |(_, value)| value)
}

fn key_of(setting: &str) -> &str {
    setting.split_once('=').map_or(setting, |(key, _)| key)
}

/// The report on a sweep, with a chart over the last axis that is a number.
pub fn of_sweep(title: &str, points: &[Point]) -> Document {
    let mut d = Document::new(if title.is_empty() { "Sweep" } else { title });
    let keys = points.first().map_or(&[][..], |point| point.settings);
    let mut headings: Vec<String> = keys.iter().map(|s| key_of(s).to_owned()).collect();
    headings.extend(
        [
            "mean ms",
            "± 95 %",
            "p99 ms",
            "survivors ms",
            "late %",
            "unstable",
        ]
        .map(str::to_owned),
    );
    let rows = points.iter().map(|point| {
        let s = point.summary;
        let mut row: Vec<String> = point
            .settings
            .iter()
            .map(|s| value_of(s).to_owned())
            .collect();
        row.push(optional(s.response.map(|r| r.mean_ms)));
        row.push(optional(s.response.and_then(|r| r.mean_plus_minus_ms)));
        row.push(optional(s.response.map(|r| r.p99_ms)));
        row.push(optional(s.during_load_mean_ms));
        row.push(format!("{:.0}", 100.0 * s.late_share));
        let unstable: Vec<&str> = s.overloaded.keys().map(AsRef::as_ref).collect();
        row.push(unstable.join(" "));
        row
    });
    d.table(headings, rows.collect());
    if let Some(plot) = chart(title, points) {
        d.blocks.push(Block::Plot(plot));
    }
    d
}

fn chart(title: &str, points: &[Point]) -> Option<Plot> {
    let first = points.first()?;
    let numeric = |index: &usize| {
        let mut values = points
            .iter()
            .map(|p| value_of(&p.settings[*index]).parse::<f64>());
        values.all(|value| value.is_ok())
    };
    let axis = (0..first.settings.len()).rev().find(numeric)?;
    let mut series: Vec<Series> = Vec::new();
    for point in points {
        let others = point
            .settings
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != axis);
        let name: Vec<&str> = others.map(|(_, s)| value_of(s)).collect();
        let name = name.join(", ");
        let at = value_of(&point.settings[axis]).parse().ok()?;
        let Some(response) = point.summary.response else {
            continue;
        };
        match series.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push((at, response.mean_ms)),
            None => series.push(Series {
                name,
                points: vec![(at, response.mean_ms)],
                dashed: false,
            }),
        }
    }
    Some(Plot {
        title: title.to_owned(),
        x_label: key_of(&first.settings[axis]).to_owned(),
        y_label: "mean response, ms (drained)".to_owned(),
        log_x: false,
        series,
    })
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::Interrupt => "#d55e00",
        Level::BottomHalf | Level::PollThread => "#e69f00",
        Level::Server => "#0072b2",
        Level::Background => "#bbbbbb",
        Level::Spin => "#cc79a7",
        Level::Nic => "#009e73",
        Level::Bus | Level::Link => "#56b4e9",
    }
}

/// What a level runs on. In the order of the alphabet the host comes before the NIC.
fn lane_of(level: Level) -> &'static str {
    match level {
        Level::Nic => "NIC",
        Level::Bus => "bus",
        Level::Link => "link",
        _ => "host",
    }
}

/// Who ran what between two times, as a drawing.
pub fn timeline(spans: &[Span], from: Ns, to: Ns) -> String {
    const WIDTH: f64 = 900.0;
    const ROW: f64 = 22.0;
    let mut lanes: Vec<(&str, usize)> = spans.iter().map(|s| (lane_of(s.level), s.core)).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let scale = |at: Ns| {
        70.0 + (at.clamp(from, to) - from) as f64 / (to - from).max(1) as f64 * (WIDTH - 80.0)
    };
    let height = ROW * lanes.len() as f64 + 40.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\" fill=\"#555\">\n"
    );
    for (row, (lane, core)) in lanes.iter().enumerate() {
        let y = 8.0 + ROW * row as f64;
        svg += &format!("<text x=\"4\" y=\"{:.0}\">{lane} {core}</text>\n", y + 13.0);
        let own = spans
            .iter()
            .filter(|s| (lane_of(s.level), s.core) == (*lane, *core));
        for span in own.filter(|s| s.to > from && s.from < to) {
            let (a, b) = (scale(span.from), scale(span.to));
            svg += &format!(
                "<rect x=\"{a:.2}\" y=\"{y:.0}\" width=\"{:.2}\" height=\"16\" fill=\"{}\"/>\n",
                (b - a).max(0.2),
                colour(span.level)
            );
        }
    }
    let foot = height - 10.0;
    svg += &format!(
        "<text x=\"70\" y=\"{foot:.0}\">{:.1} ms</text><text x=\"{:.0}\" y=\"{foot:.0}\" \
         text-anchor=\"end\">{:.1} ms</text>\n",
        as_ms(from),
        WIDTH - 10.0,
        as_ms(to)
    );
    let legend = [
        ("interrupt", Level::Interrupt),
        ("bottom half", Level::BottomHalf),
        ("server", Level::Server),
        ("background", Level::Background),
        ("NIC", Level::Nic),
    ];
    for (index, (name, level)) in legend.into_iter().enumerate() {
        let x = 200.0 + 110.0 * index as f64;
        svg += &format!(
            "<rect x=\"{x:.0}\" y=\"{:.0}\" width=\"10\" height=\"10\" fill=\"{}\"/>\
             <text x=\"{:.0}\" y=\"{foot:.0}\">{}</text>\n",
            foot - 9.0,
            colour(level),
            x + 14.0,
            escape(name)
        );
    }
    svg + "</svg>\n"
}

/// The host's delays of a run, for a packet-level simulator: value in seconds and cumulative
/// probability, as ns-3's `EmpiricalRandomVariable` takes them.
pub fn host_delays(outcome: &Outcome) -> String {
    let mut delays: Vec<Ns> = outcome.times().map(|t| t.left_ns - t.arrived_ns).collect();
    delays.sort_unstable();
    let count = delays.len().max(1) as f64;
    let lines = delays.iter().enumerate().map(|(index, ns)| {
        format!(
            "{:.9} {:.6}\n",
            *ns as f64 / 1e9,
            (index + 1) as f64 / count
        )
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{machine::Machine, statistics::summary::replicate};

    #[test]
    fn an_unstable_scenario_is_said_before_its_times() {
        let mut scenario = Scenario::default();
        scenario.workload.clients = 9;
        scenario.stack.kind = Kind::User;
        let text = of_run(&scenario, &replicate(&scenario)).to_text();
        let warning = text.find("Unstable: host").unwrap();
        assert!(warning < text.find("Response time").unwrap());
    }

    #[test]
    fn a_stable_scenario_has_no_warning() {
        let mut scenario = Scenario::default();
        scenario.host.background = 0;
        assert!(warnings(&replicate(&scenario)).is_empty());
    }

    #[test]
    fn a_sweep_is_a_table_and_a_chart_with_a_line_per_other_axis() {
        let scenario = Scenario::default();
        let summary = replicate(&scenario);
        let settings: Vec<Vec<String>> = [("kernel", 1), ("kernel", 2), ("nic", 1), ("nic", 2)]
            .map(|(k, n)| vec![format!("stack.kind={k}"), format!("workload.clients={n}")])
            .to_vec();
        let points: Vec<Point> = settings
            .iter()
            .map(|settings| Point {
                settings,
                summary: &summary,
            })
            .collect();
        let d = of_sweep("t", &points);
        let Some(Block::Plot(plot)) = d.blocks.last() else {
            panic!("no chart")
        };
        assert_eq!(plot.x_label, "workload.clients");
        assert_eq!(plot.series.len(), 2);
    }

    #[test]
    fn host_delays_are_a_cumulative_distribution() {
        let mut scenario = Scenario::default();
        scenario.host.background = 0;
        let text = host_delays(&Machine::run(&scenario, 1, 0));
        assert_eq!(text.lines().count(), 60);
        assert!(text.ends_with("1.000000\n"));
        assert!(text.starts_with("0.001926"), "{text}");
    }

    #[test]
    fn an_explanation_sums_what_the_load_asks() {
        let mut scenario = Scenario::default();
        scenario.stack.kind = Kind::Nic;
        let text = explain(&scenario).to_text();
        assert!(text.contains("transport, network, link of the response"));
        assert!(text.contains("NIC"));
    }

    #[test]
    fn a_timeline_is_drawn_between_its_ends() {
        let scenario = Scenario::default();
        let outcome = Machine::run_with_timeline(&scenario, 1, 0, 1000);
        let svg = timeline(&outcome.spans, 0, outcome.ended);
        assert!(svg.contains("host 0") && svg.ends_with("</svg>\n"));
    }
}
