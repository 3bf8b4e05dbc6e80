//! `shunt bench cpu`: what a program pays for its calls when an engine does the work, and what an engine costs
//! that has none.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use load::{Latency, calls, start};

use super::{
    driver,
    ends::whole_line,
    samples::Values,
    setup::{Idle, Plan, Setup},
    testbed::{LOAD, On, Stack, Testbed, cpu_seconds},
};

const PORT: u16 = 11113;
/// Nobody listens there.
const CLOSED_PORT: u16 = 9;

pub fn plan() -> Plan {
    let mut setups = Setup::all(SETUPS, measure);
    for setup in &mut setups {
        if ["idle", "wake-kernel", "wake-engine"].contains(&setup.key) {
            setup.idle = Idle::Untouched;
        }
    }
    Plan::of(
        ROWS,
        setups,
        &[
            "calls: the peer, on the kernel of the other host, takes or sends without end; processor time of the program, not of an engine beside it; inline the engine is in it",
            "left to the kernel: the peer is on loopback; with the library the program is on an engine too, which does not carry loopback",
            "start: median time from fork(2) to exit; what is over plain `true` is the difference of both",
            "an answer: a datagram to a closed port and the refusal, which no program has part in; who asks spins, the median counts. The kernel answers where the datagram is sent, without waking anybody; the last row is what waking a thread takes",
        ],
    )
}

const ROWS: &str = "
program's CPU per send(2) of 1 KiB, engine             | ns ↓          | send-kernel      | send-engine      | each
program's CPU per recv(2) of 1 KiB, engine             | ns ↓          | recv-kernel      | recv-engine      | each
program's CPU per send(2) of 1 KiB, inline             | ns ↓          | send-kernel      | send-inline      | each
program's CPU per recv(2) of 1 KiB, inline             | ns ↓          | recv-kernel      | recv-inline      | each
program's CPU per send(2) of 1 KiB, left to the kernel | ns ↓          | send-plain       | send-left        | each
program's CPU per recv(2) of 1 KiB, left to the kernel | ns ↓          | recv-plain       | recv-left        | each
`true` started by shunt run, an engine being there     | ms ↓          | start-kernel     | start-engine     | p50
`true` started by shunt run, to have an engine inside  | ms ↓          | start-kernel     | start-inline     | p50
idle engine with a program that listens                | % of a core ↓ | -                | idle             | percent
idle engine answers, idle latency untouched            | µs ↓          | wake-kernel      | wake-engine      | p50
idle engine answers, idle latency held at 0            | µs ↓          | wake-kernel-held | wake-engine-held | p50
the same, of frames that a sleeping thread sends back  | µs ↓          | wake-raw-held    | wake-engine-held | p50
";

const SETUPS: &str = "
send-kernel      | send(2), kernel                   | send | kernel
send-engine      | send(2), engine                   | send | engine
recv-kernel      | recv(2), kernel                   | recv | kernel
recv-engine      | recv(2), engine                   | recv | engine
send-inline      | send(2), inline                   | send | inline
recv-inline      | recv(2), inline                   | recv | inline
send-plain       | send(2), loopback                 | send, loopback | kernel
send-left        | send(2), loopback, library        | send, loopback | left
recv-plain       | recv(2), loopback                 | recv, loopback | kernel
recv-left        | recv(2), loopback, library        | recv, loopback | left
start-kernel     | true                              | start | kernel
start-engine     | true by shunt run, engine         | start | engine
start-inline     | true by shunt run, inline         | start | inline
idle             | an idle engine                    | idle | engine
wake-kernel      | an idle kernel answers            | wake | kernel
wake-engine      | an idle engine answers            | wake | engine
wake-kernel-held | an idle kernel answers, idle held | wake | kernel
wake-engine-held | an idle engine answers, idle held | wake | engine
wake-raw-held    | a sleeping thread sends frames back, idle held | wake-raw | kernel
";

fn measure(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let [stack, _] = setup.ends();
    match setup.what {
        "idle" => idle(testbed, stack),
        "wake" => wake(testbed, stack),
        "wake-raw" => wake_raw(testbed),
        "start" => starts(testbed, stack),
        call => calls(testbed, stack, call),
    }
}

