//! What a request costs a server and its clients on each stack. They are seen with few and with many connections,
//! with a server that computes and one that does not, with small, larger and large answers, so that what a
//! request, a wake-up, several packets and a byte cost can be told apart (`fit`).

use std::time::Duration;

use anyhow::{Context, ensure};
use load::{
    requests::Seen,
    trial::{
        Say, Server, Stack, Testbed, Work,
        quiet::{Wanted, in_turns},
    },
};
use rustix::param::clock_ticks_per_second;
use sim::plan::{Client, Costs, Source, Value};

use super::{
    fit::{Fit, Sample, fit},
    trials::seen_on_the_usual,
    value,
    works::{BATCH, CHECKS, CONNECTIONS, MANY, SMALL, WORKS, asked_of, bytes, of_several_packets},
};
use crate::control::{self, Control, on_the_usual};
use statistics::Summary;

/// Processor time is counted in hundredths of a second.
const DEVICE_BATCH: Duration = Duration::from_secs(1);
/// Somebody who works for this part of the time is taken not to wait.
const BUSY: f64 = 0.93;

/// What was seen of a stack.
#[derive(Debug)]
pub struct Found {
    /// What was asked, over how many connections, and what was seen: what the costs are fitted to.
    pub seen: Vec<(Work, usize, Seen)>,
    /// The same of [`CHECKS`].
    pub checks: Vec<(Work, usize, Seen)>,
    device_ns: Vec<f64>,
}

/// What a stack costs: the server's part and its clients'.
#[derive(Debug)]
pub struct Fitted {
    server: Fit<7>,
    client: Fit<5>,
    latency_ns: Vec<f64>,
    device_ns: Vec<f64>,
}

pub fn measure(
    testbed: &Testbed,
    control: &Control,
    stack: Stack,
    batches: u8,
    say: &Say,
) -> anyhow::Result<Found> {
    let each = |works: &[Work]| -> anyhow::Result<_> {
        let mut seen = Vec::new();
        for work in works {
            let work = asked_of(stack, *work);
            seen.extend(trials((testbed, control), (stack, work), batches, say)?);
        }
        Ok(seen)
    };
    let (seen, checks) = (each(&WORKS)?, each(&CHECKS)?);
    let mut device_ns = Vec::new();
    if stack == Stack::Engine {
        say.say("engine: its own processor time");
        let server = testbed.serve_beside_sleeper(SMALL)?;
        for _ in 0..batches {
            let (ns, speed) = control.beside(testbed, || device(testbed, &server))?;
            device_ns.extend(ns.map(|ns| on_the_usual(ns, 0.0, speed.ratio())));
        }
        let server = testbed.serve(stack, SMALL)?;
        let seen = testbed.ask(&server, SMALL, MANY, BATCH)?;
        // What it has kept up with it can do: its own time has its waking in it, which is none here.
        for ns in &mut device_ns {
            *ns = ns.min(1e9 / seen.rate_per_s);
        }
    }
    Ok(Found {
        seen,
        checks,
        device_ns,
    })
}

/// What is seen of one work, with each number of connections, as it would be on the usual machine.
fn trials(
    (testbed, control): (&Testbed, &Control),
    (stack, work): (Stack, Work),
    batches: u8,
    say: &Say,
) -> anyhow::Result<Vec<(Work, usize, Seen)>> {
    say.say(&format!(
        "{stack}: answers of {} bytes, {} µs of computation{}",
        work.response_bytes,
        work.compute_ns / 1000,
        if work.together {
            ", written together"
        } else {
            ""
        }
    ));
    let server = testbed.serve(stack, work)?;
    let wanted = CONNECTIONS.map(|_| Wanted::exactly(usize::from(batches)));
    let found = in_turns(&wanted, |index| {
        let connections = CONNECTIONS[index];
        let ask = || testbed.ask(&server, work, connections, BATCH);
        let run = || testbed.with_others(&server, ask);
        let ((seen, others), speed) = control.beside(testbed, run)?;
        Ok(((seen, speed.ratio()), control::disturbance(others, speed)))
    })?;
    let runs = || found.iter().flat_map(|found| &found.runs);
    let ratios: Vec<f64> = runs().map(|(_, ratio)| *ratio).collect();
    let ratio = Summary::of(&ratios).context("no trial")?.median;
    let each = CONNECTIONS.into_iter().zip(&found);
    each.map(|(connections, found)| {
        let seen = middle(found.runs.iter().map(|(seen, _)| *seen).collect())?;
        Ok((work, connections, seen_on_the_usual(&seen, work, ratio)))
    })
    .collect()
}

