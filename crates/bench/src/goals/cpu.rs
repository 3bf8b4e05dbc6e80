//! `shunt bench cpu`: what a program pays for its calls when an engine does the work, and what an engine costs
//! that has none.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use super::{
    bed::{Bed, On, PROBE, Seat, Stack, cpu_seconds},
    row::{Goal, Row, from},
    samples::Values,
    setup::{Idle, Plan, Setup},
};
use crate::{
    apps::case::Better,
    probe::{Latency, calls},
};

const PORT: u16 = 11113;
/// Nobody listens there.
const CLOSED_PORT: u16 = 9;
/// What the papers' −71 % leaves.
const CALL_GOAL: f64 = 0.29;
/// What a call on a socket may cost that stays on the kernel under the library.
const LEFT_GOAL: f64 = 1.03;

/// What is measured.
pub fn plan() -> Plan {
    let call = |what, kernel, shunt, most| Row {
        what,
        unit: "ns",
        better: Better::Lower,
        kernel: Some(from(kernel, "each")),
        shunt: from(shunt, "each"),
        goal: Some(Goal::RatioAtMost(most)),
    };
    let wake = |what, kernel, shunt, most_us| Row {
        what,
        unit: "µs",
        better: Better::Lower,
        kernel: Some(from(kernel, "p50")),
        shunt: from(shunt, "p50"),
        goal: Some(Goal::ValueAtMost(most_us)),
    };
    Plan {
        setups: SETUPS.to_vec(),
        rows: vec![
            call(
                "program's CPU per send(2) of 1 KiB, engine",
                "send-kernel",
                "send-engine",
                CALL_GOAL,
            ),
            call(
                "program's CPU per recv(2) of 1 KiB, engine",
                "recv-kernel",
                "recv-engine",
                CALL_GOAL,
            ),
            call(
                "program's CPU per send(2) of 1 KiB, left to the kernel",
                "send-plain",
                "send-left",
                LEFT_GOAL,
            ),
            call(
                "program's CPU per recv(2) of 1 KiB, left to the kernel",
                "recv-plain",
                "recv-left",
                LEFT_GOAL,
            ),
            Row {
                what: "idle engine with a program that listens",
                unit: "% of a core",
                better: Better::Lower,
                kernel: None,
                shunt: from("idle", "percent"),
                goal: Some(Goal::ValueAtMost(1.0)),
            },
            wake(
                "idle engine answers, idle latency untouched",
                "wake-kernel",
                "wake-engine",
                60.0,
            ),
            wake(
                "idle engine answers, idle latency held at 0",
                "wake-kernel-held",
                "wake-engine-held",
                15.0,
            ),
        ],
        notes: vec![
            "calls: the peer, on the kernel of the other host, takes or sends without end; processor time of the program, not of the engine",
            "left to the kernel: the peer is on loopback; with the library the program is on an engine too, which does not carry loopback",
            "an answer: a datagram to a closed port and the refusal, which no program has part in; who asks spins, the median counts",
        ],
    }
}

const SETUPS: [Setup; 13] = [
    setup("send-kernel", "send(2), kernel", Idle::Held, |bed| {
        calls(bed, Stack::Kernel, "send")
    }),
    setup("send-engine", "send(2), engine", Idle::Held, |bed| {
        let _engine = bed.start_engine(On::B, &[])?;
        calls(bed, Stack::Engine, "send")
    }),
    setup("recv-kernel", "recv(2), kernel", Idle::Held, |bed| {
        calls(bed, Stack::Kernel, "recv")
    }),
    setup("recv-engine", "recv(2), engine", Idle::Held, |bed| {
        let _engine = bed.start_engine(On::B, &[])?;
        calls(bed, Stack::Engine, "recv")
    }),
    setup("send-plain", "send(2), loopback", Idle::Held, |bed| {
        left(bed, Stack::Kernel, "send")
    }),
    setup(
        "send-left",
        "send(2), loopback, library",
        Idle::Held,
        |bed| {
            let _engine = bed.start_engine(On::B, &[])?;
            left(bed, Stack::Left, "send")
        },
    ),
    setup("recv-plain", "recv(2), loopback", Idle::Held, |bed| {
        left(bed, Stack::Kernel, "recv")
    }),
    setup(
        "recv-left",
        "recv(2), loopback, library",
        Idle::Held,
        |bed| {
            let _engine = bed.start_engine(On::B, &[])?;
            left(bed, Stack::Left, "recv")
        },
    ),
    setup("idle", "an idle engine", Idle::Untouched, idle),
    setup(
        "wake-kernel",
        "an idle kernel answers",
        Idle::Untouched,
        |bed| wake(bed, Stack::Kernel),
    ),
    setup(
        "wake-engine",
        "an idle engine answers",
        Idle::Untouched,
        |bed| {
            let _engine = bed.start_engine(On::A, &[])?;
            wake(bed, Stack::Engine)
        },
    ),
    setup(
        "wake-kernel-held",
        "an idle kernel answers, idle held",
        Idle::Held,
        |bed| wake(bed, Stack::Kernel),
    ),
    setup(
        "wake-engine-held",
        "an idle engine answers, idle held",
        Idle::Held,
        |bed| {
            let _engine = bed.start_engine(On::A, &[])?;
            wake(bed, Stack::Engine)
        },
    ),
];

