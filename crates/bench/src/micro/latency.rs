//! `shunt bench latency`: a 64-byte round trip over TCP, and over UDP, one at a time.
//!
//! Where both sides spin, the small echo of `shunt load` is measured: the server of sockperf, told not to
//! wait, asks for new connections between any two messages. Where the kernel's side sleeps it is sockperf as
//! it is.

use anyhow::bail;
use load::ping;

use super::{
    row::{Row, from},
    samples::Values,
    setup::{Idle, Plan, Setup},
    testbed::{LOAD, On, Stack, Testbed},
};
use crate::apps::{
    case::Better,
    sockperf::{faults, percentile_us},
};

const PORT: u16 = 11111;
const PACKET: Stack = Stack::Inline("af_packet");
const XDP: Stack = Stack::Inline("af_xdp");

/// What is measured.
pub fn plan() -> Plan {
    let mut rows = Vec::new();
    for comparison in COMPARISONS {
        rows.extend(comparison.rows());
    }
    Plan {
        setups: SETUPS.to_vec(),
        rows,
        notes: vec![
            "a whole round trip; both ends of the kernel's side run on the kernel",
            "spinning: recv(2) that does not wait, again and again; inline: recv(2) that waits, --spin-us auto",
        ],
    }
}

const SETUPS: [Setup; 16] = [
    Setup::new("kernel-spin", "kernel, both spin", |testbed| {
        echo(testbed, Stack::Kernel, Stack::Kernel)
    }),
    Setup::new("inline", "inline both ends", |testbed| {
        echo(testbed, PACKET, PACKET)
    }),
    Setup::new("inline-xdp", "inline both ends, AF_XDP", |testbed| {
        echo(testbed, XDP, XDP)
    }),
    Setup::new("server-inline", "server inline, client kernel", |testbed| {
        echo(testbed, PACKET, Stack::Kernel)
    }),
    Setup::new("udp-spin", "kernel, UDP, both spin", |testbed| {
        datagrams(testbed, Stack::Kernel)
    }),
    Setup::new("udp-xdp", "UDP, inline both ends, AF_XDP", |testbed| {
        datagrams(testbed, XDP)
    }),
    Setup::new("loopback-spin", "kernel loopback, both spin", |testbed| {
        same_host(testbed, Stack::Kernel)
    }),
    Setup::new("same-inline", "same host, both inline", |testbed| {
        same_host(testbed, PACKET)
    }),
    Setup::new("same-engine", "same host, one engine", |testbed| {
        same_host(testbed, Stack::Engine)
    }),
    sockperf(
        "sleep",
        "sockperf, kernel, both sleep",
        Idle::Untouched,
        |testbed| ping_pong(testbed, Stack::Kernel),
    ),
    sockperf(
        "sleep-inline",
        "sockperf, inline",
        Idle::Untouched,
        |testbed| ping_pong(testbed, PACKET),
    ),
    sockperf(
        "held",
        "sockperf, kernel, both sleep, idle held",
        Idle::Held,
        |testbed| ping_pong(testbed, Stack::Kernel),
    ),
    sockperf(
        "held-inline",
        "sockperf, inline, idle held",
        Idle::Held,
        |testbed| ping_pong(testbed, PACKET),
    ),
    sockperf(
        "host-sleep",
        "sockperf, kernel loopback",
        Idle::Held,
        |testbed| ping_pong_on_one_host(testbed, Stack::Kernel),
    ),
    sockperf(
        "host-inline",
        "sockperf, one host, inline",
        Idle::Held,
        |testbed| ping_pong_on_one_host(testbed, PACKET),
    ),
    sockperf(
        "host-loopback",
        "sockperf, loopback on an engine",
        Idle::Held,
        |testbed| {
            let _engine = testbed.start_engine(On::A, &[])?;
            ping_pong_on_one_host(testbed, Stack::Loopback)
        },
    ),
];

const fn sockperf(
    key: &'static str,
    title: &'static str,
    idle: Idle,
    measure: fn(&Testbed) -> anyhow::Result<Values>,
) -> Setup {
    Setup {
        idle,
        tools: &["sockperf"],
        ..Setup::new(key, title, measure)
    }
}