/// The calls of a program of host b; its peer is the kernel of the other host, or over loopback that of its own.
fn calls(testbed: &Testbed, stack: Stack, what: &str) -> anyhow::Result<Values> {
    let _engines = testbed.engines([(On::B, stack)])?;
    let mut caller = testbed.placement(On::B, stack)?;
    let (call, peer) = match what.strip_suffix(", loopback") {
        Some(call) => {
            caller = caller.reached_at(Ipv4Addr::LOCALHOST);
            let peer = testbed.placement(On::B, Stack::Kernel)?;
            (call, peer.reached_at(Ipv4Addr::LOCALHOST))
        }
        None => (what, testbed.placement(On::A, Stack::Kernel)?),
    };
    let address = peer.at(PORT).to_string();
    let line = [LOAD, "stream", "--listen", &address, "--peer", call];
    let mut server = testbed.serve(peer, "listening", &line)?;
    let seconds = format!("--seconds={}", testbed.scale.seconds);
    let line = [
        LOAD,
        "calls",
        "--connect",
        &address,
        "--call",
        call,
        &seconds,
    ];
    let outcome: calls::Outcome = testbed.ask(caller, &line)?;
    server.check_alive()?;
    let count = outcome.calls as f64;
    Ok(vec![("each", outcome.cpu_seconds * 1e9 / count)])
}

/// An engine and one program that waits for its first connection.
fn idle(testbed: &Testbed, stack: Stack) -> anyhow::Result<Values> {
    /// What starting takes is over.
    const SETTLED: Duration = Duration::from_millis(300);
    let engine = testbed.start_engine(On::A, &[])?;
    let placement = testbed.placement(On::A, stack)?;
    let address = placement.at(PORT).to_string();
    let line = [LOAD, "echo", "--listen", &address];
    let mut server = testbed.serve(placement, "listening", &line)?;
    std::thread::sleep(SETTLED);
    let (begun, before) = (Instant::now(), cpu_seconds(&engine)?);
    std::thread::sleep(Duration::from_secs_f64(testbed.scale.seconds));
    let used = cpu_seconds(&engine)? - before;
    server.check_alive()?;
    let percent = used / begun.elapsed().as_secs_f64() * 100.0;
    Ok(vec![("percent", percent)])
}

fn wake(testbed: &Testbed, stack: Stack) -> anyhow::Result<Values> {
    let _engines = testbed.engines([(On::A, stack)])?;
    let to = testbed.placement(On::A, stack)?.at(CLOSED_PORT).to_string();
    let line = [LOAD, "wake", "--to", &to];
    let latency: Latency = testbed.ask(testbed.placement(On::B, Stack::Kernel)?, &line)?;
    Ok(vec![("p50", latency.p50_us), ("p99", latency.p99_us)])
}

/// What waking a thread costs without a stack: one that sleeps in poll(2) on a packet socket sends each frame back.
fn wake_raw(testbed: &Testbed) -> anyhow::Result<Values> {
    let (mut server, address) = driver::echo(testbed, &[])?;
    let flags = ["--interval", "10ms", "--count", "50"];
    let found = driver::ping(testbed, &address, &flags)?;
    server.check_alive()?;
    Ok(vec![("p50", found.median_us()?)])
}

/// A program that opens no socket, again and again.
fn starts(testbed: &Testbed, stack: Stack) -> anyhow::Result<Values> {
    let _engines = testbed.engines([(On::B, stack)])?;
    let line = whole_line(testbed.placement(On::B, stack)?, &["true"])?;
    let words: Option<Vec<&str>> = line.iter().map(|word| word.to_str()).collect();
    let words = words.context("the path of this binary is not UTF-8")?;
    let seconds = format!("--seconds={}", testbed.scale.seconds);
    let line = [&[LOAD, "start", &seconds, "--"], &words[..]].concat();
    let outcome: start::Outcome = testbed.ask(testbed.placement(On::B, Stack::Kernel)?, &line)?;
    Ok(vec![("p50", outcome.p50_ms)])
}
