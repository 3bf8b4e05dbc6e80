//! The comparison as a report.

use load::trial::quiet::OTHERS;
use sim::{plan::Preset, report::document::Document};

use super::{
    BOUND, Row,
    judge::{Verdict, width},
};

/// Predictions beside measurements.
pub fn of(
    rows: &[Row],
    preset: &Preset,
    idle_not_held: Option<&str>,
    missing: &[String],
) -> Document {
    let mut d = Document::new("The planner's predictions beside measurements");
    d.text(format!(
        "On {}. Clients of one host wait for each answer of a server on the other; both share this machine. \
         Processors {}, for every stack alike. Measured: medians of {} to {} runs ({} where \
         nothing is predicted), as many as it takes to know them within the bound, and how far apart the values are between which the median lies with 95 %, as a part of it.",
        preset.machine,
        idle_not_held.map_or("are kept from deep idle states".to_owned(), |why| format!("idle as they are set ({why})")),
        super::RUNS.start(),
        super::RUNS.end(),
        super::RUNS_UNKNOWN
    ));
    let headings = "workload | stack | clients | predicted/s | measured/s | known to | error | predicted µs | measured µs | known to | error | ".split(" | ");
    d.table(headings, rows.iter().map(cells).collect());
    d.text(format!(
        "Bound: {:.0} % of the capacity (marked *: the server is as busy as it can be) and of the mean response time. Of what \
         the model does not know it predicts nothing, and a measurement that is known less well than the bound can neither hold \
         nor miss it, unless the prediction is outside of the bound around all that the measurement allows.",
        100.0 * BOUND
    ));
    d.text(tally(rows));
    d.list(unknown(rows));
    d.text(
        "The own server's mean is measured per exchange. redis's is clients over rate (Little's law), because \
         redis-benchmark starts its clock when it writes and leaves out what waits inside it.",
    );
    trials(&mut d, preset);
    parts(&mut d, rows);
    let missed = rows.iter().filter(|row| row.verdict() == Verdict::Missed);
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
             processor, or the server that is asked beside them was further off than the bound{still}.",
            row.workload,
            row.stack,
            row.clients,
            row.disturbed,
            100.0 * OTHERS
        )
    }));
    d.list(missing.iter().map(|why| format!("Not compared: {why}.")));
    d
}

/// A row in a line: what is judged first where it is predicted.
pub fn line(row: &Row) -> String {
    let (measured, predicted) = match row.saturated {
        true => (
            format!("{:.0} requests/s", row.rate_per_s.median),
            row.predicted.map(|of| format!("{:.0}", of.rate_per_s)),
        ),
        false => (
            format!("{:.1} µs", row.mean_us.median),
            row.predicted.map(|of| format!("{:.1}", of.mean_us)),
        ),
    };
    let predicted = predicted.map_or(String::new(), |of| format!(", predicted {of}"));
    let verdict = row.verdict();
    let why = match &verdict {
        Verdict::NotKnown(why) => format!(", since {why}"),
        Verdict::Holds | Verdict::Missed => String::new(),
    };
    format!(
        "{} on {} with {}: {measured}{predicted}: {}{why}",
        row.workload,
        row.stack,
        row.clients,
        verdict.name()
    )
}

/// How many rows say what.
fn tally(rows: &[Row]) -> String {
    let verdicts: Vec<Verdict> = rows.iter().map(Row::verdict).collect();
    let count = |name: &str| verdicts.iter().filter(|of| of.name() == name).count();
    let [holds, missed, unknown] = ["holds", "MISSED", "not known"].map(count);
    format!(
        "Of {} rows {holds} hold, {missed} miss the bound, {unknown} are not known.",
        rows.len()
    )
}

/// Why nothing is known of rows, each reason once.
fn unknown(rows: &[Row]) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for row in rows {
        let Verdict::NotKnown(why) = row.verdict() else {
            continue;
        };
        let name = format!("{} on {} with {}", row.workload, row.stack, row.clients);
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    let line =
        |(why, names): (String, Vec<String>)| format!("Not known: {}: {why}.", names.join("; "));
    reasons.into_iter().map(line).collect()
}

/// How the model does with what it was fitted to.
fn trials(d: &mut Document, preset: &Preset) {
    let lines = preset.stacks.iter().flat_map(|(name, costs)| {
        costs.trials.iter().map(move |trial| {
            vec![
                name.clone(),
                trial.clients.to_string(),
                format!("{:+.0}", trial.more_ns),
                format!("{:.0} %", 100.0 * trial.off),
            ]
        })
    });
    d.heading("The calibration's own trials beside the model that was fitted to them");
    d.table(
        ["stack", "clients", "between answers, ns", "off with that"],
        lines.collect(),
    );
}