const fn setup(
    key: &'static str,
    title: &'static str,
    idle: Idle,
    measure: fn(&Bed) -> anyhow::Result<Values>,
) -> Setup {
    Setup {
        key,
        title,
        idle,
        tools: &[],
        measure,
    }
}

fn calls(bed: &Bed, stack: Stack, call: &str) -> anyhow::Result<Values> {
    between(
        bed,
        bed.seat(On::A, Stack::Kernel)?,
        bed.seat(On::B, stack)?,
        call,
    )
}

fn left(bed: &Bed, stack: Stack, call: &str) -> anyhow::Result<Values> {
    let seat = |stack| -> anyhow::Result<Seat> {
        Ok(bed.seat(On::B, stack)?.reached_at(Ipv4Addr::LOCALHOST))
    };
    between(bed, seat(Stack::Kernel)?, seat(stack)?, call)
}

fn between(bed: &Bed, peer: Seat, caller: Seat, call: &str) -> anyhow::Result<Values> {
    let address = peer.at(PORT).to_string();
    let line = [PROBE, "stream", "--listen", &address, "--peer", call];
    let mut server = bed.serve(peer, "listening", &line)?;
    let seconds = bed.scale().seconds.to_string();
    let line = [
        PROBE,
        "calls",
        "--connect",
        &address,
        "--call",
        call,
        "--seconds",
        &seconds,
    ];
    let outcome: calls::Outcome = bed.ask(caller, &line)?;
    server.check_alive()?;
    // A run has no more than 2^53 calls.
    #[allow(clippy::cast_precision_loss)]
    let count = outcome.calls as f64;
    Ok(vec![("each", outcome.cpu_seconds * 1e9 / count)])
}

/// An engine and one program that waits for its first connection.
fn idle(bed: &Bed) -> anyhow::Result<Values> {
    /// What starting takes is over.
    const SETTLED: Duration = Duration::from_millis(300);
    let engine = bed.start_engine(On::A, &[])?;
    let seat = bed.seat(On::A, Stack::Engine)?;
    let address = seat.at(PORT).to_string();
    let line = [PROBE, "echo", "--listen", &address];
    let mut server = bed.serve(seat, "listening", &line)?;
    std::thread::sleep(SETTLED);
    let (begun, before) = (Instant::now(), cpu_seconds(&engine)?);
    std::thread::sleep(Duration::from_secs_f64(bed.scale().seconds));
    let used = cpu_seconds(&engine)? - before;
    server.check_alive()?;
    Ok(vec![(
        "percent",
        used / begun.elapsed().as_secs_f64() * 100.0,
    )])
}

fn wake(bed: &Bed, stack: Stack) -> anyhow::Result<Values> {
    let to = bed.seat(On::A, stack)?.at(CLOSED_PORT).to_string();
    let line = [PROBE, "wake", "--to", &to];
    let latency: Latency = bed.ask(bed.seat(On::B, Stack::Kernel)?, &line)?;
    Ok(vec![("p50", latency.p50_us), ("p99", latency.p99_us)])
}
