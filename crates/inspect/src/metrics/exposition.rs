//! The text: families with type, unit and help, one sample for each engine. Read first: OpenMetrics 1.0, section
//! "Text format", and Prometheus' "Exposition formats".

use std::fmt::Write as _;

use serde_json::Value;

use super::Format;
use crate::{
    engines::{Found, answer::Silent},
    figures::{
        self, FIGURES, Kind,
        histograms::{self, HISTOGRAMS, Spread},
        programs::PROGRAM_FIGURES,
    },
};

type Answer = (Found, Result<Value, Silent>);

/// Everything that is known of these engines.
pub fn write(answers: &[Answer], format: Format) -> String {
    let mut text = Exposition {
        text: String::new(),
        format,
    };
    let told: Vec<(String, &Value)> = answers
        .iter()
        .filter_map(|(found, answer)| Some((labels(found), answer.as_ref().ok()?)))
        .collect();
    let up = answers
        .iter()
        .map(|(found, answer)| (labels(found), u64::from(answer.is_ok())));
    text.family(
        "engine_up",
        Kind::Gauge,
        "",
        "Whether the engine answers.",
        up,
    );
    let info = told
        .iter()
        .map(|(labels, status)| (format!("{labels},{}", described(status)), 1));
    text.family(
        "engine_description",
        Kind::Gauge,
        "",
        "What the engine is; always 1.",
        info,
    );
    for figure in FIGURES.iter() {
        let values = told.iter().filter_map(|(labels, status)| {
            Some((
                labels.clone(),
                figure.of(status)?.saturating_mul(figure.factor),
            ))
        });
        let name = match figure.kind {
            Kind::Gauge if figure.unit.is_empty() => format!("engine_{}", figure.metric),
            _ => figure.metric.to_owned(),
        };
        text.family(&name, figure.kind, figure.unit, figure.help, values);
    }
    for figure in HISTOGRAMS.iter() {
        let of = |(labels, status): &(String, &Value)| {
            Some((labels.clone(), Spread::of(status, figure.field)?))
        };
        text.histogram(figure, told.iter().filter_map(of));
    }
    for figure in PROGRAM_FIGURES.iter() {
        let values = told.iter().flat_map(|(labels, status)| {
            let rows = status["attached"].as_array().into_iter().flatten();
            rows.filter_map(move |row| Some((of_program(labels, row), figure.of(row)?)))
        });
        text.family(figure.metric, figure.kind, figure.unit, figure.help, values);
    }
    for &(word, name, help) in stack::Counters::DESCRIPTIONS {
        let values = told.iter().filter_map(|(labels, status)| {
            let mut all = figures::of_stack(status);
            let (.., value) = all.find(|(of, ..)| *of == word)?;
            Some((labels.clone(), value))
        });
        let help = format!("{} nstat: {name}.", help.trim());
        text.family(&format!("stack_{word}"), Kind::Counter, "", &help, values);
    }
    if format == Format::Openmetrics {
        text.text += "# EOF\n";
    }
    text.text
}

struct Exposition {
    text: String,
    format: Format,
}

impl Exposition {
    /// A family without a sample is left out.
    fn family(
        &mut self,
        name: &str,
        kind: Kind,
        unit: &str,
        help: &str,
        samples: impl Iterator<Item = (String, u64)>,
    ) {
        let (kind, ending) = match kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
        };
        // OpenMetrics names the family without the ending of its samples, Prometheus with it.
        let family = match self.format {
            Format::Openmetrics => format!("shunt_{name}"),
            Format::Prometheus => format!("shunt_{name}{ending}"),
        };
        let mut is_first = true;
        for (labels, value) in samples {
            if is_first {
                self.line(format_args!("# HELP {family} {}", escaped(help)));
                self.line(format_args!("# TYPE {family} {kind}"));
                if !unit.is_empty() && self.format == Format::Openmetrics {
                    self.line(format_args!("# UNIT {family} {unit}"));
                }
            }
            is_first = false;
            self.line(format_args!("shunt_{name}{ending}{{{labels}}} {value}"));
        }
    }

    fn histogram(
        &mut self,
        figure: &histograms::Figure,
        samples: impl Iterator<Item = (String, Spread)>,
    ) {
        let name = format!("shunt_{}", figure.metric);
        let is_time = figure.unit == "seconds";
        let mut is_first = true;
        for (labels, spread) in samples {
            if std::mem::take(&mut is_first) {
                self.line(format_args!("# HELP {name} {}", escaped(figure.help)));
                self.line(format_args!("# TYPE {name} histogram"));
                if self.format == Format::Openmetrics {
                    self.line(format_args!("# UNIT {name} {}", figure.unit));
                }
            }
            for (bound, up_to) in spread.cumulative() {
                let bound = bound.map_or("+Inf".to_owned(), |bound| number(bound, is_time));
                self.line(format_args!(
                    "{name}_bucket{{{labels},le=\"{bound}\"}} {up_to}"
                ));
            }
            let sum = number(spread.sum(), is_time);
            self.line(format_args!("{name}_sum{{{labels}}} {sum}"));
            self.line(format_args!("{name}_count{{{labels}}} {}", spread.count()));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("invariant: a string takes everything");
    }
}

