//! `shunt bench cpu`: what a program pays for its calls when an engine does the work, and what an engine costs
//! that has none.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use load::{Latency, calls};

use super::{
    row::{Row, from},
    samples::Values,
    setup::{Idle, Plan, Setup},
    testbed::{LOAD, On, Placement, Stack, Testbed, cpu_seconds},
};
use crate::apps::case::Better;

const PORT: u16 = 11113;
/// Nobody listens there.
const CLOSED_PORT: u16 = 9;
/// What is measured.
pub fn plan() -> Plan {
    let call = |what, kernel, shunt| Row {
        what,
        unit: "ns",
        better: Better::Lower,
        kernel: Some(from(kernel, "each")),
        shunt: from(shunt, "each"),
    };
    let wake = |what, kernel, shunt| Row {
        what,
        unit: "µs",
        better: Better::Lower,
        kernel: Some(from(kernel, "p50")),
        shunt: from(shunt, "p50"),
    };
    Plan {
        setups: SETUPS.to_vec(),
        rows: CALLS
            .into_iter()
            .map(|[what, kernel, shunt]| call(what, kernel, shunt))
            .chain([
                Row {
                    what: "idle engine with a program that listens",
                    unit: "% of a core",
                    better: Better::Lower,
                    kernel: None,
                    shunt: from("idle", "percent"),
                },
                wake(
                    "idle engine answers, idle latency untouched",
                    "wake-kernel",
                    "wake-engine",
                ),
                wake(
                    "idle engine answers, idle latency held at 0",
                    "wake-kernel-held",
                    "wake-engine-held",
                ),
            ])
            .collect(),
        notes: vec![
            "calls: the peer, on the kernel of the other host, takes or sends without end; processor time of the program, not of an engine beside it; inline the engine is in it",
            "left to the kernel: the peer is on loopback; with the library the program is on an engine too, which does not carry loopback",
            "an answer: a datagram to a closed port and the refusal, which no program has part in; who asks spins, the median counts",
        ],
    }
}

/// Calls, on the kernel and on the other side.
const CALLS: [[&str; 3]; 6] = [
    [
        "program's CPU per send(2) of 1 KiB, engine",
        "send-kernel",
        "send-engine",
    ],
    [
        "program's CPU per recv(2) of 1 KiB, engine",
        "recv-kernel",
        "recv-engine",
    ],
    [
        "program's CPU per send(2) of 1 KiB, inline",
        "send-kernel",
        "send-inline",
    ],
    [
        "program's CPU per recv(2) of 1 KiB, inline",
        "recv-kernel",
        "recv-inline",
    ],
    [
        "program's CPU per send(2) of 1 KiB, left to the kernel",
        "send-plain",
        "send-left",
    ],
    [
        "program's CPU per recv(2) of 1 KiB, left to the kernel",
        "recv-plain",
        "recv-left",
    ],
];

const SETUPS: [Setup; 15] = [
    setup("send-kernel", "send(2), kernel", Idle::Held, |testbed| {
        calls(testbed, Stack::Kernel, "send")
    }),
    setup("send-engine", "send(2), engine", Idle::Held, |testbed| {
        let _engine = testbed.start_engine(On::B, &[])?;
        calls(testbed, Stack::Engine, "send")
    }),
    setup("recv-kernel", "recv(2), kernel", Idle::Held, |testbed| {
        calls(testbed, Stack::Kernel, "recv")
    }),
    setup("recv-engine", "recv(2), engine", Idle::Held, |testbed| {
        let _engine = testbed.start_engine(On::B, &[])?;
        calls(testbed, Stack::Engine, "recv")
    }),
    setup("send-inline", "send(2), inline", Idle::Held, |testbed| {
        calls(testbed, Stack::Inline("af_packet"), "send")
    }),
    setup("recv-inline", "recv(2), inline", Idle::Held, |testbed| {
        calls(testbed, Stack::Inline("af_packet"), "recv")
    }),
    setup("send-plain", "send(2), loopback", Idle::Held, |testbed| {
        left(testbed, Stack::Kernel, "send")
    }),
    setup(
        "send-left",
        "send(2), loopback, library",
        Idle::Held,
        |testbed| {
            let _engine = testbed.start_engine(On::B, &[])?;
            left(testbed, Stack::Left, "send")
        },
    ),
    setup("recv-plain", "recv(2), loopback", Idle::Held, |testbed| {
        left(testbed, Stack::Kernel, "recv")
    }),
    setup(
        "recv-left",
        "recv(2), loopback, library",
        Idle::Held,
        |testbed| {
            let _engine = testbed.start_engine(On::B, &[])?;
            left(testbed, Stack::Left, "recv")
        },
    ),
    setup("idle", "an idle engine", Idle::Untouched, idle),
    setup(
        "wake-kernel",
        "an idle kernel answers",
        Idle::Untouched,
        |testbed| wake(testbed, Stack::Kernel),
    ),
    setup(
        "wake-engine",
        "an idle engine answers",
        Idle::Untouched,
        |testbed| {
            let _engine = testbed.start_engine(On::A, &[])?;
            wake(testbed, Stack::Engine)
        },
    ),
    setup(
        "wake-kernel-held",
        "an idle kernel answers, idle held",
        Idle::Held,
        |testbed| wake(testbed, Stack::Kernel),
    ),
    setup(
        "wake-engine-held",
        "an idle engine answers, idle held",
        Idle::Held,
        |testbed| {
            let _engine = testbed.start_engine(On::A, &[])?;
            wake(testbed, Stack::Engine)
        },
    ),
];