/// The batch with the middle rate.
fn middle(mut batches: Vec<Seen>) -> anyhow::Result<Seen> {
    batches.sort_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
    let middle = batches.len() / 2;
    batches.get(middle).copied().context("no batch")
}

/// Processor time of the engine per request, where one runs beside the program.
fn device(testbed: &Testbed, server: &Server) -> anyhow::Result<Option<f64>> {
    let Some(pid) = server.engine_pid() else {
        return Ok(None);
    };
    let before = observe::processor_s(pid);
    let seen = testbed.ask(server, SMALL, MANY, DEVICE_BATCH)?;
    let used_s = observe::processor_s(pid) - before;
    let requests = seen.rate_per_s * DEVICE_BATCH.as_secs_f64();
    ensure!(
        used_s > 2.0 / clock_ticks_per_second() as f64,
        "the engine's processor time cannot be read"
    );
    Ok(Some(used_s * 1e9 / requests))
}

/// Whether a server's processor time is work: one that waits awake must have had no time to wait.
fn is_work(stack: Stack, seen: &Seen) -> bool {
    let answer_ns = 1e9 / seen.rate_per_s;
    match stack {
        Stack::Kernel | Stack::Engine => true,
        Stack::Inline | Stack::AfXdp => {
            seen.client.processor_ns < BUSY * answer_ns
                && seen.server.processor_ns > BUSY * answer_ns
        }
    }
}

/// Tells the costs apart.
pub fn fitted(stack: Stack, found: &Found) -> anyhow::Result<Fitted> {
    let server: Vec<Sample<7>> = found
        .seen
        .iter()
        // With one or two connections somebody always waits.
        .filter(|(_, connections, seen)| {
            is_work(stack, seen) && (*connections > 2 || !waits_awake(stack))
        })
        .map(|(work, _, seen)| Sample {
            counts: [
                1.0,
                seen.server.turns,
                server_sleeps(stack, seen),
                seen.client.sleeps,
                if work.together { 0.0 } else { 1.0 },
                bytes(*work),
                of_several_packets(*work),
            ],
            took_ns: seen.server.processor_ns - work.compute_ns as f64,
        })
        .collect();
    let client: Vec<Sample<5>> = found
        .seen
        .iter()
        .map(|(work, _, seen)| Sample {
            counts: [
                1.0,
                seen.client.turns,
                seen.client.sleeps,
                server_sleeps(stack, seen),
                bytes(*work),
            ],
            took_ns: seen.client.processor_ns,
        })
        .collect();
    let too_few = || format!("{stack}: too few of the trials can be used; is the machine busy?");
    let mut fitted = Fitted {
        server: fit(&server).with_context(too_few)?,
        client: fit(&client).with_context(too_few)?,
        latency_ns: Vec::new(),
        device_ns: found.device_ns.clone(),
    };
    fitted.latency_ns = found
        .seen
        .iter()
        .filter(|(_, connections, _)| *connections == 1)
        .map(|(work, _, seen)| seen.mean_us * 1e3 - fitted.alone_ns(*work))
        .map(|ns| ns.max(0.0))
        .collect();
    Ok(fitted)
}

/// A server that waits awake sleeps by accident only, too rarely for its sleeps to have a price.
fn server_sleeps(stack: Stack, seen: &Seen) -> f64 {
    match waits_awake(stack) {
        true => 0.0,
        false => seen.server.sleeps,
    }
}

fn waits_awake(stack: Stack) -> bool {
    matches!(stack, Stack::Inline | Stack::AfXdp)
}

impl Fitted {
    /// All work of an exchange when there is only one.
    fn alone_ns(&self, work: Work) -> f64 {
        let [request, turn, sleep, rouse_client, apart, byte, several] = self.server.costs_ns;
        let server =
            request + turn + sleep + rouse_client + if work.together { 0.0 } else { apart };
        let [
            client_request,
            client_turn,
            client_sleep,
            rouse_server,
            client_byte,
        ] = self.client.costs_ns;
        let client = client_request + client_turn + client_sleep + rouse_server;
        let device_ns = Summary::of(&self.device_ns).map_or(0.0, |summary| summary.median);
        server
            + client
            + (byte + client_byte) * bytes(work)
            + several * of_several_packets(work)
            + work.compute_ns as f64
            + device_ns
    }

