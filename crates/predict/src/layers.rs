//! `shunt measure layers`: how the kernel's TCP divides its time between socket, transport, network, link and driver, beside
//! Table 1 of the paper, which had patched its kernel with a clock reading before and after each layer.
//!
//! Here nothing is patched and no function is made slower: the kernel samples where a thread is that sends itself small
//! messages over loopback, and callers tell for whom a copy or a lock works. Of a process that runs Shunt's layers are told beside
//! them (`process.rs`).

mod functions;
mod names;
mod process;
mod sys;

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Args;
use load::{interrupt::Interrupt, trial::Say};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use sim::{report::document::Document, scenario::Cost};

use crate::calibrate::loopback;
use names::{Layer, Names};
use statistics::Summary;
use sys::Sampler;

/// Measure what each layer of the kernel's TCP takes, beside Table 1 of the paper
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt measure layers
  shunt measure layers --runs 10 --json
  shunt measure layers --process $(pidof redis-server)   Shunt's layers and the kernel's, of what runs
  shunt measure layers --process $(shunt status --json | jq .pid)      of its engine

It needs root: the kernel samples its own functions (perf_event_open). Over loopback the driver is
only a queue. Shunt's layers are told of a process that is busy: a program with an engine inside, one
beside an engine, or that engine.")]
pub struct Arguments {
    /// Runs; the median counts
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(3..=100))]
    runs: u8,
    /// Look at the threads of this process instead: a program on Shunt, or an engine
    #[arg(long, value_name = "PID", conflicts_with = "runs")]
    process: Option<u32>,
    /// With --process: for how long
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=60), requires = "process")]
    seconds: u8,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How long a run is that nobody samples, and one with samples: taking one costs more than a message does.
const ALONE: Duration = Duration::from_millis(200);
const SAMPLED: Duration = Duration::from_millis(1000);
/// Time between samples; no divisor of anything that repeats.
const PERIOD_NS: u64 = 499_979;
/// Size of a message.
const BYTES: usize = 64;
/// Messages between two looks at the clock.
const BETWEEN: u32 = 64;
/// Fewer samples than this in a run say nothing.
const LEAST: u64 = 100;

#[derive(Debug, Serialize)]
struct Row {
    layer: Layer,
    send_ns: Summary,
    receive_ns: Summary,
    /// Of Table 1, in µs on a Celeron of 450 MHz.
    paper_send_us: f64,
    paper_receive_us: f64,
}

#[derive(Debug, Serialize)]
struct Results {
    message_bytes: usize,
    /// A message sent and received: the thread's own time, whoever else used its processor.
    whole_ns: Summary,
    /// Of that, in the kernel but in no layer, or in the program.
    rest_ns: Summary,
    samples: u64,
    lost: u64,
    layers: Vec<Row>,
}

/// What one run says, in nanoseconds per message; true is receiving.
#[derive(Debug, Default)]
struct Run {
    whole_ns: f64,
    samples: u64,
    lost: u64,
    parts: BTreeMap<(Layer, bool), f64>,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let Some(pid) = arguments.process {
        let time = Duration::from_secs(u64::from(arguments.seconds));
        return process::execute(pid, time, arguments.json);
    }
    let interrupt = Interrupt::catch()?;
    let mut names = Names::of_this_kernel()?;
    let mut sampler = Sampler::open(PERIOD_NS, 0).context(
        "sampling the kernel (perf_event_open): run as root, or let kernel.perf_event_paranoid be 1",
    )?;
    let mut pair = loopback::pair()?;
    // The first run warms caches and the congestion window.
    run(&mut pair, &mut sampler, &mut names)?;
    let mut runs = Vec::new();
    let say = Say::from_now();
    for number in 1..=arguments.runs {
        interrupt.check()?;
        say.say(&format!("run {number} of {}", arguments.runs));
        runs.push(run(&mut pair, &mut sampler, &mut names)?);
    }
    let results = results(&runs)?;
    output::print_result(arguments.json, &results, || report(&results).to_text())?;
    Ok(ExitCode::SUCCESS)
}