/// Three rows: the median, and two of the tail.
struct Comparison {
    titles: [&'static str; 3],
    kernel: &'static str,
    shunt: &'static str,
}

const COMPARISONS: [Comparison; 10] = [
    Comparison {
        titles: [
            "inline both ends (AF_PACKET), kernel spinning, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "kernel-spin",
        shunt: "inline",
    },
    Comparison {
        titles: [
            "inline both ends (AF_XDP generic), kernel spinning, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "kernel-spin",
        shunt: "inline-xdp",
    },
    Comparison {
        titles: [
            "UDP, inline both ends (AF_XDP generic), kernel spinning, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "udp-spin",
        shunt: "udp-xdp",
    },
    Comparison {
        titles: [
            "sockperf inline, kernel sleeping, idle latency untouched, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "sleep",
        shunt: "sleep-inline",
    },
    Comparison {
        titles: [
            "sockperf inline, kernel sleeping, idle latency held at 0, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "held",
        shunt: "held-inline",
    },
    Comparison {
        titles: [
            "server inline, client kernel spinning, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "kernel-spin",
        shunt: "server-inline",
    },
    Comparison {
        titles: [
            "same host, both inline, loopback spinning, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "loopback-spin",
        shunt: "same-inline",
    },
    Comparison {
        titles: [
            "same host, two programs on one engine, loopback spinning, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "loopback-spin",
        shunt: "same-engine",
    },
    Comparison {
        titles: [
            "sockperf, same host, both inline, against loopback, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "host-sleep",
        shunt: "host-inline",
    },
    Comparison {
        titles: [
            "sockperf, same host, --loopback, against loopback, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "host-sleep",
        shunt: "host-loopback",
    },
];

impl Comparison {
    fn rows(&self) -> impl Iterator<Item = Row> {
        let quantities = ["p50", "p99", "p99.9"];
        let parts = self.titles.into_iter().zip(quantities);
        let (kernel, shunt) = (self.kernel, self.shunt);
        parts.map(move |(what, quantity)| Row {
            what,
            unit: "µs",
            better: Better::Lower,
            kernel: Some(from(kernel, quantity)),
            shunt: from(shunt, quantity),
        })
    }
}

/// Echo and ping on two hosts. On the kernel they spin by themselves, inline the engine does for them.
fn echo(testbed: &Testbed, server: Stack, client: Stack) -> anyhow::Result<Values> {
    let server = (On::A, server);
    let client = (On::B, client);
    round_trips(testbed, server, client, &[])
}

/// The same by datagrams.
fn datagrams(testbed: &Testbed, stack: Stack) -> anyhow::Result<Values> {
    round_trips(testbed, (On::A, stack), (On::B, stack), &["--udp"])
}

/// The same on one host: two engines inside find each other there, and their frames meet no interface.
fn same_host(testbed: &Testbed, stack: Stack) -> anyhow::Result<Values> {
    let _engine = match stack {
        Stack::Engine => Some(testbed.start_engine(On::A, &[])?),
        _ => None,
    };
    round_trips(testbed, (On::A, stack), (On::A, stack), &[])
}

fn round_trips(
    testbed: &Testbed,
    (server_on, server_stack): (On, Stack),
    (client_on, client_stack): (On, Stack),
    both: &[&'static str],
) -> anyhow::Result<Values> {
    let spins = |stack: Stack| stack == Stack::Kernel;
    let placement = testbed.placement(server_on, server_stack)?;
    let address = placement.at(PORT).to_string();
    let mut line = vec![LOAD, "echo", "--listen", &address];
    line.extend(both);
    if spins(server_stack) {
        line.push("--spin");
    }
    let mut server = testbed.serve(placement, "listening", &line)?;
    let seconds = testbed.scale().seconds.to_string();
    let mut line = vec![LOAD, "ping", "--connect", &address, "--seconds", &seconds];
    line.extend(both);
    if spins(client_stack) {
        line.push("--spin");
    }
    let outcome: ping::Outcome = testbed.ask(testbed.placement(client_on, client_stack)?, &line)?;
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

/// Above 600,000 round trips a second sockperf ends with an error.
const MOST_A_SECOND: &str = "500000";

/// sockperf on two hosts, as it is.
fn ping_pong(testbed: &Testbed, stack: Stack) -> anyhow::Result<Values> {
    sockperf_with(testbed, stack, On::B)
}

/// The same on one host.
fn ping_pong_on_one_host(testbed: &Testbed, stack: Stack) -> anyhow::Result<Values> {
    sockperf_with(testbed, stack, On::A)
}

fn sockperf_with(testbed: &Testbed, stack: Stack, client_on: On) -> anyhow::Result<Values> {
    let placement = testbed.placement(On::A, stack)?;
    let (ip, port) = (placement.address.to_string(), PORT.to_string());
    let line = ["sockperf", "server", "--tcp", "-i", &ip, "-p", &port];
    let mut server = testbed.serve_answering(placement, PORT, &line)?;
    // It counts whole seconds.
    let seconds = testbed.scale().seconds.ceil().to_string();
    let line = [
        "sockperf",
        "ping-pong",
        "--tcp",
        "--full-rtt",
        "-i",
        &ip,
        "-p",
        &port,
        "-m",
        "64",
        "-t",
        &seconds,
        "--mps",
        MOST_A_SECOND,
    ];
    let text = testbed
        .run(testbed.placement(client_on, stack)?, &line)?
        .stdout;
    server.check_alive()?;
    match text.lines().find(|line| line.contains("dropped messages")) {
        Some(line) if faults(line) == 0 => {}
        Some(line) => bail!("{}", line.trim()),
        None => bail!("sockperf finished without a result: {text:?}"),
    }
    Ok(vec![
        ("p50", percentile_us(&text, "50.000")?),
        ("p99", percentile_us(&text, "99.000")?),
        ("p99.9", percentile_us(&text, "99.900")?),
    ])
}
