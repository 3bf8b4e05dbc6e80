//! `shunt bench rate`: small requests and small messages, and requests over many connections that are all in use: what one costs the
//! server, and whether it costs more the more there are.

use load::{datagrams::Poured, ping};

use super::{
    asked::Asked,
    samples::Values,
    setup::{Plan, Setup},
    testbed::{LOAD, On, Testbed},
};
use crate::apps::redis::requests_per_second;

const REDIS_PORT: u16 = 6379;
const ECHO_PORT: u16 = 11111;
/// Requests for each second that was asked for.
const REDIS_REQUESTS: f64 = 100_000.0;
/// Messages on their way at once.
const DEPTH: &str = "64";
/// Connections that are all in use.
const FEW: u32 = 100;
const MANY: u32 = 10_000;

pub fn plan() -> Plan {
    let mut setups = Setup::all(REDIS, redis);
    setups
        .iter_mut()
        .for_each(|setup| setup.tools = &["redis-server", "redis-benchmark"]);
    setups.extend(Setup::all(MESSAGES, messages));
    setups.extend(Setup::all(DATAGRAMS, datagrams));
    setups.extend(Setup::all(CONNECTIONS, many));
    Plan::of(
        ROWS,
        setups,
        &[
            "processor time of the server: all its threads, its engine included; redis-benchmark is on the kernel of the other host unless both are on one",
            "a message is one send(2) and comes back as one send(2); a datagram is one too, and those count that a recvfrom(2) has returned",
            "requests over many connections: each has one request on its way; 64 bytes there and back, clients on the kernel of the other host",
        ],
    )
}

const ROWS: &str = "
redis GET, 50 connections, same host, both inline, against loopback | requests/s ↑     | redis-host-kernel | redis-host-inline   | rate
redis GET, 50 connections, same host, --loopback, against loopback  | requests/s ↑     | redis-host-kernel | redis-host-loopback | rate
redis GET, 50 connections, server inline                            | requests/CPU s ↑ | redis-kernel      | redis-inline        | each
  the rate itself                                                   | requests/s ↑     | redis-kernel      | redis-inline        | rate
64-byte messages, one connection, 64 on their way, inline both ends | messages/s ↑     | messages-kernel   | messages-inline     | rate
  the same, server inline, client kernel                            | messages/s ↑     | messages-kernel   | messages-server     | rate
64-byte datagrams, one way, inline both ends, AF_XDP generic        | received/s ↑     | datagrams-kernel  | datagrams-inline    | rate
  to a multicast group                                              | received/s ↑     | multicast-kernel  | multicast-inline    | rate
requests over 100 connections, server inline                        | requests/s ↑     | many-kernel       | many-inline         | few
  over 10,000 connections                                           | requests/s ↑     | many-kernel       | many-inline         | many
  server's processor time for one of 10,000                         | µs ↓             | many-kernel       | many-inline         | cost
  that over the time for one of 100                                 | × ↓              | many-kernel       | many-inline         | growth
requests over 100 connections, server on an engine process          | requests/s ↑     | many-kernel       | many-engine         | few
  over 10,000 connections                                           | requests/s ↑     | many-kernel       | many-engine         | many
  the first over the second                                         | × ↓              | many-kernel       | many-engine         | slower
";

const REDIS: &str = "
redis-kernel        | redis on the kernel          |           | kernel   | kernel
redis-inline        | redis inline                 |           | inline   | kernel
redis-host-kernel   | redis, kernel loopback       | same host | kernel
redis-host-inline   | redis, one host, inline      | same host | inline
redis-host-loopback | redis, loopback on an engine | same host | loopback
";
const MESSAGES: &str = "
messages-kernel | messages, kernel           | | kernel
messages-inline | messages, inline both ends | | inline
messages-server | messages, server inline    | | inline | kernel
";
/// With the flags of both ends.
const DATAGRAMS: &str = "
datagrams-kernel | datagrams, kernel           |                   | kernel
datagrams-inline | datagrams, inline both ends |                   | xdp
multicast-kernel | multicast, kernel           | --group=239.7.7.8 | kernel
multicast-inline | multicast, inline both ends | --group=239.7.7.8 | xdp
";
const CONNECTIONS: &str = "
many-kernel | many connections, server on the kernel | | kernel
many-inline | many connections, server inline        | | inline
many-engine | many connections, server on an engine  | | engine
";

fn redis(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let [server, client] = setup.ends();
    let client_on = if setup.what == "same host" {
        On::A
    } else {
        On::B
    };
    let _engines = testbed.engines([(On::A, server), (client_on, client)])?;
    let placement = testbed.placement(On::A, server)?;
    let address = placement.address.to_string();
    let bind = ["redis-server", "--bind", &address];
    let line = [&bind[..], &["--save", "", "--protected-mode", "no"]].concat();
    let mut server = testbed.serve_answering(placement, REDIS_PORT, &line)?;
    let requests = (testbed.scale.seconds * REDIS_REQUESTS).round();
    let line = format!("redis-benchmark -h {address} -t get -c 50 -n {requests} --csv");
    let line: Vec<&str> = line.split(' ').collect();
    let before = server.cpu_seconds()?;
    let finished = testbed.run(testbed.placement(client_on, client)?, &line)?;
    let cpu = server.cpu_seconds()? - before;
    server.check_alive()?;
    Ok(vec![
        ("each", requests / cpu),
        ("rate", requests_per_second(&finished.stdout, "GET")?),
    ])
}

fn messages(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let [server, client] = setup.ends();
    let placement = testbed.placement(On::A, server)?;
    let address = placement.at(ECHO_PORT).to_string();
    let line = [LOAD, "echo", "--listen", &address];
    let mut server = testbed.serve(placement, "listening", &line)?;
    let seconds = format!("--seconds={}", testbed.scale.seconds);
    let line = [
        LOAD,
        "ping",
        "--connect",
        &address,
        "--depth",
        DEPTH,
        &seconds,
    ];
    let outcome: ping::Outcome = testbed.ask(testbed.placement(On::B, client)?, &line)?;
    server.check_alive()?;
    let messages = outcome.messages as f64;
    Ok(vec![("rate", messages / outcome.seconds)])
}

fn datagrams(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let [stack, _] = setup.ends();
    let group = setup.what.split_ascii_whitespace();
    let placement = testbed.placement(On::A, stack)?;
    let address = placement.at(ECHO_PORT).to_string();
    let mut count = vec![LOAD, "count", "--address", &address];
    count.extend(group.clone());
    let mut server = testbed.serve(placement, "listening", &count)?;
    let placement = testbed.placement(On::B, stack)?;
    let milliseconds = format!("--milliseconds={:.0}", testbed.scale.seconds * 1e3);
    let from = format!("--from={}", placement.address);
    let mut pour = vec![LOAD, "pour", "--address", &address, &from, &milliseconds];
    pour.extend(group);
    let poured: Poured = testbed.ask(placement, &pour)?;
    server.check_alive()?;
    Ok(vec![("rate", poured.counted_per_s)])
}

fn many(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let mut server = Asked::start(testbed, setup, 0)?;
    let few = server.by(FEW)?;
    let many = server.by(MANY)?;
    let growth = many.server.processor_ns / few.server.processor_ns;
    Ok(vec![
        ("few", few.rate_per_s),
        ("many", many.rate_per_s),
        ("cost", many.server.processor_ns / 1e3),
        ("growth", growth),
        ("slower", few.rate_per_s / many.rate_per_s),
    ])
}
