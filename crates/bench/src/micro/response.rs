//! `shunt bench response`: response time over the number of clients and beside other load, the question of the `nic-net` paper's
//! figures 8 and 9.

use anyhow::Context as _;
use load::competing::beside_many;

use super::{
    asked::Asked,
    samples::Values,
    setup::{Plan, Setup},
    testbed::Testbed,
};

/// The server's computation for each request.
const COMPUTE_US: u32 = 20;

pub fn plan() -> Plan {
    Plan::of(
        ROWS,
        Setup::all(SETUPS, response),
        &[
            "the mean, and below it p99, as clients see it that wait for each answer; 64 bytes each way, 20 µs of computation; clients on the kernel of the other host",
            "other load: a program on each processor that only computes, or four; what the load costs is the ratio beside it, of the ratio without",
        ],
    )
}

const ROWS: &str = "
response, 1 client, server inline                    | µs ↓ | kernel-1        | inline-1        | mean p99
response, 4 clients, server inline                   | µs ↓ | kernel-4        | inline-4        | mean p99
response, 9 clients, server inline                   | µs ↓ | kernel-9        | inline-9        | mean p99
response beside other load, 1 client, server inline  | µs ↓ | loaded-kernel-1 | loaded-inline-1 | mean p99
response beside other load, 9 clients, server inline | µs ↓ | loaded-kernel-9 | loaded-inline-9 | mean p99
response beside four times that, 9 clients, inline   | µs ↓ | crowded-kernel  | crowded-inline  | mean p99
";

/// With their clients.
const SETUPS: &str = "
kernel-1        | kernel, 1 client              | 1 | kernel
inline-1        | inline, 1 client              | 1 | inline
kernel-4        | kernel, 4 clients             | 4 | kernel
inline-4        | inline, 4 clients             | 4 | inline
kernel-9        | kernel, 9 clients             | 9 | kernel
inline-9        | inline, 9 clients             | 9 | inline
loaded-kernel-1 | kernel, 1 client, other load  | 1 | kernel
loaded-inline-1 | inline, 1 client, other load  | 1 | inline
loaded-kernel-9 | kernel, 9 clients, other load | 9 | kernel
loaded-inline-9 | inline, 9 clients, other load | 9 | inline
crowded-kernel  | kernel, 9 clients, four times | 9 | kernel
crowded-inline  | inline, 9 clients, four times | 9 | inline
";

fn response(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let clients = setup.what.parse().context("clients of a setup")?;
    let mut server = Asked::start(testbed, setup, COMPUTE_US)?;
    let per_processor = match setup.key.split('-').next() {
        Some("loaded") => 1,
        Some("crowded") => 4,
        _ => 0,
    };
    let (seen, _) = beside_many(per_processor, || server.by(clients))?;
    Ok(vec![("mean", seen.mean_us), ("p99", seen.p99_us)])
}