const fn setup(
    key: &'static str,
    title: &'static str,
    idle: Idle,
    measure: fn(&Testbed) -> anyhow::Result<Values>,
) -> Setup {
    Setup {
        idle,
        ..Setup::new(key, title, measure)
    }
}

fn calls(testbed: &Testbed, stack: Stack, call: &str) -> anyhow::Result<Values> {
    between(
        testbed,
        testbed.placement(On::A, Stack::Kernel)?,
        testbed.placement(On::B, stack)?,
        call,
    )
}

fn left(testbed: &Testbed, stack: Stack, call: &str) -> anyhow::Result<Values> {
    let placement = |stack| -> anyhow::Result<Placement> {
        Ok(testbed
            .placement(On::B, stack)?
            .reached_at(Ipv4Addr::LOCALHOST))
    };
    between(testbed, placement(Stack::Kernel)?, placement(stack)?, call)
}

fn between(
    testbed: &Testbed,
    peer: Placement,
    caller: Placement,
    call: &str,
) -> anyhow::Result<Values> {
    let address = peer.at(PORT).to_string();
    let line = [LOAD, "stream", "--listen", &address, "--peer", call];
    let mut server = testbed.serve(peer, "listening", &line)?;
    let seconds = testbed.scale().seconds.to_string();
    let line = [
        LOAD,
        "calls",
        "--connect",
        &address,
        "--call",
        call,
        "--seconds",
        &seconds,
    ];
    let outcome: calls::Outcome = testbed.ask(caller, &line)?;
    server.check_alive()?;
    // A run has no more than 2^53 calls.
    #[allow(clippy::cast_precision_loss)]
    let count = outcome.calls as f64;
    Ok(vec![("each", outcome.cpu_seconds * 1e9 / count)])
}

/// An engine and one program that waits for its first connection.
fn idle(testbed: &Testbed) -> anyhow::Result<Values> {
    /// What starting takes is over.
    const SETTLED: Duration = Duration::from_millis(300);
    let engine = testbed.start_engine(On::A, &[])?;
    let placement = testbed.placement(On::A, Stack::Engine)?;
    let address = placement.at(PORT).to_string();
    let line = [LOAD, "echo", "--listen", &address];
    let mut server = testbed.serve(placement, "listening", &line)?;
    std::thread::sleep(SETTLED);
    let (begun, before) = (Instant::now(), cpu_seconds(&engine)?);
    std::thread::sleep(Duration::from_secs_f64(testbed.scale().seconds));
    let used = cpu_seconds(&engine)? - before;
    server.check_alive()?;
    Ok(vec![(
        "percent",
        used / begun.elapsed().as_secs_f64() * 100.0,
    )])
}

fn wake(testbed: &Testbed, stack: Stack) -> anyhow::Result<Values> {
    let to = testbed.placement(On::A, stack)?.at(CLOSED_PORT).to_string();
    let line = [LOAD, "wake", "--to", &to];
    let latency: Latency = testbed.ask(testbed.placement(On::B, Stack::Kernel)?, &line)?;
    Ok(vec![("p50", latency.p50_us), ("p99", latency.p99_us)])
}
