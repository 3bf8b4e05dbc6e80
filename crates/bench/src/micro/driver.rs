//! `shunt bench driver`: Ethernet frames there and back without a stack, one at a time and in bursts: by Shunt's drivers, and by a
//! packet socket that takes a call for each. The loop of the `datacenter-latency` paper.

use anyhow::{Context, ensure};
use lab::INTERFACE;
use serde::Deserialize;

use super::{
    samples::Values,
    setup::{Plan, Setup},
    testbed::{On, SHUNT, Stack, Testbed, Unavailable},
};

pub fn plan() -> Plan {
    Plan::of(
        ROWS,
        Setup::all(SETUPS, frames),
        &[
            "64 bytes of payload; both ends go the same way and ask again and again; no stack: neither side retransmits, checks sums or finds routes",
            "a burst is sent when all of the one before has come back; af_xdp in generic mode, as a virtual interface has it",
        ],
    )
}

const ROWS: &str = "
a frame there and back, af_packet, p50 | µs ↓       | socket | af_packet | p50
  bursts of 8 frames                   | frames/s ↑ | socket | af_packet | bursts-of-8
  bursts of 32 frames                  | frames/s ↑ | socket | af_packet | bursts-of-32
a frame there and back, af_xdp, p50    | µs ↓       | socket | af_xdp    | p50
  bursts of 8 frames                   | frames/s ↑ | socket | af_xdp    | bursts-of-8
  bursts of 32 frames                  | frames/s ↑ | socket | af_xdp    | bursts-of-32
";

/// With the flags of both ends.
const SETUPS: &str = "
socket    | a packet socket  |                    | kernel
af_packet | driver af_packet | --driver=af_packet | kernel
af_xdp    | driver af_xdp    | --driver=af_xdp    | kernel
";

/// Frames of each measurement, by the seconds that it may take.
const FRAMES_PER_S: f64 = 20_000.0;

#[derive(Deserialize)]
struct Ping {
    seconds: f64,
    counts: Counts,
    round_trip: Option<RoundTrip>,
}

#[derive(Deserialize)]
struct Counts {
    sent: u64,
    received: u64,
}

/// What `shunt ping --json` says of round trips.
#[derive(Deserialize)]
pub struct RoundTrip {
    /// By ascending percent.
    percentiles: Vec<Percentile>,
}

#[derive(Deserialize)]
struct Percentile {
    percent: f64,
    us: f64,
}

impl RoundTrip {
    /// The median, microseconds.
    pub fn median_us(&self) -> anyhow::Result<f64> {
        let median = self.percentiles.iter().find(|one| one.percent == 50.0);
        Ok(median.context("no median")?.us)
    }
}

fn frames(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let driver = setup.what.split_ascii_whitespace();
    let echo = testbed.placement(On::A, Stack::Kernel)?;
    let mut line = vec![SHUNT, "echo", "--raw", INTERFACE, "--spin"];
    line.extend(driver.clone());
    let mut server = testbed.serve(echo, "serving", &line).map_err(|error| {
        // Not every kernel and interface has AF_XDP.
        match setup.key == "af_xdp" {
            true => Unavailable(format!("{error:#}")).into(),
            false => error,
        }
    })?;
    let said = server.said();
    let address = said
        .trim()
        .rsplit(' ')
        .next()
        .context("the echo says no address")?;
    let ping = testbed.placement(On::B, Stack::Kernel)?;
    let count = format!("{:.0}", testbed.scale.seconds * FRAMES_PER_S);
    let mut values = Vec::new();
    for (burst, quantity) in [("1", "p50"), ("8", "bursts-of-8"), ("32", "bursts-of-32")] {
        // Who waits for a processor has lost nothing; what does not come back fails the run below.
        let words = format!(
            "ping {address} --raw --nic {INTERFACE} --spin --json --timeout 20s --max-loss 100 --burst {burst} --count {count}"
        );
        let mut line = vec![SHUNT];
        line.extend(words.split(' ').chain(driver.clone()));
        let found: Ping = testbed.ask(ping, &line)?;
        ensure!(
            found.counts.received == found.counts.sent,
            "{} of {} frames came back: the machine is busy, or they are lost",
            found.counts.received,
            found.counts.sent
        );
        let round_trip = found.round_trip.context("no frame came back")?;
        values.push(match quantity {
            "p50" => (quantity, round_trip.median_us()?),
            _ => (quantity, found.counts.received as f64 / found.seconds),
        });
    }
    server.check_alive()?;
    Ok(values)
}
