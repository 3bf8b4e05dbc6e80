//! `shunt bench driver`: Ethernet frames there and back without a stack, one at a time and in bursts: by Shunt's drivers, and by a
//! packet socket that takes a call for each. The loop of the `datacenter-latency` paper.

use anyhow::{Context, ensure};
use lab::INTERFACE;
use serde::Deserialize;

use super::{
    samples::Values,
    setup::{Plan, Setup},
    testbed::{On, SHUNT, Server, Stack, Testbed, Unavailable},
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

/// What `shunt ping --json` says.
#[derive(Deserialize)]
pub struct Ping {
    seconds: f64,
    counts: Counts,
    round_trip: Option<RoundTrip>,
}

#[derive(Deserialize)]
struct Counts {
    sent: u64,
    received: u64,
}

#[derive(Deserialize)]
struct RoundTrip {
    /// By ascending percent.
    percentiles: Vec<Percentile>,
}

#[derive(Deserialize)]
struct Percentile {
    percent: f64,
    us: f64,
}

impl Ping {
    /// The median round trip, microseconds.
    pub fn median_us(&self) -> anyhow::Result<f64> {
        let round_trip = self.round_trip.as_ref().context("no frame came back")?;
        let median = round_trip
            .percentiles
            .iter()
            .find(|one| one.percent == 50.0);
        Ok(median.context("no median")?.us)
    }
}

/// A program on the one host that sends frames back, and its Ethernet address.
pub fn echo(testbed: &Testbed, flags: &[&str]) -> anyhow::Result<(Server, String)> {
    let place = testbed.placement(On::A, Stack::Kernel)?;
    let line = [&[SHUNT, "echo", "--raw", INTERFACE], flags].concat();
    let server = testbed.serve(place, "serving", &line)?;
    let said = server.said();
    let address = said.trim().rsplit(' ').next();
    let address = address.context("the echo says no address")?.to_owned();
    Ok((server, address))
}

/// Frames from the other host to that address and back, all of which must return.
pub fn ping(testbed: &Testbed, address: &str, flags: &[&str]) -> anyhow::Result<Ping> {
    let place = testbed.placement(On::B, Stack::Kernel)?;
    // Who waits for a processor has lost nothing; what does not come back fails the run below.
    let words = "--spin --json --timeout 20s --max-loss 100";
    let mut line = vec![SHUNT, "ping", address, "--raw", "--nic", INTERFACE];
    line.extend(words.split(' ').chain(flags.iter().copied()));
    let found: Ping = testbed.ask(place, &line)?;
    ensure!(
        found.counts.received == found.counts.sent,
        "{} of {} frames came back: the machine is busy, or they are lost",
        found.counts.received,
        found.counts.sent
    );
    Ok(found)
}

fn frames(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let driver: Vec<&str> = setup.what.split_ascii_whitespace().collect();
    let (mut server, address) =
        echo(testbed, &[&["--spin"], &driver[..]].concat()).map_err(|error| {
            // Not every kernel and interface has AF_XDP.
            match setup.key == "af_xdp" {
                true => Unavailable(format!("{error:#}")).into(),
                false => error,
            }
        })?;
    let count = format!("{:.0}", testbed.scale.seconds * FRAMES_PER_S);
    let mut values = Vec::new();
    for (burst, quantity) in [("1", "p50"), ("8", "bursts-of-8"), ("32", "bursts-of-32")] {
        let flags = [&["--burst", burst, "--count", &count], &driver[..]].concat();
        let found = ping(testbed, &address, &flags)?;
        values.push(match quantity {
            "p50" => (quantity, found.median_us()?),
            _ => (quantity, found.counts.received as f64 / found.seconds),
        });
    }
    server.check_alive()?;
    Ok(values)
}