fn run(
    (near, far): &mut (TcpStream, TcpStream),
    sampler: &mut Sampler,
    names: &mut Names,
) -> anyhow::Result<Run> {
    let whole_ns = ping(near, far, ALONE)?;
    sampler.start().context("sampling")?;
    ping(near, far, SAMPLED)?;
    sampler.stop().context("sampling")?;
    let mut counts: BTreeMap<(Layer, bool), u64> = BTreeMap::new();
    let mut samples = 0;
    let lost = sampler.take(|_, addresses| {
        samples += 1;
        if let Some(place) = names.place(addresses) {
            *counts.entry(place).or_default() += 1;
        }
    });
    ensure!(
        samples >= LEAST,
        "the kernel took {samples} samples in {SAMPLED:?}: this machine's clock does not serve for it"
    );
    let each_ns = whole_ns / samples as f64;
    let parts = counts.into_iter();
    Ok(Run {
        whole_ns,
        samples,
        lost,
        parts: parts
            .map(|(place, count)| (place, count as f64 * each_ns))
            .collect(),
    })
}

/// Nanoseconds of the calling thread, for a message sent and received, over so much time of the day.
fn ping(near: &mut TcpStream, far: &mut TcpStream, time: Duration) -> anyhow::Result<f64> {
    let mut message = [0; BYTES];
    let (began, before) = (Instant::now(), thread_time());
    let mut messages = 0_u32;
    while began.elapsed() < time {
        for _ in 0..BETWEEN {
            near.write_all(&message).context("sending over loopback")?;
            far.read_exact(&mut message)
                .context("receiving over loopback")?;
        }
        messages += BETWEEN;
    }
    let took = thread_time().saturating_sub(before);
    Ok(took.as_secs_f64() * 1e9 / f64::from(messages))
}

/// How long the calling thread has had a processor, see clock_gettime(2).
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn results(runs: &[Run]) -> anyhow::Result<Results> {
    let summary = |of: &dyn Fn(&Run) -> f64| {
        let samples: Vec<f64> = runs.iter().map(of).collect();
        Summary::of(&samples).context("no run")
    };
    let part =
        |run: &Run, layer, receives| run.parts.get(&(layer, receives)).copied().unwrap_or(0.0);
    // Table 1 is what a scenario's costs are unless it says otherwise.
    let paper = Cost::default();
    let row = |layer: Layer| -> anyhow::Result<Row> {
        let [paper_send_us, paper_receive_us] = paper_us(layer, &paper);
        Ok(Row {
            layer,
            send_ns: summary(&|run| part(run, layer, false))?,
            receive_ns: summary(&|run| part(run, layer, true))?,
            paper_send_us,
            paper_receive_us,
        })
    };
    Ok(Results {
        message_bytes: BYTES,
        whole_ns: summary(&|run| run.whole_ns)?,
        rest_ns: summary(&|run| run.whole_ns - run.parts.values().sum::<f64>())?,
        samples: runs.iter().map(|run| run.samples).sum(),
        lost: runs.iter().map(|run| run.lost).sum(),
        layers: Layer::ALL.into_iter().map(row).collect::<Result<_, _>>()?,
    })
}

/// Sending and receiving in Table 1; what it gives once is in both.
fn paper_us(layer: Layer, paper: &Cost) -> [f64; 2] {
    match layer {
        Layer::Call => [paper.ex_sys_us, paper.ex_sys_us],
        Layer::Socket => [paper.tx_sock_us, paper.rx_sock_us],
        Layer::Transport => [paper.tx_tr_us, paper.rx_tr_us],
        Layer::Network => [paper.tx_net_us, paper.rx_net_us],
        Layer::Link => [paper.tx_link_us, paper.rx_link_us],
        Layer::Driver => [paper.ex_phy_us, paper.ex_phy_us],
    }
}

fn name(layer: Layer) -> &'static str {
    match layer {
        Layer::Call => "system call",
        Layer::Socket => "socket",
        Layer::Transport => "transport",
        Layer::Network => "network",
        Layer::Link => "link",
        Layer::Driver => "driver",
    }
}

