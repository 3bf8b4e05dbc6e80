//! `shunt bench rate`: small requests and small messages.

use load::{datagrams::Poured, ping};

use super::{
    many,
    row::{Row, from},
    samples::Values,
    setup::{Plan, Setup},
    testbed::{LOAD, On, Stack, Testbed},
};
use crate::apps::{case::Better, redis::requests_per_second};

const REDIS_PORT: u16 = 6379;
const ECHO_PORT: u16 = 11111;
const INLINE: Stack = Stack::Inline("af_packet");
const XDP: Stack = Stack::Inline("af_xdp");
/// Requests for each second that was asked for.
const REDIS_REQUESTS: f64 = 100_000.0;
/// Messages on their way at once.
const DEPTH: &str = "64";

/// What is measured.
pub fn plan() -> Plan {
    let row = |what, unit, kernel, shunt| Row {
        what,
        unit,
        better: Better::Higher,
        kernel: Some(kernel),
        shunt,
    };
    let mut rows = vec![
        row(
            "redis GET, 50 connections, same host, both inline, against loopback",
            "requests/s",
            from("redis-host-kernel", "rate"),
            from("redis-host-inline", "rate"),
        ),
        row(
            "redis GET, 50 connections, same host, --loopback, against loopback",
            "requests/s",
            from("redis-host-kernel", "rate"),
            from("redis-host-loopback", "rate"),
        ),
        row(
            "redis GET, 50 connections, server inline",
            "requests/CPU s",
            from("redis-kernel", "each"),
            from("redis-inline", "each"),
        ),
        row(
            "  the rate itself",
            "requests/s",
            from("redis-kernel", "rate"),
            from("redis-inline", "rate"),
        ),
        row(
            "64-byte messages, one connection, 64 on their way, inline both ends",
            "messages/s",
            from("messages-kernel", "rate"),
            from("messages-inline", "rate"),
        ),
        row(
            "  the same, server inline, client kernel",
            "messages/s",
            from("messages-kernel", "rate"),
            from("messages-server", "rate"),
        ),
        row(
            "64-byte datagrams, one way, inline both ends, AF_XDP generic",
            "received/s",
            from("datagrams-kernel", "rate"),
            from("datagrams-inline", "rate"),
        ),
        row(
            "  to a multicast group",
            "received/s",
            from("multicast-kernel", "rate"),
            from("multicast-inline", "rate"),
        ),
    ];
    rows.extend(many::rows());
    Plan {
        setups: SETUPS.into_iter().chain(many::SETUPS).collect(),
        rows,
        notes: vec![
            "processor time of the server: all its threads, its engine included; redis-benchmark is on the kernel of the other host unless both are on one",
            "a message is one send(2) and comes back as one send(2); a datagram is one too, and those count that a recvfrom(2) has returned",
            "requests over many connections: each has one request on its way; 64 bytes there and back, clients on the kernel of the other host",
        ],
    }
}

const SETUPS: [Setup; 12] = [
    setup("redis-kernel", "redis on the kernel", &REDIS, |testbed| {
        redis(testbed, Stack::Kernel, (On::B, Stack::Kernel))
    }),
    setup("redis-inline", "redis inline", &REDIS, |testbed| {
        redis(testbed, INLINE, (On::B, Stack::Kernel))
    }),
    setup(
        "redis-host-kernel",
        "redis, kernel loopback",
        &REDIS,
        |testbed| redis(testbed, Stack::Kernel, (On::A, Stack::Kernel)),
    ),
    setup(
        "redis-host-inline",
        "redis, one host, inline",
        &REDIS,
        |testbed| redis(testbed, INLINE, (On::A, INLINE)),
    ),
    setup(
        "redis-host-loopback",
        "redis, loopback on an engine",
        &REDIS,
        |testbed| {
            let _engine = testbed.start_engine(On::A, &[])?;
            redis(testbed, Stack::Loopback, (On::A, Stack::Loopback))
        },
    ),
    setup("messages-kernel", "messages, kernel", &[], |testbed| {
        messages(testbed, Stack::Kernel, Stack::Kernel)
    }),
    setup(
        "messages-inline",
        "messages, inline both ends",
        &[],
        |testbed| messages(testbed, INLINE, INLINE),
    ),
    setup(
        "messages-server",
        "messages, server inline",
        &[],
        |testbed| messages(testbed, INLINE, Stack::Kernel),
    ),
    setup("datagrams-kernel", "datagrams, kernel", &[], |testbed| {
        datagrams(testbed, Stack::Kernel, &[])
    }),
    setup(
        "datagrams-inline",
        "datagrams, inline both ends",
        &[],
        |testbed| datagrams(testbed, XDP, &[]),
    ),
    setup("multicast-kernel", "multicast, kernel", &[], |testbed| {
        datagrams(testbed, Stack::Kernel, &GROUP)
    }),
    setup(
        "multicast-inline",
        "multicast, inline both ends",
        &[],
        |testbed| datagrams(testbed, XDP, &GROUP),
    ),
];

