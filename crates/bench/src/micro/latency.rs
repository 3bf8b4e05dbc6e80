//! `shunt bench latency`: a 64-byte round trip over TCP, and over UDP, one at a time.
//!
//! Where both sides spin, the small echo of `shunt load` is measured: the server of sockperf, told not to
//! wait, asks for new connections between any two messages. Where the kernel's side sleeps it is sockperf as
//! it is.

use anyhow::bail;
use load::ping;

use super::{
    samples::Values,
    setup::{Idle, Plan, Setup},
    testbed::{LOAD, On, Stack, Testbed},
};
use crate::apps::sockperf::{check_faults, percentile_us};

const PORT: u16 = 11111;

pub fn plan() -> Plan {
    let mut setups = Setup::all(SETUPS, round_trips);
    let mut sockperf = Setup::all(SOCKPERF, sockperf);
    for setup in &mut sockperf {
        setup.tools = &["sockperf"];
        if setup.what.contains("idle") {
            setup.idle = Idle::Untouched;
        }
    }
    setups.append(&mut sockperf);
    Plan::of(
        ROWS,
        setups,
        &[
            "a whole round trip; both ends of the kernel's side run on the kernel",
            "spinning: recv(2) that does not wait, again and again; inline: recv(2) that waits, --spin-us auto",
        ],
    )
}

const ROWS: &str = "
inline both ends (AF_PACKET), kernel spinning, p50            | µs ↓ | kernel-spin   | inline        | p50 p99 p99.9
inline both ends (AF_XDP generic), kernel spinning, p50       | µs ↓ | kernel-spin   | inline-xdp    | p50 p99 p99.9
UDP, inline both ends (AF_XDP generic), kernel spinning, p50  | µs ↓ | udp-spin      | udp-xdp       | p50 p99 p99.9
sockperf inline, kernel sleeping, idle latency untouched, p50 | µs ↓ | sleep         | sleep-inline  | p50 p99 p99.9
sockperf inline, kernel sleeping, idle latency held at 0, p50 | µs ↓ | held          | held-inline   | p50 p99 p99.9
server inline, client kernel spinning, p50                    | µs ↓ | kernel-spin   | server-inline | p50 p99 p99.9
same host, both inline, loopback spinning, p50                | µs ↓ | loopback-spin | same-inline   | p50 p99 p99.9
same host, two programs on one engine, loopback spinning, p50 | µs ↓ | loopback-spin | same-engine   | p50 p99 p99.9
sockperf, same host, both inline, against loopback, p50       | µs ↓ | host-sleep    | host-inline   | p50 p99 p99.9
sockperf, same host, --loopback, against loopback, p50        | µs ↓ | host-sleep    | host-loopback | p50 p99 p99.9
";

const SETUPS: &str = "
kernel-spin   | kernel, both spin             | tcp       | kernel
inline        | inline both ends              | tcp       | inline
inline-xdp    | inline both ends, AF_XDP      | tcp       | xdp
server-inline | server inline, client kernel  | tcp       | inline | kernel
udp-spin      | kernel, UDP, both spin        | udp       | kernel
udp-xdp       | UDP, inline both ends, AF_XDP | udp       | xdp
loopback-spin | kernel loopback, both spin    | same host | kernel
same-inline   | same host, both inline        | same host | inline
same-engine   | same host, one engine         | same host | engine
";

const SOCKPERF: &str = "
sleep         | sockperf, kernel, both sleep            | idle      | kernel
sleep-inline  | sockperf, inline                        | idle      | inline
held          | sockperf, kernel, both sleep, idle held |           | kernel
held-inline   | sockperf, inline, idle held             |           | inline
host-sleep    | sockperf, kernel loopback               | same host | kernel
host-inline   | sockperf, one host, inline              | same host | inline
host-loopback | sockperf, loopback on an engine         | same host | loopback
";

/// Where the client is. Two engines inside find each other on one host, and their frames meet no interface.
fn client_on(setup: &Setup) -> On {
    match setup.what {
        "same host" => On::A,
        _ => On::B,
    }
}

/// Echo and ping. On the kernel they spin by themselves, inline the engine does for them.
fn round_trips(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let ([server, client], client_on) = (setup.ends(), client_on(setup));
    let _engines = testbed.engines([(On::A, server), (client_on, client)])?;
    let flags = |stack: Stack| {
        let udp = (setup.what == "udp").then_some("--udp");
        udp.into_iter()
            .chain((stack == Stack::Kernel).then_some("--spin"))
    };
    let placement = testbed.placement(On::A, server)?;
    let address = placement.at(PORT).to_string();
    let mut line = vec![LOAD, "echo", "--listen", &address];
    line.extend(flags(server));
    let mut server = testbed.serve(placement, "listening", &line)?;
    let seconds = testbed.scale.seconds.to_string();
    let mut line = vec![LOAD, "ping", "--connect", &address, "--seconds", &seconds];
    line.extend(flags(client));
    let outcome: ping::Outcome = testbed.ask(testbed.placement(client_on, client)?, &line)?;
    server.check_alive()?;
    let Some(latency) = outcome.latency else {
        bail!("no round trip was made");
    };
    Ok(vec![
        ("p50", latency.p50_us),
        ("p99", latency.p99_us),
        ("p99.9", latency.p999_us),
    ])
}

/// sockperf as it is. Above 600,000 round trips a second it ends with an error.
fn sockperf(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let ([stack, _], client_on) = (setup.ends(), client_on(setup));
    let _engines = testbed.engines([(On::A, stack)])?;
    let placement = testbed.placement(On::A, stack)?;
    let to = format!("--tcp -i {} -p {PORT}", placement.address);
    let line = format!("sockperf server {to}");
    let mut server = testbed.serve_answering(placement, PORT, &words(&line))?;
    // It counts whole seconds.
    let seconds = testbed.scale.seconds.ceil();
    let line = format!("sockperf ping-pong {to} --full-rtt -m 64 -t {seconds} --mps 500000");
    let client = testbed.placement(client_on, stack)?;
    let text = testbed.run(client, &words(&line))?.stdout;
    server.check_alive()?;
    check_faults(&text)?;
    Ok(vec![
        ("p50", percentile_us(&text, "50.000")?),
        ("p99", percentile_us(&text, "99.000")?),
        ("p99.9", percentile_us(&text, "99.900")?),
    ])
}

fn words(line: &str) -> Vec<&str> {
    line.split_ascii_whitespace().collect()
}
