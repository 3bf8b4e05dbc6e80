//! The comparison as a report.

use sim::{document::Document, plan::Preset};

use super::{CAPACITY_BOUND, MEAN_BOUND, Row};

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
    let missed = rows.iter().filter(|row| !row.holds());
    d.list(missed.map(|row| {
        let (rate, mean) = (100.0 * row.rate_error(), 100.0 * row.mean_error());
        format!(
            "Missed: {} on {} with {} clients, {rate:+.0} % of the rate, {mean:+.0} % of the mean.",
            row.workload, row.stack, row.predicted.clients
        )
    }));
    if let Some(why) = missing {
        d.text(format!("Not compared: {why}."));
    }
    d
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
    use sim::plan::ClosedLoop;

    use super::*;
    use crate::bench::statistics::Summary;

    fn row(saturated: bool, rate: f64, mean_us: f64) -> Row {
        Row {
            workload: "own server",
            stack: "kernel",
            predicted: ClosedLoop {
                clients: 32,
                rate_per_s: 100_000.0,
                mean_us: 320.0,
            },
            rate_per_s: Summary::of(&[rate]).unwrap(),
            mean_us: Summary::of(&[mean_us]).unwrap(),
            saturated,
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
        assert!(text.contains("Not compared: redis is missing."));
    }
}