/// A number as OpenMetrics writes it: with a fraction, small ones with an exponent of two digits. Times are in
/// microseconds, and become seconds.
fn number(value: u64, is_time: bool) -> String {
    let value = value as f64;
    let value = if is_time { value / 1e6 } else { value };
    if value == 0.0 || value >= 1e-4 {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    match text.split_once("e-") {
        Some((mantissa, exponent)) => format!("{mantissa}e-{exponent:0>2}"),
        None => text,
    }
}

/// Which engine: its name, and its network namespace where that is another.
fn labels(found: &Found) -> String {
    let name = format!("engine=\"{}\"", escaped(&found.name));
    match &found.namespace {
        None => name,
        Some(namespace) => format!("{name},namespace=\"{}\"", namespace.inode),
    }
}

fn of_program(engine: &str, row: &Value) -> String {
    let name = escaped(row["program"].as_str().unwrap_or_default());
    format!("{engine},pid=\"{}\",program=\"{name}\"", row["pid"])
}

fn described(status: &Value) -> String {
    let fields = [
        "mode",
        "interface",
        "driver",
        "congestion_control",
        "sharing",
    ];
    let word = |name: &&str| {
        let value = status[*name].as_str().unwrap_or_default();
        format!("{name}=\"{}\"", escaped(value))
    };
    let pid = format!("pid=\"{}\"", status["pid"]);
    let words = fields.iter().map(word).chain([pid]);
    words.collect::<Vec<_>>().join(",")
}

/// As both formats want text of others within quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answers() -> Vec<Answer> {
        let found = |name: &str| Found {
            name: name.to_owned(),
            namespace: None,
        };
        let status = json!({
            "pid": 7, "mode": "process", "interface": "eth\"0", "connections": 3,
            "memory_kib": { "total": 2 }, "driver_counters": { "rx_bytes": 10 },
            "stack_counters": { "TcpInSegs": 5 },
            "attached": [{ "pid": 42, "program": "redis-server", "reads": 6, "voluntary_switches": 3 }],
        });
        let silent = Silent {
            pid: None,
            reason: "does not answer (stopped)".to_owned(),
        };
        vec![(found("@a"), Ok(status)), (found("@b"), Err(silent))]
    }

    #[test]
    fn openmetrics_names_families_without_the_ending_and_says_units_and_the_end() {
        let text = write(&answers(), Format::Openmetrics);
        for line in [
            "shunt_engine_up{engine=\"@a\"} 1",
            "shunt_engine_up{engine=\"@b\"} 0",
            "shunt_engine_connections{engine=\"@a\"} 3",
            "# TYPE shunt_driver_rx_bytes counter",
            "# UNIT shunt_driver_rx_bytes bytes",
            "shunt_driver_rx_bytes_total{engine=\"@a\"} 10",
            "shunt_memory_total_bytes{engine=\"@a\"} 2048",
            "shunt_stack_tcp_in_segs_total{engine=\"@a\"} 5",
            "# TYPE shunt_program_reads counter",
            "shunt_program_reads_total{engine=\"@a\",pid=\"42\",program=\"redis-server\"} 6",
            "shunt_program_voluntary_context_switches_total{engine=\"@a\",pid=\"42\",program=\"redis-server\"} 3",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        assert!(text.contains("interface=\"eth\\\"0\""), "{text}");
        assert!(text.ends_with("# EOF\n"));
        assert!(!text.contains("tx_busy"), "nothing is known of it");
    }

    #[test]
    fn a_histogram_has_every_bound_its_sum_and_its_count() {
        let mut polls = stack::Histogram::default();
        for us in [2, 2, 100] {
            polls.add(us);
        }
        let told = json!({ "counts": polls.counts().collect::<Vec<_>>(), "sum": polls.sum() });
        let histograms = histograms::merged(&[json!({ "histograms": { "poll_us": told } })]);
        let mut answers = answers();
        answers[0].1 = Ok(json!({ "histograms": histograms }));
        let text = write(&answers, Format::Openmetrics);
        let of = "engine=\"@a\"";
        for line in [
            "# TYPE shunt_poll_seconds histogram".to_owned(),
            "# UNIT shunt_poll_seconds seconds".to_owned(),
            format!("shunt_poll_seconds_bucket{{{of},le=\"1e-06\"}} 0"),
            format!("shunt_poll_seconds_bucket{{{of},le=\"2e-06\"}} 2"),
            format!("shunt_poll_seconds_bucket{{{of},le=\"9.6e-05\"}} 2"),
            format!("shunt_poll_seconds_bucket{{{of},le=\"0.000128\"}} 3"),
            format!("shunt_poll_seconds_bucket{{{of},le=\"16.777216\"}} 3"),
            format!("shunt_poll_seconds_bucket{{{of},le=\"+Inf\"}} 3"),
            format!("shunt_poll_seconds_sum{{{of}}} 0.000104"),
            format!("shunt_poll_seconds_count{{{of}}} 3"),
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        assert!(!text.contains("round_trip"), "nothing is known of them");
        assert_eq!(number(64, false), "64.0");
    }

    #[test]
    fn prometheus_names_counters_with_their_ending_everywhere() {
        let text = write(&answers(), Format::Prometheus);
        assert!(text.contains("# TYPE shunt_driver_rx_bytes_total counter\n"));
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"));
    }
}
