//! Reports as CSV, RFC 4180: a line of names, a line for each report. What was not measured is empty.

use super::Report;

/// The percentiles that have a column.
const PERCENTS: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999];

const NAMES: &str = "label,kind,target,stack,payload_bytes,loop,seconds,sent,received,lost,late,duplicates,reordered,corrupted,foreign,errors,min_us,mean_us,deviation_us,p50_us,p90_us,p99_us,p99.9_us,p99.99_us,p99.999_us,max_us";

/// The lines.
pub fn text(reports: &[Report]) -> String {
    let mut text = format!("{NAMES}\r\n");
    for report in reports {
        text += &(row(report).join(",") + "\r\n");
    }
    text
}

fn row(report: &Report) -> Vec<String> {
    let mut cells = vec![
        quoted(report.label.as_deref().unwrap_or_default()),
        report.kind.name().to_owned(),
        quoted(&report.target),
        quoted(&report.stack),
        report.payload_bytes.to_string(),
        report.sending.r#loop.clone(),
        report.seconds.to_string(),
    ];
    cells.extend(report.counts.numbers().map(|(_, count)| count.to_string()));
    let found = report.round_trip.as_ref();
    let us = |us: Option<f64>| us.map_or(String::new(), |us| format!("{us:.3}"));
    cells.push(us(found.map(|found| found.min_us)));
    cells.push(us(found.map(|found| found.mean_us)));
    cells.push(us(found.and_then(|found| found.deviation_us)));
    cells.extend(PERCENTS.map(|percent| us(found.and_then(|found| found.percentile_us(percent)))));
    cells.push(us(found.map(|found| found.max_us)));
    cells
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_divides_cells_is_quoted() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(text(&[]).trim_end().split(',').count(), 26);
    }
}
