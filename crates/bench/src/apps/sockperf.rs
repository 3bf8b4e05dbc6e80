//! sockperf under test answers sockperf: the time of a 64-byte round trip over TCP, both ends
//! sleeping in recvfrom(2).

use anyhow::{Context as _, bail};

use super::{
    case::{Case, Measure, Sample},
    context::Context,
    side::Side,
};
use crate::unit::Better;

const PORT: u16 = 11111;
const MESSAGE_BYTES: &str = "64";

/// Percentiles as sockperf prints them.
const PERCENTILES: [(&str, Measure); 2] = [
    ("50.000", latency("64-byte round trip, p50")),
    ("99.000", latency("64-byte round trip, p99")),
];

const fn latency(name: &'static str) -> Measure {
    Measure {
        name,
        unit: "µs",
        better: Better::Lower,
    }
}

/// sockperf answers sockperf.
pub const ANSWERS: Case = Case {
    title: "sockperf answers sockperf",
    segment_bytes: lab::ORDINARY_SEGMENT_BYTES,
    tested: "sockperf",
    tools: &["sockperf"],
    check: |context, side| ping_pong(context, side, 1).map(drop),
    sample: |context, side| {
        let text = ping_pong(context, side, context.common.scale.sockperf_seconds)?;
        let sample = |(percentile, measure)| {
            Ok(Sample {
                measure,
                value: percentile_us(&text, percentile)?,
            })
        };
        PERCENTILES.into_iter().map(sample).collect()
    },
};

/// What the client printed.
fn ping_pong(context: &Context, side: Side, seconds: u32) -> anyhow::Result<String> {
    let to = format!("--tcp -i {} -p {PORT}", context.tested_address(side)?);
    let line = format!("sockperf server {to}");
    let line: Vec<&str> = line.split(' ').collect();
    let _server = context.start_tested_server(side, PORT, &line)?;
    let line = format!("sockperf ping-pong {to} --full-rtt -m {MESSAGE_BYTES} -t {seconds}");
    let text = context
        .run(None, &line.split(' ').collect::<Vec<_>>())?
        .stdout;
    check_faults(&text)?;
    Ok(text)
}

/// Lost, doubled or reordered messages are an error.
pub fn check_faults(text: &str) -> anyhow::Result<()> {
    match text.lines().find(|line| line.contains("dropped messages")) {
        Some(line) if faults(line) == 0 => Ok(()),
        Some(line) => bail!("{}", line.trim()),
        None => bail!("sockperf finished without a result: {text:?}"),
    }
}

/// Sum of the counts in `# dropped messages = 0; # duplicated messages = 0; …`.
fn faults(line: &str) -> u64 {
    let counts = line
        .split(';')
        .map(|part| part.rsplit('=').next().unwrap_or_default().trim());
    // A count that cannot be read is a fault.
    counts
        .map(|count| count.parse().unwrap_or(1))
        .fold(0, u64::saturating_add)
}

pub fn percentile_us(text: &str, percentile: &str) -> anyhow::Result<f64> {
    let wanted = format!("percentile {percentile}");
    let line = text
        .lines()
        .find(|line| line.contains(&wanted))
        .with_context(|| format!("sockperf printed no {wanted}"))?;
    let value = line.rsplit('=').next().unwrap_or_default();
    value
        .trim()
        .parse()
        .with_context(|| format!("sockperf printed {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_read_from_their_lines() {
        let text = "sockperf: ---> percentile 99.900 =   31.520\nsockperf: ---> percentile 99.000 =   14.140\n";
        assert!((percentile_us(text, "99.000").unwrap() - 14.14).abs() < 1e-9);
        assert!(percentile_us(text, "50.000").is_err());
    }

    #[test]
    fn lost_doubled_and_reordered_messages_are_counted() {
        let line = |lost| {
            format!(
                "sockperf: # dropped messages = {lost}; # duplicated messages = 0; # out-of-order messages = 0"
            )
        };
        assert_eq!(faults(&line("0")), 0);
        assert_eq!(faults(&line("3")), 3);
        assert_eq!(faults(&line("many")), 1);
    }
}
