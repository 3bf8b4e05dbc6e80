//! The comparison as a report.

use load::trial::quiet::OTHERS;
use sim::{plan::Preset, report::document::Document};

use super::{BOUND, Row};

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
        "Bound: {:.0} % of the capacity (marked *: the server is as busy as it can be) and of the mean response time. Of what \
         the model does not know it predicts nothing.",
        100.0 * BOUND
    ));
    d.list(unknown(rows));
    d.text(
        "The own server's mean is measured per exchange. redis's is clients over rate (Little's law), because \
         redis-benchmark starts its clock when it writes and leaves out what waits inside it.",
    );
    parts(&mut d, rows);
    let missed = rows.iter().filter(|row| !row.holds());
    d.list(missed.filter_map(|row| {
        let [rate, mean] = row.errors()?.map(|error| 100.0 * error);
        Some(format!(
            "Missed: {} on {} with {} clients, {rate:+.0} % of the rate, {mean:+.0} % of the mean.",
            row.workload, row.stack, row.clients
        ))
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
            row.clients,
            row.disturbed,
            100.0 * OTHERS
        )
    }));
    if let Some(why) = missing {
        d.text(format!("Not compared: {why}."));
    }
    d
}

/// Why rows have no prediction, each reason once.
fn unknown(rows: &[Row]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for row in rows {
        let Some(why) = row.not_known else { continue };
        let name = format!("{} on {} with {}", row.workload, row.stack, row.clients);
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    let line =
        |(why, names): (&str, Vec<String>)| format!("Not known: {}: {why}.", names.join("; "));
    reasons.into_iter().map(line).collect()
}

/// What each prediction is made of.
fn parts(d: &mut Document, rows: &[Row]) {
    d.heading("What the predictions are made of, per request");
    let line = |row: &Row| {
        let work = row.predicted?.work;
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
            row.clients.to_string(),
        ];
        line.extend(ns.map(|ns| format!("{ns:.0}")));
        line.extend(times.map(|times| format!("{times:.2}")));
        Some(line)
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
    d.table(headings, rows.iter().filter_map(line).collect());
    d.text(
        "A turn: somebody comes back from waiting and takes all that has come. Beyond its application redis's \
         row has what the kernel's recording took more than the model's server and clients would have.",
    );
}

fn cells(row: &Row) -> Vec<String> {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let [rate_error, mean_error] = match row.errors() {
        Some(errors) => errors.map(|share| format!("{:+.0} %", 100.0 * share)),
        None => ["-".to_owned(), "-".to_owned()],
    };
    let [rate, mean] = match row.predicted {
        Some(of) => [
            format!("{:.0}", of.rate_per_s),
            format!("{:.1}", of.mean_us),
        ],
        None => ["-".to_owned(), "-".to_owned()],
    };
    let verdict = match (row.not_known, row.holds()) {
        (Some(_), _) => "not known",
        (None, true) => "holds",
        (None, false) => "MISSED",
    };
    let mark = if row.saturated { " *" } else { "" };
    vec![
        row.workload.to_owned(),
        row.stack.to_owned(),
        format!("{}{mark}", row.clients),
        rate,
        format!("{:.0}", row.rate_per_s.median),
        percent(row.rate_per_s.spread()),
        rate_error,
        mean,
        format!("{:.1}", row.mean_us.median),
        percent(row.mean_us.spread()),
        mean_error,
        verdict.to_owned(),
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
            clients: 32,
            not_known: None,
            predicted: Some(ClosedLoop {
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
            }),
            rate_per_s: Summary::of(&[rate]).unwrap(),
            mean_us: Summary::of(&[mean_us]).unwrap(),
            saturated,
            disturbed: 5,
            others: 0.3,
        }
    }

    #[test]
    fn a_prediction_beyond_its_bound_is_said_to_have_missed() {
        assert!(row(true, 109_000.0, 320.0).holds());
        assert!(!row(true, 130_000.0, 320.0).holds());
        assert!(
            row(false, 130_000.0, 320.0).holds(),
            "no capacity without saturation"
        );
        assert!(!row(false, 100_000.0, 500.0).holds());
        let unknown = Row {
            predicted: None,
            not_known: Some("nobody looked"),
            ..row(true, 1.0, 1.0)
        };
        assert!(unknown.holds(), "what is not claimed is not missed");
        let rows = [row(true, 130_000.0, 320.0), unknown];
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
        let said = "Not known: own server on kernel with 32: nobody looked.";
        assert!(text.contains(said) && text.contains("not known"), "{text}");
        assert!(text.contains("Not compared: redis is missing."));
    }
}
