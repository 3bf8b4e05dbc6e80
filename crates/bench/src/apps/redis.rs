//! redis-server under test, redis-benchmark as its peer: SET and GET over 50 connections, one
//! request at a time and sixteen at a time.

use anyhow::{Context as _, bail};

use super::{
    case::{Case, Measure, Sample},
    context::{Context, Server},
    side::Side,
};
use crate::unit::Better;

const PORT: u16 = 6379;
const CONNECTIONS: &str = "50";

/// How many requests travel together, and the names of what is measured then.
const DEPTHS: [(u32, [Measure; 2]); 2] = [
    (
        1,
        [
            requests("SET, 50 connections"),
            requests("GET, 50 connections"),
        ],
    ),
    (
        16,
        [
            requests("SET, 50 connections, pipeline 16"),
            requests("GET, 50 connections, pipeline 16"),
        ],
    ),
];

const fn requests(name: &'static str) -> Measure {
    Measure {
        name,
        unit: "requests/s",
        better: Better::Higher,
    }
}

/// redis-server serves redis-benchmark.
pub const SERVES: Case = Case {
    title: "redis serves redis-benchmark",
    segment_bytes: lab::ORDINARY_SEGMENT_BYTES,
    tested: "redis-server",
    tools: &["redis-server", "redis-benchmark", "redis-cli"],
    check,
    sample,
};

/// A value of several segments comes back as it was sent.
fn check(context: &Context, side: Side) -> anyhow::Result<()> {
    const VALUE_BYTES: usize = 100_000;
    let server = start(context, side)?;
    let value: String = ('a'..='z').cycle().take(VALUE_BYTES).collect();
    let host = server.address.ip().to_string();
    let ask = |words: &[&str]| -> anyhow::Result<String> {
        let line = [&["redis-cli", "-h", &host], words].concat();
        Ok(context.run(None, &line)?.stdout.trim().to_owned())
    };
    let stored = ask(&["SET", "key", &value])?;
    if stored != "OK" || ask(&["GET", "key"])? != value {
        bail!(
            "a value of {VALUE_BYTES} bytes did not come back as it was stored (SET said {stored:?})"
        );
    }
    Ok(())
}

fn sample(context: &Context, side: Side) -> anyhow::Result<Vec<Sample>> {
    let server = start(context, side)?;
    let mut samples = Vec::new();
    for (depth, measures) in DEPTHS {
        let requests = context.common.scale.redis_requests * if depth == 1 { 1 } else { 4 };
        let host = server.address.ip();
        let line = format!(
            "redis-benchmark -h {host} -t set,get -c {CONNECTIONS} -n {requests} -P {depth} --csv"
        );
        let line: Vec<&str> = line.split(' ').collect();
        let finished = context.run(None, &line)?;
        for (measure, name) in measures.into_iter().zip(["SET", "GET"]) {
            samples.push(Sample {
                measure,
                value: requests_per_second(&finished.stdout, name)?,
            });
        }
    }
    Ok(samples)
}

fn start(context: &Context, side: Side) -> anyhow::Result<Server> {
    let address = context.tested_address(side)?.to_string();
    let line = ["redis-server", "--bind", &address, "--save", ""];
    let others = ["--protected-mode", "no", "--dir", &context.scratch()];
    context.start_tested_server(side, PORT, &[&line[..], &others].concat())
}

/// The second column of the line of that test in redis-benchmark's CSV.
pub fn requests_per_second(csv: &str, test: &str) -> anyhow::Result<f64> {
    let unquoted = |field: &str| field.trim().trim_matches('"').to_owned();
    for line in csv.lines() {
        let mut fields = line.split(',').map(unquoted);
        if fields.next().as_deref() == Some(test) {
            let rate = fields.next().unwrap_or_default();
            return rate
                .parse()
                .with_context(|| format!("redis-benchmark wrote {line:?}"));
        }
    }
    bail!("redis-benchmark reported no {test}: {csv:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_the_line_of_its_test() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"95602.29\",\"0.271\"\n\"GET\",\"98328.42\",\"0.262\"\n";
        assert!((requests_per_second(csv, "GET").unwrap() - 98328.42).abs() < 1e-6);
        assert!(requests_per_second(csv, "INCR").is_err());
    }
}