    /// What clients of this stack cost.
    pub fn client(&self) -> Client {
        let [request_ns, turn_ns, sleep_ns, _, byte_ns] = self.client.costs_ns;
        Client {
            request_ns,
            byte_ns,
            turn_ns,
            sleep_ns,
            rouse_ns: self.server.costs_ns[3],
            ..Client::default()
        }
    }

    /// Puts what was found into a stack's costs.
    pub fn apply(&self, stack: Stack, costs: &mut Costs) -> anyhow::Result<()> {
        let driver = match stack {
            Stack::Kernel => "the kernel over veth",
            Stack::Inline => "engine inside the server, AF_PACKET over veth",
            Stack::AfXdp => "engine inside the server, AF_XDP over veth",
            Stack::Engine => "engine on a processor of its own, AF_PACKET over veth",
        };
        let measured =
            |value: f64, what: &str| fitted_value(driver, value, what, self.server.left_over);
        let [request, turn, sleep, _, apart, byte, several] = self.server.costs_ns;
        // What answers cost that are written one by one is in sending.
        let both = costs.receive_ns.value + costs.send_ns.value;
        let receive_share = if both > 0.0 {
            costs.receive_ns.value / both
        } else {
            0.5
        };
        let request = request + apart;
        let divided = "divided into receive and send as before";
        for (name, value, what) in [
            (
                "receive_ns",
                request * receive_share,
                format!("a request, {divided}"),
            ),
            (
                "send_ns",
                request * (1.0 - receive_share),
                format!("a request, {divided}"),
            ),
            // A frame here is as long as the message: what is more than one of an ordinary size goes by the byte.
            ("packet_ns", 0.0, "no more for a packet".to_owned()),
            (
                "several_packets_ns",
                several,
                "more for a message of several packets".to_owned(),
            ),
            ("byte_ns", byte, "each byte".to_owned()),
            (
                "turn_ns",
                turn,
                "each time that it comes back from waiting".to_owned(),
            ),
            ("sleep_ns", sleep, "more where it had slept".to_owned()),
            (
                "together_saves_ns",
                apart,
                "answers written one by one less those of a turn".to_owned(),
            ),
        ] {
            costs.set(name, measured(value, &what));
        }
        self.apply_to_clients(driver, costs);
        let alone = format!("{driver}: a lone round trip less its work");
        costs.set("latency_ns", value(&self.latency_ns, &alone)?);
        if !self.device_ns.is_empty() {
            let how = format!(
                "{driver}: at most; its processor time per request, waking included, or the time between answers \
                 that it kept up with"
            );
            costs.set("device_ns", value(&self.device_ns, &how)?);
        }
        Ok(())
    }

    /// The same for the clients'.
    fn apply_to_clients(&self, driver: &str, costs: &mut Costs) {
        let client = self.client();
        for (name, value, what) in [
            (
                "rouse_ns",
                self.client.costs_ns[3],
                "what it costs a client to wake it",
            ),
            (
                "client_ns",
                client.request_ns,
                "a client's request with its answer",
            ),
            ("client_byte_ns", client.byte_ns, "each byte of a client"),
            (
                "client_turn_ns",
                client.turn_ns,
                "each time that a client comes back from waiting",
            ),
            (
                "client_sleep_ns",
                client.sleep_ns,
                "more where a client had slept",
            ),
        ] {
            let value = fitted_value(driver, value, what, self.client.left_over);
            costs.set(name, value);
        }
        let what = "what it costs the server to wake a client";
        let rouse = fitted_value(driver, client.rouse_ns, what, self.server.left_over);
        costs.set("client_rouse_ns", rouse);
    }
}

fn fitted_value(driver: &str, value: f64, what: &str, left_over: f64) -> Value {
    Value {
        value: (value * 1000.0).round() / 1000.0,
        source: Source::Measured,
        how: format!(
            "{driver}: {what}; least squares over servers with {CONNECTIONS:?} connections, {:.0} % left over",
            100.0 * left_over
        ),
        spread: None,
    }
}

