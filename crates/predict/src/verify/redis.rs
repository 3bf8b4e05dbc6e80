//! redis, an unmodified program: recorded on the kernel with a few clients, predicted for many and for the other
//! stacks, then measured with redis-benchmark.

use std::{ffi::OsString, path::PathBuf, thread, time::Duration};

use anyhow::{Context, ensure};
use load::interrupt::Interrupt;
use load::trial::{Server, Stack, Testbed};
use observe::observe;
use sim::plan::{Preset, Workload};

use super::{Bench, Extra, Row, measured, predicted, unknown};
use crate::{calibrate::trials::one_thread, control::is_another};

const PORT: u16 = 6379;
/// Clients while redis is recorded, and how long.
const RECORDED_CLIENTS: usize = 8;
const RECORDING: Duration = Duration::from_secs(4);
/// So often at most, until the machine is as fast meanwhile as before.
const RECORDINGS: u32 = 5;
/// Requests while it is recorded: more than fit into the recording.
const RECORDED_REQUESTS: usize = 1_000_000;
/// What is asked of redis for the comparison.
const LOADS: [Load; 4] = [
    Load::of("redis GET", (1, 10_000)),
    Load::of("redis GET", (50, 30_000)),
    Load {
        flags: &["-P", "16"],
        not_known: Some(
            "16 requests at a time share packets and calls, and the calibration measures one at a time only",
        ),
        ..Load::of("redis GET, 16 at a time", (50, 200_000))
    },
    Load {
        flags: &["-k", "0"],
        not_known: Some(
            "each request makes a connection, and the calibration measures only connections that last",
        ),
        ..Load::of("redis GET, short connections", (50, 2_000))
    },
];
/// Why nothing is known of rows on another machine.
const ANOTHER: &str = "the machine has become another one since redis was recorded: so says a server on the kernel that was asked the same then and now";
/// Why nothing is known of rows where a recording contradicts the model.
const NOTHING_LEFT: &str = "nothing is left for redis itself of what was recorded: the model makes the kernel's part of it as much as all that was seen, or more";
/// Rounds after which a recording is told apart; it stands still after a few.
const ROUNDS: usize = 12;
/// No run takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run of redis-benchmark.
struct Load {
    workload: &'static str,
    clients: usize,
    requests: usize,
    flags: &'static [&'static str],
    not_known: Option<&'static str>,
}

impl Load {
    const fn of(workload: &'static str, (clients, requests): (usize, usize)) -> Self {
        Self {
            workload,
            clients,
            requests,
            flags: &[],
            not_known: None,
        }
    }
}

/// redis, where it is installed, and what of its work is its own once it was recorded.
pub(super) struct Redis<'a> {
    server: PathBuf,
    client: PathBuf,
    interrupt: &'a Interrupt,
    recorded: Option<Recorded>,
}

/// redis as it was seen on the kernel.
struct Recorded {
    workload: Workload,
    extra: Extra,
    /// What the usual machine was then ([`crate::control::Control::usual_per_s`]).
    usual_per_s: f64,
}

impl<'a> Redis<'a> {
    /// `None`: it is not installed.
    pub(super) fn find(
        testbed: &Testbed,
        interrupt: &'a Interrupt,
    ) -> anyhow::Result<Option<Self>> {
        let (Some(server), Some(client)) = (find("redis-server"), find("redis-benchmark")) else {
            return Ok(None);
        };
        // Connections of a request each would use up the client's ports, which TIME-WAIT holds for a minute: tcp(7).
        let reuse = ["sh", "-c", "echo 1 >/proc/sys/net/ipv4/tcp_tw_reuse"].map(OsString::from);
        testbed.client("sh", &reuse, PATIENCE)?;
        Ok(Some(Self {
            server,
            client,
            interrupt,
            recorded: None,
        }))
    }

    /// Adds its rows of a stack. It is recorded on the kernel, whose costs are known by then, before the first.
    pub(super) fn measure(
        &mut self,
        bench: &Bench<'_>,
        stack: Stack,
        rows: &mut Vec<Row>,
    ) -> anyhow::Result<()> {
        let Bench {
            testbed,
            preset,
            say,
            ..
        } = bench;
        let usual_per_s = bench.control.usual_per_s();
        let recorded = match &self.recorded {
            Some(recorded) => recorded,
            None => {
                say.say("redis on the kernel is recorded");
                let (workload, extra) = told_apart(self.recording(bench)?, preset)?;
                self.recorded.insert(Recorded {
                    workload,
                    extra,
                    usual_per_s,
                })
            }
        };
        let since = usual_per_s / recorded.usual_per_s;
        let running = start(testbed, stack, &self.server)?;
        say.say(&format!("redis, {stack}"));
        let mut predictions = Vec::new();
        for load in &LOADS {
            let why = load.not_known.map(str::to_owned);
            let why = why.or_else(|| is_another(since).then(|| ANOTHER.to_owned()));
            let is_nothing = recorded.workload.application_ns <= 0.0;
            let why = why.or_else(|| is_nothing.then(|| NOTHING_LEFT.to_owned()));
            let prediction = match why.or_else(|| unknown(preset, stack, load.clients)) {
                Some(why) => Err(why),
                None => Ok(predicted(
                    &on_the_usual_machine(recorded.workload.clone(), 1.0 / since),
                    preset,
                    Extra {
                        client_ns: recorded.extra.client_ns / since,
                    },
                    stack,
                    load.clients,
                )?),
            };
            predictions.push((load.clients, prediction));
        }
        let found = measured(bench, (&running, 0.0), predictions, |index| {
            benchmark(testbed, &self.client, &running, &LOADS[index])
        })?;
        for (load, (prediction, measured)) in LOADS.iter().zip(found) {
            let what = (load.workload, stack, load.clients);
            let row = Row::new(what, prediction, measured, load.clients > 1);
            bench.add(rows, row);
        }
        Ok(())
    }
}

