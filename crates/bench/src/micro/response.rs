//! `shunt bench response`: response time over the number of clients and beside other load, the question of the `nic-net` paper's
//! figures 8 and 9.

use load::competing::beside;

use super::{
    asked::Asked,
    row::{Row, from},
    samples::Values,
    setup::{Plan, Setup},
    testbed::{Stack, Testbed},
};
use crate::apps::case::Better;

const INLINE: Stack = Stack::Inline("af_packet");
/// The server's computation for each request.
const COMPUTE_US: u32 = 20;

/// What is measured.
pub fn plan() -> Plan {
    let mut rows = Vec::new();
    for [what, kernel, shunt] in ROWS {
        let row = |what, quantity| Row {
            what,
            unit: "µs",
            better: Better::Lower,
            kernel: Some(from(kernel, quantity)),
            shunt: from(shunt, quantity),
        };
        rows.extend([row(what, "mean"), row("  p99", "p99")]);
    }
    Plan {
        setups: SETUPS.to_vec(),
        rows,
        notes: vec![
            "the mean, and below it p99, as clients see it that wait for each answer; 64 bytes each way, 20 µs of computation; clients on the kernel of the other host",
            "other load: a program on each processor that only computes",
        ],
    }
}

const ROWS: [[&str; 3]; 5] = [
    ["response, 1 client, server inline", "kernel-1", "inline-1"],
    ["response, 4 clients, server inline", "kernel-4", "inline-4"],
    ["response, 9 clients, server inline", "kernel-9", "inline-9"],
    [
        "response beside other load, 1 client, server inline",
        "loaded-kernel-1",
        "loaded-inline-1",
    ],
    [
        "response beside other load, 9 clients, server inline",
        "loaded-kernel-9",
        "loaded-inline-9",
    ],
];

const SETUPS: [Setup; 10] = [
    Setup::new("kernel-1", "kernel, 1 client", |testbed| {
        quiet(testbed, Stack::Kernel, 1)
    }),
    Setup::new("inline-1", "inline, 1 client", |testbed| {
        quiet(testbed, INLINE, 1)
    }),
    Setup::new("kernel-4", "kernel, 4 clients", |testbed| {
        quiet(testbed, Stack::Kernel, 4)
    }),
    Setup::new("inline-4", "inline, 4 clients", |testbed| {
        quiet(testbed, INLINE, 4)
    }),
    Setup::new("kernel-9", "kernel, 9 clients", |testbed| {
        quiet(testbed, Stack::Kernel, 9)
    }),
    Setup::new("inline-9", "inline, 9 clients", |testbed| {
        quiet(testbed, INLINE, 9)
    }),
    Setup::new(
        "loaded-kernel-1",
        "kernel, 1 client, other load",
        |testbed| loaded(testbed, Stack::Kernel, 1),
    ),
    Setup::new(
        "loaded-inline-1",
        "inline, 1 client, other load",
        |testbed| loaded(testbed, INLINE, 1),
    ),
    Setup::new(
        "loaded-kernel-9",
        "kernel, 9 clients, other load",
        |testbed| loaded(testbed, Stack::Kernel, 9),
    ),
    Setup::new(
        "loaded-inline-9",
        "inline, 9 clients, other load",
        |testbed| loaded(testbed, INLINE, 9),
    ),
];

fn quiet(testbed: &Testbed, stack: Stack, clients: u32) -> anyhow::Result<Values> {
    let seen = Asked::start(testbed, stack, COMPUTE_US)?.by(clients)?;
    Ok(vec![("mean", seen.mean_us), ("p99", seen.p99_us)])
}

fn loaded(testbed: &Testbed, stack: Stack, clients: u32) -> anyhow::Result<Values> {
    let mut server = Asked::start(testbed, stack, COMPUTE_US)?;
    let (seen, _) = beside(|| server.by(clients))?;
    Ok(vec![("mean", seen.mean_us), ("p99", seen.p99_us)])
}
