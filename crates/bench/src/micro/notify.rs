//! `shunt bench notify`: when a sleeping program is told of what has come (`shunt run --notify`): what a policy gives in rate,
//! and what it takes in latency.

use super::{
    asked::Asked,
    samples::Values,
    setup::{Plan, Setup},
    testbed::Testbed,
};

/// Clients that keep the server busy.
const CLIENTS: u32 = 32;
/// The server's computation for each request.
const COMPUTE_US: u32 = 2;

pub fn plan() -> Plan {
    Plan::of(
        ROWS,
        Setup::all(SETUPS, measure),
        &[
            "64 bytes each way and 2 µs of computation; a server with epoll beside an engine, asked by the kernel of the other host; the kernel's server is told of each event",
            "returns from waiting: how often the server was told, by the answers that it gave",
        ],
    )
}

const ROWS: &str = "
32 clients, --notify each               | requests/s ↑ | kernel | each           | rate
  returns from waiting for each answer  | times ↓      | kernel | each           | returns
  p50 of these                          | µs ↓         | kernel | each           | p50
  p50 of a client alone                 | µs ↓         | kernel | each           | alone
32 clients, --notify every=8,us=100     | requests/s ↑ | kernel | every=8,us=100 | rate
  returns from waiting for each answer  | times ↓      | kernel | every=8,us=100 | returns
  p50 of these                          | µs ↓         | kernel | every=8,us=100 | p50
  p50 of a client alone                 | µs ↓         | kernel | every=8,us=100 | alone
32 clients, --notify full,us=1000       | requests/s ↑ | kernel | full,us=1000   | rate
  returns from waiting for each answer  | times ↓      | kernel | full,us=1000   | returns
  p50 of these                          | µs ↓         | kernel | full,us=1000   | p50
  p50 of a client alone                 | µs ↓         | kernel | full,us=1000   | alone
";

const SETUPS: &str = "
kernel         | kernel         | | kernel
each           | each           | | engine --notify each
every=8,us=100 | every=8,us=100 | | engine --notify every=8,us=100
full,us=1000   | full,us=1000   | | engine --notify full,us=1000
";

/// The server alone with one client, and with [`CLIENTS`].
pub(super) fn measure(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let mut server = Asked::start(testbed, setup, COMPUTE_US)?;
    let alone = server.by(1)?;
    let many = server.by(CLIENTS)?;
    Ok(vec![
        ("rate", many.rate_per_s),
        ("returns", many.server.turns),
        ("p50", many.p50_us),
        ("alone", alone.p50_us),
    ])
}
