//! `shunt bench connect`: connections that live for no request, or for a few.

use load::{connections, create};

use super::{
    row::{Row, from},
    samples::Values,
    setup::{Plan, Setup},
    testbed::{LOAD, On, Stack, Testbed},
};
use crate::apps::case::Better;

const PORT: u16 = 11112;
const INLINE: Stack = Stack::Inline("af_packet");

/// What is measured.
pub fn plan() -> Plan {
    let rate = |what, kernel, shunt| Row {
        what,
        unit: "connections/s",
        better: Better::Higher,
        kernel: Some(from(kernel, "rate")),
        shunt: from(shunt, "rate"),
    };
    let create = |what, kernel, shunt| Row {
        what,
        unit: "µs",
        better: Better::Lower,
        kernel: Some(from(kernel, "create")),
        shunt: from(shunt, "create"),
    };
    let with_requests = REQUESTS.map(|[what, kernel, shunt]| rate(what, kernel, shunt));
    let rows = vec![
        rate(
            "connect, accept, close, inline both ends",
            "kernel-0",
            "inline-0",
        ),
        rate(
            "  the same, engine on the server's host",
            "kernel-0",
            "engine-0",
        ),
        create(
            "socket create + close, connected, inline",
            "kernel-0",
            "inline-0",
        ),
        create("  the same, engine", "kernel-0", "engine-client"),
        create(
            "socket create + close, never connected, inline",
            "kernel-create",
            "inline-create",
        ),
        create("  the same, engine", "kernel-create", "engine-create"),
    ];
    Plan {
        setups: SETUPS.to_vec(),
        rows: rows.into_iter().chain(with_requests).collect(),
        notes: vec![
            "one connection at a time; the server closes first; a request is 64 bytes and so is its answer",
            "create + close: time in socket(2) and close(2) of the client",
        ],
    }
}

/// Rows of connections with requests, and their setups.
const REQUESTS: [[&str; 3]; 4] = [
    [
        "1 request per connection, inline both ends",
        "kernel-1",
        "inline-1",
    ],
    [
        "2 requests per connection, inline both ends",
        "kernel-2",
        "inline-2",
    ],
    [
        "5 requests per connection, inline both ends",
        "kernel-5",
        "inline-5",
    ],
    [
        "10 requests per connection, inline both ends",
        "kernel-10",
        "inline-10",
    ],
];

const SETUPS: [Setup; 15] = [
    Setup::new("kernel-0", "kernel", |testbed| {
        both(testbed, Stack::Kernel, "0")
    }),
    Setup::new("inline-0", "inline both ends", |testbed| {
        both(testbed, INLINE, "0")
    }),
    Setup::new("engine-0", "engine serves, client kernel", |testbed| {
        let _engine = testbed.start_engine(On::A, &[])?;
        connections(testbed, Stack::Engine, Stack::Kernel, "0")
    }),
    Setup::new(
        "engine-client",
        "client on an engine, server kernel",
        |testbed| {
            let _engine = testbed.start_engine(On::B, &[])?;
            connections(testbed, Stack::Kernel, Stack::Engine, "0")
        },
    ),
    Setup::new("kernel-create", "kernel, never connected", |testbed| {
        create(testbed, Stack::Kernel)
    }),
    Setup::new("inline-create", "inline, never connected", |testbed| {
        create(testbed, INLINE)
    }),
    Setup::new("engine-create", "engine, never connected", |testbed| {
        let _engine = testbed.start_engine(On::B, &[])?;
        create(testbed, Stack::Engine)
    }),
    Setup::new("kernel-1", "kernel, 1 request", |testbed| {
        both(testbed, Stack::Kernel, "1")
    }),
    Setup::new("inline-1", "inline, 1 request", |testbed| {
        both(testbed, INLINE, "1")
    }),
    Setup::new("kernel-2", "kernel, 2 requests", |testbed| {
        both(testbed, Stack::Kernel, "2")
    }),
    Setup::new("inline-2", "inline, 2 requests", |testbed| {
        both(testbed, INLINE, "2")
    }),
    Setup::new("kernel-5", "kernel, 5 requests", |testbed| {
        both(testbed, Stack::Kernel, "5")
    }),
    Setup::new("inline-5", "inline, 5 requests", |testbed| {
        both(testbed, INLINE, "5")
    }),
    Setup::new("kernel-10", "kernel, 10 requests", |testbed| {
        both(testbed, Stack::Kernel, "10")
    }),
    Setup::new("inline-10", "inline, 10 requests", |testbed| {
        both(testbed, INLINE, "10")
    }),
];

fn both(testbed: &Testbed, stack: Stack, requests: &str) -> anyhow::Result<Values> {
    connections(testbed, stack, stack, requests)
}

fn create(testbed: &Testbed, stack: Stack) -> anyhow::Result<Values> {
    let seconds = testbed.scale().seconds.to_string();
    let line = [LOAD, "create", "--seconds", &seconds];
    let outcome: create::Outcome = testbed.ask(testbed.placement(On::B, stack)?, &line)?;
    Ok(vec![("create", outcome.each_us)])
}

fn connections(
    testbed: &Testbed,
    server: Stack,
    client: Stack,
    requests: &str,
) -> anyhow::Result<Values> {
    let placement = testbed.placement(On::A, server)?;
    let address = placement.at(PORT).to_string();
    let line = [LOAD, "accept", "--listen", &address, "--requests", requests];
    let mut server = testbed.serve(placement, "listening", &line)?;
    let seconds = testbed.scale().seconds.to_string();
    let line = [
        LOAD,
        "connect",
        "--connect",
        &address,
        "--requests",
        requests,
        "--seconds",
        &seconds,
    ];
    let outcome: connections::Outcome = testbed.ask(testbed.placement(On::B, client)?, &line)?;
    server.check_alive()?;
    // A run has no more than 2^53 connections.
    #[allow(clippy::cast_precision_loss)]
    let count = outcome.connections as f64;
    Ok(vec![
        ("rate", count / outcome.seconds),
        ("create", outcome.create_and_close_us),
    ])
}
