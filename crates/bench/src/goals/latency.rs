//! `shunt bench latency`: a 64-byte round trip over TCP, one at a time.
//!
//! Where both sides spin, the small echo of `shunt probe` is measured: the server of sockperf, told not to
//! wait, asks for new connections between any two messages. Where the kernel's side sleeps it is sockperf as
//! it is.

use anyhow::bail;

use super::{
    bed::{Bed, On, PROBE, Stack},
    row::{Goal, Row, from},
    samples::Values,
    setup::{Idle, Plan, Setup},
};
use crate::{
    apps::{
        case::Better,
        sockperf::{faults, percentile_us},
    },
    probe::ping,
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

const SETUPS: [Setup; 11] = [
    probe("kernel-spin", "kernel, both spin", |bed| {
        echo(bed, Stack::Kernel, Stack::Kernel)
    }),
    probe("inline", "inline both ends", |bed| {
        echo(bed, PACKET, PACKET)
    }),
    probe("inline-xdp", "inline both ends, AF_XDP", |bed| {
        echo(bed, XDP, XDP)
    }),
    probe("server-inline", "server inline, client kernel", |bed| {
        echo(bed, PACKET, Stack::Kernel)
    }),
    probe("loopback", "kernel loopback, both spin", |bed| {
        same_host(bed, Stack::Kernel)
    }),
    probe("same-inline", "same host, both inline", |bed| {
        same_host(bed, PACKET)
    }),
    probe("same-engine", "same host, one engine", |bed| {
        same_host(bed, Stack::Engine)
    }),
    sockperf(
        "sleep",
        "sockperf, kernel, both sleep",
        Idle::Untouched,
        |bed| ping_pong(bed, Stack::Kernel),
    ),
    sockperf("sleep-inline", "sockperf, inline", Idle::Untouched, |bed| {
        ping_pong(bed, PACKET)
    }),
    sockperf(
        "held",
        "sockperf, kernel, both sleep, idle held",
        Idle::Held,
        |bed| ping_pong(bed, Stack::Kernel),
    ),
    sockperf(
        "held-inline",
        "sockperf, inline, idle held",
        Idle::Held,
        |bed| ping_pong(bed, PACKET),
    ),
];

const fn probe(
    key: &'static str,
    title: &'static str,
    measure: fn(&Bed) -> anyhow::Result<Values>,
) -> Setup {
    Setup {
        key,
        title,
        idle: Idle::Held,
        tools: &[],
        measure,
    }
}

const fn sockperf(
    key: &'static str,
    title: &'static str,
    idle: Idle,
    measure: fn(&Bed) -> anyhow::Result<Values>,
) -> Setup {
    Setup {
        key,
        title,
        idle,
        tools: &["sockperf"],
        measure,
    }
}

/// Three rows: the median, and two of the tail, whose goal is the kernel's.
struct Comparison {
    titles: [&'static str; 3],
    kernel: &'static str,
    shunt: &'static str,
    goal: Option<f64>,
}

const COMPARISONS: [Comparison; 7] = [
    Comparison {
        titles: [
            "inline both ends (AF_PACKET), kernel spinning, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "kernel-spin",
        shunt: "inline",
        goal: Some(0.50),
    },
    Comparison {
        titles: [
            "inline both ends (AF_XDP generic), kernel spinning, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "kernel-spin",
        shunt: "inline-xdp",
        goal: Some(0.40),
    },
    Comparison {
        titles: [
            "sockperf inline, kernel sleeping, idle latency untouched, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "sleep",
        shunt: "sleep-inline",
        goal: Some(0.08),
    },
    Comparison {
        titles: [
            "sockperf inline, kernel sleeping, idle latency held at 0, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "held",
        shunt: "held-inline",
        goal: None,
    },
    Comparison {
        titles: [
            "server inline, client kernel spinning, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "kernel-spin",
        shunt: "server-inline",
        goal: Some(0.90),
    },
    Comparison {
        titles: [
            "same host, both inline, loopback spinning, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "loopback",
        shunt: "same-inline",
        goal: Some(0.05),
    },
    Comparison {
        titles: [
            "same host, two programs on one engine, loopback spinning, p50",
            "  p99",
            "  p99.9",
        ],
        kernel: "loopback",
        shunt: "same-engine",
        goal: None,
    },
];

impl Comparison {
    fn rows(&self) -> impl Iterator<Item = Row> {
        let no_worse = self.goal.map(|_| 1.0);
        let goals = [self.goal, None, no_worse];
        let quantities = ["p50", "p99", "p99.9"];
        let parts = self.titles.into_iter().zip(quantities).zip(goals);
        let (kernel, shunt) = (self.kernel, self.shunt);
        parts.map(move |((what, quantity), goal)| Row {
            what,
            unit: "µs",
            better: Better::Lower,
            kernel: Some(from(kernel, quantity)),
            shunt: from(shunt, quantity),
            goal: goal.map(Goal::RatioAtMost),
        })
    }
}

/// Echo and ping on two hosts. On the kernel they spin by themselves, inline the engine does for them.
fn echo(bed: &Bed, server: Stack, client: Stack) -> anyhow::Result<Values> {
    let server = (On::A, server);
    let client = (On::B, client);
    round_trips(bed, server, client)
}

/// The same on one host: two engines inside find each other there, and their frames meet no interface.
fn same_host(bed: &Bed, stack: Stack) -> anyhow::Result<Values> {
    let _engine = match stack {
        Stack::Engine => Some(bed.start_engine(On::A, &[])?),
        _ => None,
    };
    round_trips(bed, (On::A, stack), (On::A, stack))
}

fn round_trips(
    bed: &Bed,
    (server_on, server_stack): (On, Stack),
    (client_on, client_stack): (On, Stack),
) -> anyhow::Result<Values> {
    let spins = |stack: Stack| stack == Stack::Kernel;
    let seat = bed.seat(server_on, server_stack)?;
    let address = seat.at(PORT).to_string();
    let mut line = vec![PROBE, "echo", "--listen", &address];
    if spins(server_stack) {
        line.push("--spin");
    }
    let mut server = bed.serve(seat, "listening", &line)?;
    let seconds = bed.scale().seconds.to_string();
    let mut line = vec![PROBE, "ping", "--connect", &address, "--seconds", &seconds];
    if spins(client_stack) {
        line.push("--spin");
    }
    let outcome: ping::Outcome = bed.ask(bed.seat(client_on, client_stack)?, &line)?;
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

/// sockperf on two hosts, as it is.
fn ping_pong(bed: &Bed, stack: Stack) -> anyhow::Result<Values> {
    let seat = bed.seat(On::A, stack)?;
    let (ip, port) = (seat.address.to_string(), PORT.to_string());
    let line = ["sockperf", "server", "--tcp", "-i", &ip, "-p", &port];
    let mut server = bed.serve_answering(seat, PORT, &line)?;
    // It counts whole seconds.
    let seconds = bed.scale().seconds.ceil().to_string();
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
    ];
    let text = bed.run(bed.seat(On::B, stack)?, &line)?.stdout;
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