#[cfg(test)]
mod tests {
    use sim::plan::{Preset, Workload, closed};

    use super::*;
    use load::requests::Each;

    /// A stack on which a request takes 4000 ns, 500 more where it is written alone, a wake-up 1000, to wake the client
    /// 700, a byte half a nanosecond and a message of several packets 900.
    fn seen(work: Work, connections: usize) -> Seen {
        let turns = 1.0 / connections as f64;
        let apart = if work.together { 0.0 } else { 500.0 };
        let client_sleeps = if work.compute_ns > 0 { 0.9 } else { 0.1 };
        let server_ns = 4000.0
            + apart
            + 1000.0 * turns
            + 700.0 * client_sleeps
            + 0.5 * bytes(work)
            + 900.0 * of_several_packets(work)
            + work.compute_ns as f64;
        let client_turns = 0.5 + 0.5 * client_sleeps;
        Seen {
            rate_per_s: 1e9 / server_ns,
            mean_us: (server_ns + 9000.0) / 1e3,
            p50_us: 0.0,
            p99_us: 0.0,
            client_ns: 0.0,
            client: Each {
                turns: client_turns,
                sleeps: client_sleeps,
                processor_ns: 2000.0 + 800.0 * client_turns + 0.1 * bytes(work),
            },
            server: Each {
                turns,
                sleeps: 0.0,
                processor_ns: server_ns,
            },
        }
    }

    fn found() -> Found {
        let each = |work: Work| CONNECTIONS.map(|n| (work, n, seen(work, n)));
        Found {
            seen: WORKS.into_iter().flat_map(each).collect(),
            checks: Vec::new(),
            device_ns: Vec::new(),
        }
    }

    #[test]
    fn what_a_request_a_wake_up_a_byte_and_several_packets_cost_is_told_apart() {
        for stack in [Stack::Kernel, Stack::Inline] {
            let fitted = fitted(stack, &found()).unwrap();
            assert!(fitted.server.left_over < 0.02, "{fitted:?}");
            let mut costs = Preset::shipped().stacks[stack.name()].clone();
            fitted.apply(stack, &mut costs).unwrap();
            let near = |value: f64, wanted: f64| {
                assert!(
                    (value / wanted - 1.0).abs() < 0.1,
                    "{value} {wanted} {fitted:?}"
                );
            };
            near(costs.turn_ns.as_ref().unwrap().value, 1000.0);
            near(fitted.client().rouse_ns, 700.0);
            let written = costs.client().unwrap();
            assert!((written.request_ns - fitted.client().request_ns).abs() < 0.01);
            near(written.rouse_ns, 700.0);
            near(costs.byte_ns.value, 0.5);
            near(costs.several_packets_ns.as_ref().unwrap().value, 900.0);
            // And together they are what was seen: a request of 64 bytes, answered by 64.
            let w = Workload {
                request_bytes: 64.0,
                response_bytes: 64.0,
                wake_share: 0.0,
                ..Workload::default()
            };
            near(closed(&w, &costs).stack_ns, 4564.0);
            assert_eq!(costs.send_ns.source, Source::Measured);
        }
    }

    #[test]
    fn the_rare_sleeps_of_a_server_that_waits_awake_have_no_price() {
        let mut found = found();
        for (n, (_, _, seen)) in found.seen.iter_mut().enumerate() {
            seen.server.sleeps = 0.001 * (n % 3) as f64;
            seen.client.processor_ns += 50.0 * (n % 3) as f64;
        }
        let mut costs = Preset::shipped().stacks["inline"].clone();
        let fitted = fitted(Stack::Inline, &found).unwrap();
        fitted.apply(Stack::Inline, &mut costs).unwrap();
        assert_eq!(costs.rouse_ns.unwrap().value, 0.0);
        assert_eq!(costs.sleep_ns.unwrap().value, 0.0);
    }

    #[test]
    fn a_server_that_may_have_waited_awake_tells_nothing_of_its_work() {
        let mut idle = seen(SMALL, 8);
        assert!(is_work(Stack::Inline, &idle));
        idle.rate_per_s /= 2.0;
        assert!(!is_work(Stack::Inline, &idle) && is_work(Stack::Kernel, &idle));
    }
}
