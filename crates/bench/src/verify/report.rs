//! The comparison as a report.

use sim::{plan::Preset, report::document::Document};

use super::{CAPACITY_BOUND, MEAN_BOUND, Row};
use crate::trial::quiet::OTHERS;

/// Predictions beside measurements.
pub fn of(rows: &[Row], preset: &Preset, idle_held: bool, missing: Option<String>) -> Document {
    let mut d = Document::new("The planner's predictions beside measurements");
    d.text(format!(
        "On {}. Clients of one host wait for each answer of a server on the other; both share this machine. \
         Processors are {} from deep idle states, for every stack alike. Measured: medians of {} runs, with \
         the distance from least to most as a part of the median.",
        preset.machine,
        if idle_held { "kept" } else { "not kept" },
        super::RUNS
    ));
    let headings = [
        "workload",
        "stack",
        "clients",
        "predicted/s",
        "measured/s",
        "spread",
        "error",
        "predicted µs",
        "measured µs",
        "spread",
        "error",
        "",
    ];
    d.table(headings, rows.iter().map(cells).collect());
    d.text(format!(
        "Bounds: {:.0} % of the capacity (marked *: the server is as busy as it can be) and {:.0} % of the mean \
         response time.",
        100.0 * CAPACITY_BOUND,
        100.0 * MEAN_BOUND
    ));
    d.text(
        "The own server's mean is measured per exchange. redis's is clients over rate (Little's law), because \
         redis-benchmark starts its clock when it writes and leaves out what waits inside it.",
    );
    parts(&mut d, rows);
    let missed = rows.iter().filter(|row| !row.holds());
    d.list(missed.map(|row| {
        let (rate, mean) = (100.0 * row.rate_error(), 100.0 * row.mean_error());
        format!(
            "Missed: {} on {} with {} clients, {rate:+.0} % of the rate, {mean:+.0} % of the mean.",
            row.workload, row.stack, row.predicted.clients
        )
    }));
    let again = rows.iter().filter(|row| row.disturbed > 0);
    d.list(again.map(|row| {
        let still = match row.others > OTHERS {
            true => format!(
                "; beside those that count others still used up to {:.0} % of a processor: this row says little",
                100.0 * row.others
            ),
            false => String::new(),
        };
        format!(
            "Disturbed: {} on {} with {} clients; {} runs do not count, because others used more than {:.0} % of a \
             processor{still}.",
            row.workload,
            row.stack,
            row.predicted.clients,
            row.disturbed,
            100.0 * OTHERS
        )
    }));
    if let Some(why) = missing {
        d.text(format!("Not compared: {why}."));
    }
    d
}

/// What each prediction is made of.
fn parts(d: &mut Document, rows: &[Row]) {
    d.heading("What the predictions are made of, per request");
    let line = |row: &Row| {
        let work = row.predicted.work;
        let ns = [
            work.application_ns,
            work.stack_ns,
            work.device_ns,
            work.client_ns,
            work.latency_ns,
        ];
        let times = [work.server_turns, work.client_turns, work.client_sleeps];
        let mut line = vec![
            row.workload.to_owned(),
            row.stack.to_owned(),
            row.predicted.clients.to_string(),
        ];
        line.extend(ns.map(|ns| format!("{ns:.0}")));
        line.extend(times.map(|times| format!("{times:.2}")));
        line
    };
    let headings = [
        "workload",
        "stack",
        "clients",
        "application ns",
        "stack ns",
        "engine ns",
        "client ns",
        "waits alone ns",
        "server's turns",
        "client's turns",
        "client's sleeps",
    ];
    d.table(headings, rows.iter().map(line).collect());
    d.text(
        "A turn: somebody comes back from waiting and takes all that has come. Beyond its application redis's \
         row has what the kernel's recording took more than the model's server and clients would have.",
    );
}

fn cells(row: &Row) -> Vec<String> {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let error = |share: f64| format!("{:+.0} %", 100.0 * share);
    let mark = if row.saturated { " *" } else { "" };
    vec![
        row.workload.to_owned(),
        row.stack.to_owned(),
        format!("{}{mark}", row.predicted.clients),
        format!("{:.0}", row.predicted.rate_per_s),
        format!("{:.0}", row.rate_per_s.median),
        percent(row.rate_per_s.spread()),
        error(row.rate_error()),
        format!("{:.1}", row.predicted.mean_us),
        format!("{:.1}", row.mean_us.median),
        percent(row.mean_us.spread()),
        error(row.mean_error()),
        if row.holds() { "holds" } else { "MISSED" }.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use sim::plan::{ClosedLoop, Work};

    use super::*;
    use statistics::Summary;

    fn row(saturated: bool, rate: f64, mean_us: f64) -> Row {
        Row {
            workload: "own server",
            stack: "kernel",
            predicted: ClosedLoop {
                clients: 32,
                rate_per_s: 100_000.0,
                mean_us: 320.0,
                p50_us: 310.0,
                p99_us: 400.0,
                work: Work {
                    application_ns: 3000.0,
                    stack_ns: 5000.0,
                    device_ns: 0.0,
                    client_ns: 2000.0,
                    latency_ns: 4000.0,
                    server_turns: 0.1,
                    client_turns: 0.9,
                    client_sleeps: 0.5,
                },
            },
            rate_per_s: Summary::of(&[rate]).unwrap(),
            mean_us: Summary::of(&[mean_us]).unwrap(),
            saturated,
            disturbed: 5,
            others: 0.3,
        }
    }

    #[test]
    fn a_prediction_beyond_its_bound_is_said_to_have_missed() {
        assert!(row(true, 118_000.0, 320.0).holds());
        assert!(!row(true, 130_000.0, 320.0).holds());
        assert!(
            row(false, 130_000.0, 320.0).holds(),
            "no capacity without saturation"
        );
        assert!(!row(false, 100_000.0, 500.0).holds());
        let rows = [row(true, 130_000.0, 320.0)];
        let text = of(
            &rows,
            &Preset::shipped(),
            true,
            Some("redis is missing".to_owned()),
        );
        let text = text.to_text();
        assert!(text.contains("-23 %") && text.contains("MISSED"), "{text}");
        assert!(
            text.contains("5 runs do not count") && text.contains("up to 30 % of a processor"),
            "{text}"
        );
        assert!(text.contains("Not compared: redis is missing."));
    }
}