impl Redis<'_> {
    /// What was recorded, as it is on the usual machine; of another one, if that was there beside each of several recordings.
    fn recording(&self, bench: &Bench<'_>) -> anyhow::Result<Workload> {
        let Bench {
            testbed, control, ..
        } = bench;
        let mut tries = 1;
        loop {
            let run = || {
                let before = control.now(testbed)?;
                let seen = record(testbed, &self.server, &self.client, self.interrupt)?;
                Ok((seen, f64::midpoint(before, control.now(testbed)?)))
            };
            let ((seen, ratio), speed) = control.beside(testbed, run)?;
            if !(speed.is_another() || is_another(ratio)) || tries == RECORDINGS {
                return Ok(on_the_usual_machine(seen, ratio));
            }
            tries += 1;
        }
    }
}

/// What a recording on a machine of that ratio took, on the usual one.
fn on_the_usual_machine(seen: Workload, ratio: f64) -> Workload {
    Workload {
        application_ns: seen.application_ns * ratio,
        observed_stack_ns: seen.observed_stack_ns * ratio,
        client_ns: seen.client_ns * ratio,
        ..seen
    }
}

/// Watches redis on the kernel, and its clients in their own network beside it. That redis's event loop writes all answers before it sleeps is known of
/// it, no counter shows it.
fn record(
    testbed: &Testbed,
    server: &PathBuf,
    client: &PathBuf,
    interrupt: &Interrupt,
) -> anyhow::Result<Workload> {
    let running = start(testbed, Stack::Kernel, server)?;
    let observed = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let load = Load::of("recorded", (RECORDED_CLIENTS, RECORDED_REQUESTS));
            benchmark(testbed, client, &running, &load)
        });
        // The clients connect first.
        thread::sleep(RECORDING / 8);
        let observed = observe(running.pid(), RECORDING, interrupt.flag());
        let load = load.join();
        let load = load.map_err(|_| anyhow::anyhow!("the load ended by a panic"))?;
        load.and(observed)
    })?;
    ensure!(
        observed.clients_s.is_some(),
        "redis's clients were not found while it was recorded"
    );
    let seen = observed.workload().context("recording redis")?;
    Ok(Workload {
        request_bytes: seen.request_bytes,
        response_bytes: seen.response_bytes,
        application_ns: seen.application_ns,
        observed_stack_ns: seen.observed_stack_ns,
        client_ns: seen.client_ns,
        together: true,
        ..one_thread()
    })
}

/// What of a recording is the program's and its clients' own: what is left when the model has taken the kernel's part
/// of it, which depends on how many requests come at a time and so on what is left.
fn told_apart(seen: Workload, preset: &Preset) -> anyhow::Result<(Workload, Extra)> {
    let server_ns = seen.application_ns + seen.observed_stack_ns;
    let client_ns = seen.client_ns;
    let mut workload = seen;
    let mut extra = Extra::default();
    for _ in 0..ROUNDS {
        let model = predicted(&workload, preset, extra, Stack::Kernel, RECORDED_CLIENTS)?;
        let work = model.work;
        let missing_ns = server_ns - work.application_ns - work.stack_ns;
        workload.application_ns = (workload.application_ns + missing_ns).max(0.0);
        extra.client_ns += client_ns - work.client_ns;
    }
    Ok((workload, extra))
}

fn start(testbed: &Testbed, stack: Stack, server: &PathBuf) -> anyhow::Result<Server> {
    testbed.serve_program(stack, PORT, "redis-server", |address| {
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
    testbed: &Testbed,
    client: &PathBuf,
    server: &Server,
    load: &Load,
) -> anyhow::Result<(f64, f64)> {
    let mut words: Vec<OsString> = vec![client.into()];
    let host = server.address().ip().to_string();
    let (count, total) = (load.clients.to_string(), load.requests.to_string());
    let rest = [
        "-h", &host, "-t", "get", "--csv", "-c", &count, "-n", &total,
    ];
    words.extend(rest.map(OsString::from));
    words.extend(load.flags.iter().map(OsString::from));
    let csv = testbed.client("redis-benchmark", &words, PATIENCE)?;
    let rate = rate(&csv)?;
    Ok((rate, load.clients as f64 / rate * 1e6))
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
    fn what_a_recording_leaves_for_the_program_is_told_apart_and_nothing_where_the_kernel_took_more()
     {
        let preset = Preset::shipped();
        let seen = |server_ns: f64| Workload {
            observed_stack_ns: server_ns,
            client_ns: 9000.0,
            together: true,
            ..one_thread()
        };
        let (workload, _) = told_apart(seen(40_000.0), &preset).unwrap();
        assert!(workload.application_ns > 1000.0, "{workload:?}");
        let (workload, _) = told_apart(seen(1000.0), &preset).unwrap();
        assert_eq!(workload.application_ns, 0.0);
    }

    #[test]
    fn the_rate_is_read_from_the_line_of_the_test() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"98328.42\",\"0.262\",\"0.1\"\n";
        assert!((rate(csv).unwrap() - 98328.42).abs() < 1e-6);
        assert!(rate("\"SET\",\"1\",\"2\"").is_err());
        assert!(rate("\"GET\",\"0.0\"").is_err());
    }
}
