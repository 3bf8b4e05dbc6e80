//! What a request costs a server on each stack: a server that computes so long per request that it must be
//! the bottleneck, so that the time per answer less the computation is the stack's.

use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::param::clock_ticks_per_second;
use sim::plan::{Costs, Source, Value};

use super::value;
use crate::{
    bench::statistics::Summary,
    trial::{Bed, Say, Server, Stack, Work, load::Seen},
};

/// What was seen of a stack, batch by batch.
#[derive(Debug, Default)]
pub struct Found {
    host_ns: Vec<f64>,
    together_saves_ns: Vec<f64>,
    packet_ns: Vec<f64>,
    latency_ns: Vec<f64>,
    device_ns: Vec<f64>,
    client_ns: Vec<f64>,
}

/// Connections of a server that shall never sleep.
const CONNECTIONS: usize = 32;
/// Time of one batch.
const BATCH: Duration = Duration::from_millis(600);
/// Computation that makes the server the bottleneck.
const COMPUTE_NS: u64 = 15_000;
/// How much shorter where server and clients share a processor.
const CROWDED_SHORTER: u64 = 6;
const SMALL: Work = Work {
    request_bytes: 64,
    response_bytes: 64,
    compute_ns: COMPUTE_NS,
    together: false,
};
const TOGETHER: Work = Work {
    together: true,
    ..SMALL
};
/// Twelve packets of a lab's ordinary cable.
const LARGE: Work = Work {
    response_bytes: 16 << 10,
    compute_ns: 4 * COMPUTE_NS,
    ..SMALL
};
const MORE_PACKETS: f64 = 11.0;
const LONE: Work = Work {
    compute_ns: 0,
    ..SMALL
};
/// A client this busy is the bottleneck itself.
const CLIENT_BUSY: f64 = 0.97;

impl Found {
    /// The client's processor time per small request.
    pub fn client_ns(&self) -> anyhow::Result<f64> {
        Ok(Summary::of(&self.client_ns).context("no batch")?.median)
    }
}

/// The work as it is asked of a stack. Beside an engine server and clients share a processor, so that their
/// sum is the bottleneck with any computation; a short one lets them take as many requests at a time as real
/// programs do.
fn asked_of(stack: Stack, work: Work) -> Work {
    let shorter = match stack {
        Stack::Engine => CROWDED_SHORTER,
        Stack::Kernel | Stack::Inline | Stack::AfXdp => 1,
    };
    Work {
        compute_ns: work.compute_ns / shorter,
        ..work
    }
}

/// Measures one stack.
pub fn measure(
    bed: &Bed,
    stack: Stack,
    batches: u8,
    byte_ns: f64,
    say: &Say,
) -> anyhow::Result<Found> {
    let mut found = Found::default();
    let [small, together, large] = [SMALL, TOGETHER, LARGE].map(|work| asked_of(stack, work));
    say.say(&format!("{stack}: small answers"));
    let server = bed.serve(stack, small)?;
    for _ in 0..batches {
        let seen = bed.ask(&server, small, CONNECTIONS, BATCH)?;
        found.host_ns.push(stack_ns(stack, small, &seen)?);
        found.client_ns.push(seen.client_ns);
    }
    let small_ns = Summary::of(&found.host_ns).context("no batch")?.median;
    drop(server);
    say.say(&format!("{stack}: small answers, written together"));
    let server = bed.serve(stack, together)?;
    for _ in 0..batches {
        let seen = bed.ask(&server, together, CONNECTIONS, BATCH)?;
        let saves = small_ns - stack_ns(stack, together, &seen)?;
        found.together_saves_ns.push(saves.max(0.0));
    }
    drop(server);
    say.say(&format!("{stack}: large answers"));
    let server = bed.serve(stack, large)?;
    for _ in 0..batches {
        let seen = bed.ask(&server, large, CONNECTIONS, BATCH)?;
        let bytes = (large.response_bytes - small.response_bytes) as f64;
        let more = stack_ns(stack, large, &seen)? - small_ns - bytes * byte_ns;
        found.packet_ns.push((more / MORE_PACKETS).max(0.0));
    }
    drop(server);
    if stack == Stack::Engine {
        say.say("engine: its own processor time");
        let server = bed.serve_beside_sleeper(LONE)?;
        for _ in 0..batches {
            found.device_ns.extend(device_ns(bed, &server)?);
        }
    }
    say.say(&format!("{stack}: one request at a time"));
    let server = bed.serve(stack, LONE)?;
    for _ in 0..batches {
        if let Some(device_ns) = found.device_ns.get_mut(0) {
            // What it has kept up with it can do: its own time has its waking in it, which is none here.
            let busy = bed.ask(&server, LONE, CONNECTIONS, BATCH)?;
            *device_ns = device_ns.min(1e9 / busy.rate_per_s);
            found.device_ns.rotate_left(1);
        }
        let seen = bed.ask(&server, LONE, 1, BATCH)?;
        let device_ns = found.device_ns.last().copied().unwrap_or(0.0);
        let work_ns = small_ns + found.client_ns()? + device_ns;
        found
            .latency_ns
            .push((seen.mean_us * 1e3 - work_ns).max(0.0));
    }
    Ok(found)
}

/// The host's time for the stack: what an answer takes less what is known of it.
fn stack_ns(stack: Stack, work: Work, seen: &Seen) -> anyhow::Result<f64> {
    let answer_ns = 1e9 / seen.rate_per_s;
    let client_ns = match stack {
        // Server and clients share a processor.
        Stack::Engine => seen.client_ns,
        Stack::Kernel | Stack::Inline | Stack::AfXdp => {
            ensure!(
                seen.client_ns < CLIENT_BUSY * answer_ns,
                "{stack}: the clients were the bottleneck ({:.0} of {answer_ns:.0} ns)",
                seen.client_ns
            );
            0.0
        }
    };
    Ok((answer_ns - work.compute_ns as f64 - client_ns).max(0.0))
}

