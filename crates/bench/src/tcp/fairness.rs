//! Two flows that share a bottleneck: the kernel's and ours, from one host to the other's kernel.

use anyhow::bail;
use serde::Serialize;
use std::time::Instant;

use load::{
    interrupt::Interrupt,
    transfer::{Order, Span},
};

use super::{estimate::Estimate, grid::Cell, testbed::Testbed};

/// Rate and round trip of the bottlenecks; the buffer holds one round trip.
pub const BOTTLENECKS: [(u64, u64); 3] = [(10, 20), (10, 100), (100, 20)];

/// Our part of what both flows got.
#[derive(Debug, Serialize)]
pub struct Share {
    pub congestion: String,
    pub cell: Cell,
    /// The mean and each seed's.
    pub shunt: Option<Estimate>,
    /// Both flows' goodput together, each seed's.
    pub together_mbit: Option<Estimate>,
    pub failures: Vec<String>,
}

/// Measures all bottlenecks for one congestion control, one after the other on one testbed; what there is until
/// somebody interrupts.
pub fn measure(
    congestion: &str,
    seeds: u64,
    interrupt: &Interrupt,
    begun: Instant,
) -> anyhow::Result<Vec<Share>> {
    let name = format!("tcp-{}-share-{congestion}", std::process::id());
    let mut testbed = Testbed::create(&name, &[], interrupt)?;
    let mut shares = Vec::new();
    for (rate_mbit, rtt_ms) in BOTTLENECKS {
        let cell = Cell::new(0.0, rtt_ms, rate_mbit);
        let mut samples = Vec::new();
        let mut together = Vec::new();
        let mut failures = Vec::new();
        for seed in 0..seeds {
            match once(&mut testbed, congestion, &cell, seed) {
                Ok((share, mbit)) => {
                    samples.push(share);
                    together.push(mbit);
                }
                Err(_) if interrupt.came() => return Ok(shares),
                Err(error) => {
                    failures.push(format!("{error:#}"));
                    drop(testbed);
                    testbed = Testbed::create(&name, &[], interrupt)?;
                }
            }
        }
        let shunt = Estimate::of(&samples);
        note!(
            "[{:>4} s] fairness: {congestion}, {rate_mbit} Mbit/s, {rtt_ms} ms: {}",
            begun.elapsed().as_secs(),
            shunt.as_ref().map_or("failed".to_owned(), |own| format!(
                "{:.2} ±{:.2}",
                own.mean, own.interval
            ))
        );
        shares.push(Share {
            congestion: congestion.to_owned(),
            cell,
            shunt,
            together_mbit: Estimate::of(&together),
            failures,
        });
    }
    Ok(shares)
}

/// Our share of the bytes that came after the start, and both rates together.
fn once(
    testbed: &mut Testbed,
    congestion: &str,
    cell: &Cell,
    seed: u64,
) -> anyhow::Result<(f64, f64)> {
    // Long enough for the two to find each other, with the buffer full: counted in round trips.
    let rtt_s = (cell.rtt_ms as f64 / 1000.0) * 2.0;
    let span = Span {
        skip_seconds: 1.0 + rtt_s * 10.0,
        seconds: 1.0 + rtt_s * 30.0,
    };
    let order = Order {
        to: std::net::SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0),
        congestion: congestion.to_owned(),
        bytes: 0,
        patience_seconds: (span.skip_seconds + span.seconds) * 2.0 + 10.0,
        span: Some(span),
    };
    let outcomes = testbed.share(cell.settings(seed), &order)?;
    for outcome in &outcomes {
        if let Some(error) = &outcome.error {
            bail!("{error}");
        }
    }
    let [kernel, shunt] = outcomes.map(|outcome| outcome.bytes as f64);
    let together_mbit = (kernel + shunt) * 8.0 / span.seconds / 1e6;
    Ok((shunt / (kernel + shunt), together_mbit))
}
