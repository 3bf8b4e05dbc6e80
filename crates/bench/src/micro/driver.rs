//! `shunt bench driver`: Ethernet frames there and back without a stack, one at a time and in bursts: by Shunt's drivers, and by a
//! packet socket that takes a call for each. The loop of the `datacenter-latency` paper.

use anyhow::{Context, ensure};
use lab::INTERFACE;
use serde::Deserialize;

use super::{
    row::{Row, from},
    samples::Values,
    setup::{Plan, Setup, Unavailable},
    testbed::{On, SHUNT, Stack, Testbed},
};
use crate::apps::case::Better;

/// What is measured.
pub fn plan() -> Plan {
    let row = |what, (unit, better, quantity), driver| Row {
        what,
        unit,
        better,
        kernel: Some(from("socket", quantity)),
        shunt: from(driver, quantity),
    };
    let trip = ("µs", Better::Lower, "p50");
    let rates = ["bursts-of-8", "bursts-of-32"].map(|of| ("frames/s", Better::Higher, of));
    let mut rows = Vec::new();
    for (driver, [one, few, many]) in [
        (
            "af_packet",
            [
                "a frame there and back, af_packet, p50",
                "  bursts of 8 frames",
                "  bursts of 32 frames",
            ],
        ),
        (
            "af_xdp",
            [
                "a frame there and back, af_xdp, p50",
                "  bursts of 8 frames",
                "  bursts of 32 frames",
            ],
        ),
    ] {
        rows.extend([
            row(one, trip, driver),
            row(few, rates[0], driver),
            row(many, rates[1], driver),
        ]);
    }
    Plan {
        setups: vec![
            Setup::new("socket", "a packet socket", |testbed| frames(testbed, None)),
            Setup::new("af_packet", "driver af_packet", |testbed| {
                frames(testbed, Some("--driver=af_packet"))
            }),
            Setup::new("af_xdp", "driver af_xdp", |testbed| {
                frames(testbed, Some("--driver=af_xdp"))
            }),
        ],
        rows,
        notes: vec![
            "64 bytes of payload; both ends go the same way and ask again and again; no stack: neither side retransmits, checks sums or finds routes",
            "a burst is sent when all of the one before has come back; af_xdp in generic mode, as a virtual interface has it",
        ],
    }
}

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
    pub percentiles: Vec<Percentile>,
}

/// One of them.
#[derive(Deserialize)]
pub struct Percentile {
    /// Of 100.
    pub percent: f64,
    /// Microseconds.
    pub us: f64,
}

fn frames(testbed: &Testbed, driver: Option<&str>) -> anyhow::Result<Values> {
    let echo = testbed.placement(On::A, Stack::Kernel)?;
    let line = [
        &[SHUNT, "echo", "--raw", INTERFACE, "--spin"][..],
        driver.as_slice(),
    ]
    .concat();
    let mut server = testbed.serve(echo, "serving", &line).map_err(|error| {
        // Not every kernel and interface has AF_XDP.
        match driver == Some("--driver=af_xdp") {
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
    let count = format!("{:.0}", testbed.scale().seconds * FRAMES_PER_S);
    let mut values = Vec::new();
    for (burst, quantity) in [("1", "p50"), ("8", "bursts-of-8"), ("32", "bursts-of-32")] {
        // Who waits for a processor has lost nothing; what does not come back fails the run below.
        let words = [
            SHUNT,
            "ping",
            address,
            "--raw",
            "--nic",
            INTERFACE,
            "--spin",
            "--json",
            "--timeout",
            "20s",
            "--max-loss",
            "100",
            "--burst",
            burst,
            "--count",
            &count,
        ];
        let found: Ping = testbed.ask(ping, &[&words[..], driver.as_slice()].concat())?;
        ensure!(
            found.counts.received == found.counts.sent,
            "{} of {} frames came back: the machine is busy, or they are lost",
            found.counts.received,
            found.counts.sent
        );
        let percentiles = found.round_trip.context("no frame came back")?.percentiles;
        let median = percentiles.iter().find(|one| one.percent == 50.0);
        values.push(match quantity {
            "p50" => (quantity, median.context("no median")?.us),
            _ => (quantity, found.counts.received as f64 / found.seconds),
        });
    }
    server.check_alive()?;
    Ok(values)
}