/// Processor time of the engine per request, where one runs beside the program.
fn device_ns(bed: &Bed, server: &Server) -> anyhow::Result<Option<f64>> {
    let Some(pid) = server.engine_pid() else {
        return Ok(None);
    };
    let before = crate::observe::processor_s(pid);
    let seen = bed.ask(server, LONE, CONNECTIONS, 2 * BATCH)?;
    let used_s = crate::observe::processor_s(pid) - before;
    let requests = seen.rate_per_s * (2 * BATCH).as_secs_f64();
    ensure!(
        used_s > 2.0 / clock_ticks_per_second() as f64,
        "the engine's processor time cannot be read"
    );
    Ok(Some(used_s * 1e9 / requests))
}

/// Puts what was found into a stack's costs.
pub fn apply(
    costs: &mut Costs,
    stack: Stack,
    found: &Found,
    byte_ns: &Value,
) -> anyhow::Result<()> {
    let driver = match stack {
        Stack::Kernel => "the kernel over veth",
        Stack::Inline => "engine inside the server, AF_PACKET over veth",
        Stack::AfXdp => "engine inside the server, AF_XDP over veth",
        Stack::Engine => "engine on a processor of its own, AF_PACKET over veth",
    };
    let packet = value(
        &found.packet_ns,
        &format!("{driver}: 16 KiB answers less 64 B ones, per packet"),
    )?;
    let small = Summary::of(&found.host_ns).context("no batch")?.median;
    let bytes = (SMALL.request_bytes + SMALL.response_bytes) as f64;
    // One packet each way is in the measurement.
    let calls = (small - 2.0 * packet.value - bytes * byte_ns.value).max(0.0);
    let both = costs.receive_ns.value + costs.send_ns.value;
    let receive_share = if both > 0.0 {
        costs.receive_ns.value / both
    } else {
        0.5
    };
    for (name, share, what) in [
        ("receive_ns", receive_share, "receive"),
        ("send_ns", 1.0 - receive_share, "send"),
    ] {
        let how = format!(
            "{driver}: time of a 64 B answer of a busy server; divided into receive and send as before"
        );
        let mut of_it = value(&found.host_ns, &format!("{what}, {how}"))?;
        of_it.value = (calls * share).round();
        costs.set(name, of_it);
    }
    costs.set("packet_ns", packet);
    costs.set(
        "together_saves_ns",
        value(
            &found.together_saves_ns,
            &format!("{driver}: 64 B answers written one by one less those written at the end of a wake-up"),
        )?,
    );
    if stack != Stack::Kernel {
        let how = format!("one copy each way, as the kernel's: {}", byte_ns.how);
        costs.set(
            "byte_ns",
            Value {
                how,
                ..byte_ns.clone()
            },
        );
    }
    costs.set(
        "latency_ns",
        value(
            &found.latency_ns,
            &format!("{driver}: a lone 64 B round trip less its work"),
        )?,
    );
    if !found.device_ns.is_empty() {
        let how = format!(
            "{driver}: at most; its processor time per request, waking included, or the time between answers \
             that it kept up with"
        );
        let mut device = value(&found.device_ns, &how)?;
        device.source = Source::Measured;
        costs.set("device_ns", device);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sim::plan::Preset;

    use super::*;

    fn seen(rate_per_s: f64, client_ns: f64) -> Seen {
        Seen {
            rate_per_s,
            mean_us: 100.0,
            p50_us: 100.0,
            p99_us: 100.0,
            client_ns,
        }
    }

    #[test]
    fn the_stack_is_what_an_answer_takes_beside_the_computation() {
        // 50,000 answers a second take 20 µs each, 15 of them computation.
        let kernel = stack_ns(Stack::Kernel, SMALL, &seen(50_000.0, 4000.0)).unwrap();
        assert!((kernel - 5000.0).abs() < 1e-6);
        // Beside an engine the clients' time is in it too.
        let engine = stack_ns(Stack::Engine, SMALL, &seen(50_000.0, 4000.0)).unwrap();
        assert!((engine - 1000.0).abs() < 1e-6);
        let error = stack_ns(Stack::Kernel, SMALL, &seen(50_000.0, 19_900.0)).unwrap_err();
        assert!(error.to_string().contains("bottleneck"));
    }

    #[test]
    fn what_was_found_adds_up_to_the_measurement_again() {
        let mut costs = Preset::shipped().stacks["inline"].clone();
        let found = Found {
            host_ns: vec![5000.0, 5200.0, 4900.0],
            together_saves_ns: vec![700.0; 3],
            packet_ns: vec![800.0; 3],
            latency_ns: vec![9000.0; 3],
            client_ns: vec![4000.0; 3],
            device_ns: Vec::new(),
        };
        let byte_ns = costs.byte_ns.clone();
        apply(&mut costs, Stack::Inline, &found, &byte_ns).unwrap();
        let sum = costs.receive_ns.value
            + costs.send_ns.value
            + 2.0 * costs.packet_ns.value
            + 128.0 * byte_ns.value;
        assert!((sum - 5000.0).abs() < 2.0, "{sum}");
        assert_eq!(costs.send_ns.source, Source::Measured);
        assert_eq!(costs.latency_ns.unwrap().value, 9000.0);
    }
}