fn report(results: &Results) -> Document {
    let mut d = Document::new("What each layer of the kernel's TCP takes");
    d.text(format!(
        "A message of {} bytes over loopback, sent and received by one thread: {:.0} ns of its own time, while nobody \
         samples (spread {:.0} %), of them {:.0} in no layer or in the program. {} samples, {} lost; medians of {} runs; spread is largest less \
         smallest as a part of the median. Beside it Table 1 of the paper, µs on a Celeron of 450 MHz; share is of the \
         layers' sum in that column.",
        results.message_bytes,
        results.whole_ns.median,
        100.0 * results.whole_ns.spread(),
        results.rest_ns.median,
        results.samples,
        results.lost,
        results.whole_ns.samples.len(),
    ));
    type Of<'a> = &'a dyn Fn(&Row) -> f64;
    let share = |row: &Row, of: Of<'_>| {
        let sum: f64 = results.layers.iter().map(of).sum();
        format!("{:.0} %", 100.0 * of(row) / sum.max(f64::MIN_POSITIVE))
    };
    let spread = |summary: &Summary| format!("{:.0} %", 100.0 * summary.spread());
    let cells = |row: &Row| {
        vec![
            name(row.layer).to_owned(),
            format!("{:.0}", row.send_ns.median),
            spread(&row.send_ns),
            share(row, &|row| row.send_ns.median),
            format!("{:.1}", row.paper_send_us),
            share(row, &|row| row.paper_send_us),
            format!("{:.0}", row.receive_ns.median),
            spread(&row.receive_ns),
            share(row, &|row| row.receive_ns.median),
            format!("{:.1}", row.paper_receive_us),
            share(row, &|row| row.paper_receive_us),
        ]
    };
    let headings = "layer | send ns | spread | share | paper µs | share | receive ns | spread | share | paper µs | share".split(" | ");
    d.table(headings, results.layers.iter().map(cells).collect());
    d.text(
        "The paper gives a system call and the driver once; they stand in both columns. A copy, a lock or an allocation \
         counts for the layer that called it. Waking a thread, and interrupts of a device, are not in a single thread \
         over loopback.",
    );
    d
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_takes_no_time_of_its_own() {
        let before = thread_time();
        let began = Instant::now();
        std::thread::sleep(Duration::from_millis(60));
        let took = thread_time() - before;
        assert!(took < began.elapsed() / 2, "{took:?}");
        let mut pair = loopback::pair().unwrap();
        let before = thread_time();
        let time = Duration::from_millis(20);
        let each_ns = ping(&mut pair.0, &mut pair.1, time).unwrap();
        // A batch at least, and no more than the thread has had.
        let all_ns = each_ns * f64::from(BETWEEN);
        assert!(all_ns > 0.0 && all_ns <= (thread_time() - before).as_secs_f64() * 1e9);
    }

    #[test]
    fn layers_and_what_is_in_none_add_up_to_the_whole() {
        let run = |more: f64| Run {
            whole_ns: 1000.0 + more,
            samples: 500,
            lost: 1,
            parts: [
                ((Layer::Transport, false), 400.0),
                ((Layer::Transport, true), 300.0 + more),
                ((Layer::Socket, false), 100.0),
            ]
            .into(),
        };
        let found = results(&[run(0.0), run(10.0), run(20.0)]).unwrap();
        assert_eq!(found.whole_ns.median, 1010.0);
        assert!((found.rest_ns.median - 200.0).abs() < 1e-9);
        assert_eq!((found.samples, found.lost), (1500, 3));
        let text = report(&found).to_text();
        let transport = text
            .lines()
            .find(|line| line.contains("transport"))
            .unwrap();
        for cell in ["400", "80 %", "302.1", "310", "346.9"] {
            assert!(transport.contains(cell), "{cell}: {text}");
        }
        assert!(text.contains("1500 samples, 3 lost"), "{text}");
    }
}