/// A group that the datagrams go to.
const GROUP: [&str; 2] = ["--group", "239.7.7.8"];

const REDIS: [&str; 2] = ["redis-server", "redis-benchmark"];

const fn setup(
    key: &'static str,
    title: &'static str,
    tools: &'static [&'static str],
    measure: fn(&Testbed) -> anyhow::Result<Values>,
) -> Setup {
    Setup {
        tools,
        ..Setup::new(key, title, measure)
    }
}

fn redis(
    testbed: &Testbed,
    stack: Stack,
    (client_on, client): (On, Stack),
) -> anyhow::Result<Values> {
    let placement = testbed.placement(On::A, stack)?;
    let address = placement.address.to_string();
    let line = [
        "redis-server",
        "--bind",
        &address,
        "--save",
        "",
        "--protected-mode",
        "no",
    ];
    let mut server = testbed.serve_answering(placement, REDIS_PORT, &line)?;
    let requests = (testbed.scale().seconds * REDIS_REQUESTS).round();
    let count = requests.to_string();
    let line = [
        "redis-benchmark",
        "-h",
        &address,
        "-t",
        "get",
        "-c",
        "50",
        "-n",
        &count,
        "--csv",
    ];
    let before = server.cpu_seconds()?;
    let finished = testbed.run(testbed.placement(client_on, client)?, &line)?;
    let cpu = server.cpu_seconds()? - before;
    server.check_alive()?;
    Ok(vec![
        ("each", requests / cpu),
        ("rate", requests_per_second(&finished.stdout, "GET")?),
    ])
}

fn messages(testbed: &Testbed, server: Stack, client: Stack) -> anyhow::Result<Values> {
    let placement = testbed.placement(On::A, server)?;
    let address = placement.at(ECHO_PORT).to_string();
    let line = [LOAD, "echo", "--listen", &address];
    let mut server = testbed.serve(placement, "listening", &line)?;
    let seconds = testbed.scale().seconds.to_string();
    let line = [
        LOAD,
        "ping",
        "--connect",
        &address,
        "--depth",
        DEPTH,
        "--seconds",
        &seconds,
    ];
    let outcome: ping::Outcome = testbed.ask(testbed.placement(On::B, client)?, &line)?;
    server.check_alive()?;
    // A run has no more than 2^53 messages.
    #[allow(clippy::cast_precision_loss)]
    let messages = outcome.messages as f64;
    Ok(vec![("rate", messages / outcome.seconds)])
}

fn datagrams(testbed: &Testbed, stack: Stack, group: &[&str]) -> anyhow::Result<Values> {
    let placement = testbed.placement(On::A, stack)?;
    let address = placement.at(ECHO_PORT).to_string();
    let count = [&[LOAD, "count", "--address", &address], group].concat();
    let mut server = testbed.serve(placement, "listening", &count)?;
    let placement = testbed.placement(On::B, stack)?;
    let milliseconds = format!("{:.0}", testbed.scale().seconds * 1e3);
    let from = placement.address.to_string();
    let pour = [LOAD, "pour", "--address", &address, "--from", &from];
    let pour = [&pour[..], &["--milliseconds", &milliseconds], group].concat();
    let poured: Poured = testbed.ask(placement, &pour)?;
    server.check_alive()?;
    Ok(vec![("rate", poured.counted_per_s)])
}