/// What each prediction is made of.
fn parts(d: &mut Document, rows: &[Row]) {
    if rows.iter().all(|row| row.predicted.is_none()) {
        return;
    }
    d.heading("What the predictions are made of, per request");
    let line = |row: &Row| {
        let work = row.predicted?.work;
        let ns = [
            work.application_ns,
            work.stack_ns,
            work.device_ns,
            work.client_ns,
            work.latency_ns,
            work.more_ns,
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
    let headings = "workload | stack | clients | application ns | stack ns | engine ns | client ns | waits alone ns | trials say ns | server's turns | client's turns | client's sleeps".split(" | ");
    d.table(headings, rows.iter().filter_map(line).collect());
    d.text(
        "A turn: somebody comes back from waiting and takes all that has come. Trials say: what the calibration's own trials with as \
         many clients took more, or less, between two answers than these costs make it. Beyond its application redis's \
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
    let verdict = row.verdict().name();
    let mark = if row.saturated { " *" } else { "" };
    vec![
        row.workload.to_owned(),
        row.stack.to_owned(),
        format!("{}{mark}", row.clients),
        rate,
        format!("{:.0}", row.rate_per_s.median),
        percent(width(&row.rate_per_s)),
        rate_error,
        mean,
        format!("{:.1}", row.mean_us.median),
        percent(width(&row.mean_us)),
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
                    more_ns: -1000.0,
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
        let verdict = |row: Row| row.verdict();
        assert_eq!(verdict(row(true, 109_000.0, 320.0)), Verdict::Holds);
        assert_eq!(verdict(row(true, 130_000.0, 320.0)), Verdict::Missed);
        // No capacity without saturation.
        assert_eq!(verdict(row(false, 130_000.0, 320.0)), Verdict::Holds);
        assert_eq!(verdict(row(false, 100_000.0, 500.0)), Verdict::Missed);
        let unknown = Row {
            predicted: None,
            not_known: Some("nobody looked".to_owned()),
            ..row(true, 1.0, 1.0)
        };
        let rows = [row(true, 130_000.0, 320.0), unknown];
        let text = of(
            &rows,
            &Preset::shipped(),
            None,
            &["redis is missing".to_owned()],
        );
        let text = text.to_text();
        assert!(text.contains("-23 %") && text.contains("MISSED"), "{text}");
        assert!(
            text.contains("5 runs do not count") && text.contains("up to 30 % of a processor"),
            "{text}"
        );
        let said = "Not known: own server on kernel with 32: nobody looked.";
        assert!(text.contains(said) && text.contains("not known"), "{text}");
        assert!(
            text.contains("Of 2 rows 0 hold, 1 miss the bound, 1 are not known."),
            "{text}"
        );
        assert!(text.contains("Not compared: redis is missing."));
    }

    #[test]
    fn runs_that_are_further_apart_than_the_bound_hide_no_miss_and_make_no_hold() {
        // The mean is predicted to be 320 µs.
        let measured = |runs: &[f64]| Row {
            mean_us: Summary::of(runs).unwrap(),
            ..row(false, 100_000.0, 320.0)
        };
        let verdict = |runs: &[f64]| measured(runs).verdict();
        let near = [
            315.0, 318.0, 320.0, 322.0, 326.0, 319.0, 321.0, 250.0, 410.0,
        ];
        assert_eq!(
            verdict(&near),
            Verdict::Holds,
            "one of each side may be far off"
        );
        let Verdict::NotKnown(why) = verdict(&[290.0, 320.0, 350.0]) else {
            panic!("runs that are 19 % apart told something")
        };
        assert!(
            why.contains("3 runs differ too much")
                && why.contains("median of their mean is known to 19 %"),
            "{why}"
        );
        // Outside of the bound around the median, and within it around the least of the runs.
        let unsure = verdict(&[350.0, 390.0, 440.0]);
        assert!(matches!(unsure, Verdict::NotKnown(_)), "{unsure:?}");
        assert_eq!(verdict(&[400.0, 440.0, 500.0]), Verdict::Missed);
        assert_eq!(verdict(&[360.0, 362.0, 365.0]), Verdict::Missed);
    }
}
