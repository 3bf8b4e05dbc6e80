//! `shunt bench connect`: connections that live for no request, or for a few.

use load::{connections, create};

use super::{
    samples::Values,
    setup::{Plan, Setup},
    testbed::{LOAD, On, Testbed},
};

const PORT: u16 = 11112;

pub fn plan() -> Plan {
    let mut setups = Setup::all(SETUPS, connections);
    setups.extend(Setup::all(CREATING, create));
    Plan::of(
        ROWS,
        setups,
        &[
            "one connection at a time; the server closes first; a request is 64 bytes and so is its answer",
            "create + close: time in socket(2) and close(2) of the client",
        ],
    )
}

const ROWS: &str = "
connect, accept, close, inline both ends       | connections/s ↑ | kernel-0      | inline-0      | rate
  the same, engine on the server's host        | connections/s ↑ | kernel-0      | engine-0      | rate
socket create + close, connected, inline       | µs ↓            | kernel-0      | inline-0      | create
  the same, engine                             | µs ↓            | kernel-0      | engine-client | create
socket create + close, never connected, inline | µs ↓            | kernel-create | inline-create | create
  the same, engine                             | µs ↓            | kernel-create | engine-create | create
1 request per connection, inline both ends     | connections/s ↑ | kernel-1      | inline-1      | rate
2 requests per connection, inline both ends    | connections/s ↑ | kernel-2      | inline-2      | rate
5 requests per connection, inline both ends    | connections/s ↑ | kernel-5      | inline-5      | rate
10 requests per connection, inline both ends   | connections/s ↑ | kernel-10     | inline-10     | rate
";

/// Their requests for each connection, and stacks.
const SETUPS: &str = "
kernel-0      | kernel                             | 0  | kernel
inline-0      | inline both ends                   | 0  | inline
engine-0      | engine serves, client kernel       | 0  | engine | kernel
engine-client | client on an engine, server kernel | 0  | kernel | engine
kernel-1      | kernel, 1 request                  | 1  | kernel
inline-1      | inline, 1 request                  | 1  | inline
kernel-2      | kernel, 2 requests                 | 2  | kernel
inline-2      | inline, 2 requests                 | 2  | inline
kernel-5      | kernel, 5 requests                 | 5  | kernel
inline-5      | inline, 5 requests                 | 5  | inline
kernel-10     | kernel, 10 requests                | 10 | kernel
inline-10     | inline, 10 requests                | 10 | inline
";

const CREATING: &str = "
kernel-create | kernel, never connected | | kernel
inline-create | inline, never connected | | inline
engine-create | engine, never connected | | engine
";

fn create(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let [stack, _] = setup.ends();
    let _engines = testbed.engines([(On::B, stack)])?;
    let seconds = testbed.scale.seconds.to_string();
    let line = [LOAD, "create", "--seconds", &seconds];
    let outcome: create::Outcome = testbed.ask(testbed.placement(On::B, stack)?, &line)?;
    Ok(vec![("create", outcome.each_us)])
}

fn connections(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let [server, client] = setup.ends();
    let _engines = testbed.engines([(On::A, server), (On::B, client)])?;
    let placement = testbed.placement(On::A, server)?;
    let address = placement.at(PORT).to_string();
    let requests = format!("--requests={}", setup.what);
    let line = [LOAD, "accept", "--listen", &address, &requests];
    let mut server = testbed.serve(placement, "listening", &line)?;
    let seconds = format!("--seconds={}", testbed.scale.seconds);
    let line = [LOAD, "connect", "--connect", &address, &requests, &seconds];
    let outcome: connections::Outcome = testbed.ask(testbed.placement(On::B, client)?, &line)?;
    server.check_alive()?;
    let count = outcome.connections as f64;
    Ok(vec![
        ("rate", count / outcome.seconds),
        ("create", outcome.create_and_close_us),
    ])
}
