//! redis, an unmodified program: recorded on the kernel with a few clients, predicted for many and for the other
//! stacks, then measured with redis-benchmark.

use std::{ffi::OsString, path::PathBuf, thread, time::Duration};

use anyhow::Context;
use sim::plan::{Preset, Workload, closed};

use super::{Row, client_ratio, one_thread, predicted};
use crate::{
    bench::{interrupt::Interrupt, statistics::Summary},
    commands::sim::calibrate::Calibration,
    observe::observe,
    trial::{Bed, Say, Server, Stack},
};

const PORT: u16 = 6379;
/// Clients while redis is recorded, and how long.
const RECORDED_CLIENTS: usize = 8;
const RECORDING: Duration = Duration::from_secs(4);
/// Requests while it is recorded: more than fit into the recording.
const RECORDED_REQUESTS: usize = 1_000_000;
/// Clients of the comparison, and requests of a run.
const CLIENTS: [(usize, usize); 2] = [(1, 40_000), (50, 150_000)];
const RUNS: usize = 5;
/// No run takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Adds redis's rows; why there are none where it is not installed.
pub fn measure(
    bed: &Bed,
    stacks: &[Stack],
    calibration: &Calibration,
    interrupt: &Interrupt,
    say: &Say,
    rows: &mut Vec<Row>,
) -> anyhow::Result<Option<String>> {
    let (Some(server), Some(client)) = (find("redis-server"), find("redis-benchmark")) else {
        return Ok(Some(
            "redis-server and redis-benchmark are not in PATH".to_owned(),
        ));
    };
    say.say("redis on the kernel is recorded");
    let seen = record(bed, &server, &client, interrupt)?;
    for &stack in stacks {
        let ratio = client_ratio(&calibration.client_ns, stack);
        let workload = Workload {
            client_ns: seen.client_ns * ratio,
            ..seen.clone()
        };
        let preset = match stack {
            Stack::Kernel => as_seen(&calibration.preset, &workload),
            Stack::Inline | Stack::AfXdp | Stack::Engine => calibration.preset.clone(),
        };
        let running = start(bed, stack, &server)?;
        for (clients, requests) in CLIENTS {
            say.say(&format!("redis, {stack}, {clients} clients"));
            let (mut rates, mut means) = (Vec::new(), Vec::new());
            for _ in 0..RUNS {
                let (rate, mean_us) = benchmark(bed, &client, &running, clients, requests)?;
                rates.push(rate);
                means.push(mean_us);
            }
            rows.push(Row {
                workload: "redis GET",
                stack: stack.name(),
                predicted: predicted(&workload, &preset, stack, clients)?,
                rate_per_s: Summary::of(&rates).context("no run")?,
                mean_us: Summary::of(&means).context("no run")?,
                saturated: clients > 1,
            });
        }
    }
    Ok(None)
}

/// Watches redis on the kernel; in a lab everything else that works is its clients. That its event loop
/// writes all answers before it sleeps is known of redis, no counter shows it.
fn record(
    bed: &Bed,
    server: &PathBuf,
    client: &PathBuf,
    interrupt: &Interrupt,
) -> anyhow::Result<Workload> {
    let running = start(bed, Stack::Kernel, server)?;
    let observed = thread::scope(|scope| {
        let load =
            scope.spawn(|| benchmark(bed, client, &running, RECORDED_CLIENTS, RECORDED_REQUESTS));
        // The clients connect first.
        thread::sleep(RECORDING / 8);
        let observed = observe(running.pid(), RECORDING, interrupt);
        load.join().map(|_| observed)
    });
    let observed = observed.ok().context("invariant: the load ends")??;
    let seen = observed.workload().context("recording redis")?;
    let client_ns = observed.others_s / observed.exchanges * 1e9;
    Ok(Workload {
        request_bytes: seen.request_bytes,
        response_bytes: seen.response_bytes,
        application_ns: seen.application_ns,
        observed_stack_ns: seen.observed_stack_ns,
        client_ns,
        together: true,
        ..one_thread()
    })
}

/// The kernel's costs scaled to what was seen of redis on it.
fn as_seen(preset: &Preset, workload: &Workload) -> Preset {
    let mut preset = preset.clone();
    if let Some(kernel) = preset.stacks.get_mut(Stack::Kernel.name()) {
        let factor = workload.observed_stack_ns / closed(workload, kernel).stack_ns.max(1e-9);
        for name in [
            "receive_ns",
            "send_ns",
            "packet_ns",
            "byte_ns",
            "together_saves_ns",
        ] {
            if let Some(value) = kernel.value_mut(name) {
                value.value *= factor;
            }
        }
    }
    preset
}

fn start(bed: &Bed, stack: Stack, server: &PathBuf) -> anyhow::Result<Server> {
    bed.serve_program(stack, PORT, "redis-server", |address| {
        let mut words: Vec<OsString> = vec![server.into()];
        let host = address.ip().to_string();
        let rest = ["--bind", &host, "--save", "", "--protected-mode", "no"];
        words.extend(rest.map(OsString::from));
        words
    })
}

/// Requests per second, and by Little's law the mean time of an exchange in microseconds. The mean that
/// redis-benchmark prints starts when it writes: it leaves out what waits inside redis-benchmark.
fn benchmark(
    bed: &Bed,
    client: &PathBuf,
    server: &Server,
    clients: usize,
    requests: usize,
) -> anyhow::Result<(f64, f64)> {
    let mut words: Vec<OsString> = vec![client.into()];
    let host = server.address().ip().to_string();
    let (count, total) = (clients.to_string(), requests.to_string());
    let rest = [
        "-h", &host, "-t", "get", "--csv", "-c", &count, "-n", &total,
    ];
    words.extend(rest.map(OsString::from));
    let csv = bed.client("redis-benchmark", &words, PATIENCE)?;
    let rate = rate(&csv)?;
    Ok((rate, clients as f64 / rate * 1e6))
}

/// The first number of the last line: `"GET","98328.42","0.262",…`.
fn rate(csv: &str) -> anyhow::Result<f64> {
    let line = csv.lines().rev().find(|line| line.starts_with("\"GET\""));
    let line = line.with_context(|| format!("redis-benchmark reported no GET: {csv:?}"))?;
    let mut fields = line.split(',').map(|field| field.trim_matches('"'));
    let rate = fields.find_map(|field| field.parse::<f64>().ok());
    rate.filter(|rate| *rate > 0.0)
        .with_context(|| format!("redis-benchmark wrote {line:?}"))
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut folders = std::env::split_paths(&path);
    folders.find_map(|folder| Some(folder.join(program)).filter(|file| file.is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_the_line_of_the_test() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"98328.42\",\"0.262\",\"0.1\"\n";
        assert!((rate(csv).unwrap() - 98328.42).abs() < 1e-6);
        assert!(rate("\"SET\",\"1\",\"2\"").is_err());
        assert!(rate("\"GET\",\"0.0\"").is_err());
    }
}
