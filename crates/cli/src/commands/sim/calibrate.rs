//! `shunt sim calibrate`: measures what the kernel's stack costs on this machine and writes a preset in
//! which every value says where it is from.
//!
//! TCP over loopback in one thread: a send there does the sender's and the receiver's protocol work, so
//! send and receive together are one direction's whole cost. What is not measured here keeps its
//! value and is no longer called measured.

use std::{
    fmt::Write as _,
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::ExitCode,
    thread,
    time::Instant,
};

use anyhow::Context;
use clap::Args;
use rustix::{
    net::{AddressFamily, SocketType, socket},
    time::{ClockId, clock_gettime},
};
use sim::plan::{Costs, Preset, Source, Value};

use crate::{bench::statistics::Summary, commands::sim::write, output};

/// Measure this machine's costs for `shunt sim plan`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt sim calibrate                    prints the preset
  shunt sim calibrate --out mine.toml    then: shunt sim plan my.toml --preset mine.toml

It takes a few seconds and wants an otherwise idle machine. Measured are the kernel's costs; those of the
other stacks keep the shipped values and say so.")]
pub struct Arguments {
    /// Write to this file in place of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Batches of each measurement; the median counts
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(3..=100))]
    batches: u8,
}

/// Rounds of one batch.
const ROUNDS: u32 = 5000;
const SMALL: usize = 64;
const LARGE: usize = 16 * 1024;

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let measured = measure(arguments.batches)?;
    let mut preset = Preset::shipped();
    let from = std::mem::replace(&mut preset.machine, machine());
    for costs in preset.stacks.values_mut() {
        no_longer_measured(costs, &from);
    }
    if let Some(kernel) = preset.stacks.get_mut("kernel") {
        for (name, value) in measured {
            if let Some(place) = kernel.value_mut(name) {
                *place = value;
            }
        }
    }
    let text = to_toml(&preset);
    match &arguments.out {
        Some(file) => write("--out", file, &text)?,
        None => output::print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The processor's name and count.
fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let name = name.map_or("unknown processor", |(_, name)| name);
    format!("{cores} × {name}")
}

/// A value that was measured on another machine is one that was read.
fn no_longer_measured(costs: &mut Costs, machine: &str) {
    let measured: Vec<&str> = costs
        .values()
        .into_iter()
        .filter(|(_, value)| value.source == Source::Measured)
        .map(|(name, _)| name)
        .collect();
    for name in measured {
        if let Some(value) = costs.value_mut(name) {
            value.source = Source::Literature;
            value.how = format!("not measured here; on {machine}: {}", value.how);
        }
    }
}

fn value(samples: &[f64], how: &str) -> anyhow::Result<Value> {
    let summary = Summary::of(samples).context("no sample")?;
    Ok(Value {
        value: (summary.median * 1000.0).round() / 1000.0,
        source: Source::Measured,
        how: how.to_owned(),
        spread: Some((summary.spread() * 100.0).round() / 100.0),
    })
}

fn measure(batches: u8) -> anyhow::Result<Vec<(&'static str, Value)>> {
    let (mut near, mut far) = pair()?;
    let (mut sends, mut receives, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut connections, mut wakes) = (Vec::new(), Vec::new());
    // The first batch warms caches and the congestion window.
    one_way(&mut near, &mut far, SMALL)?;
    for _ in 0..batches {
        let (send, receive) = one_way(&mut near, &mut far, SMALL)?;
        let (large_send, large_receive) = one_way(&mut near, &mut far, LARGE)?;
        let more = large_send + large_receive - send - receive;
        // Two copies: the sender's and the receiver's.
        bytes.push((more / (LARGE - SMALL) as f64 / 2.0).max(0.0));
        sends.push(send);
        receives.push(receive);
        connections.push(sockets()?);
        wakes.push(wake(send + receive)?);
    }
    Ok(vec![
        (
            "send_ns",
            value(
                &sends,
                "TCP over loopback, one thread, 64 B: send, with the peer's softirq",
            )?,
        ),
        (
            "receive_ns",
            value(&receives, "TCP over loopback, one thread, 64 B: receive")?,
        ),
        (
            "byte_ns",
            value(&bytes, "the same with 16 KiB, per byte and copy")?,
        ),
        ("connection_ns", value(&connections, "socket and close")?),
        (
            "wake_ns",
            value(
                &wakes,
                "processor time of a sleeping ping-pong less its calls, per wake-up",
            )?,
        ),
    ])
}

/// Two ends of a connection over loopback.
fn pair() -> anyhow::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").context("listening on loopback")?;
    let address = listener.local_addr().context("listening on loopback")?;
    let near = TcpStream::connect(address).context("connecting over loopback")?;
    let (far, _) = listener.accept().context("accepting over loopback")?;
    for end in [&near, &far] {
        end.set_nodelay(true).context("TCP_NODELAY")?;
    }
    Ok((near, far))
}

/// Nanoseconds of a send and of a receive of this size.
fn one_way(near: &mut TcpStream, far: &mut TcpStream, size: usize) -> anyhow::Result<(f64, f64)> {
    let mut buffer = vec![0; size];
    let (mut send, mut receive) = (0.0, 0.0);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        near.write_all(&buffer).context("sending over loopback")?;
        let sent = Instant::now();
        far.read_exact(&mut buffer)
            .context("receiving over loopback")?;
        send += (sent - start).as_secs_f64();
        receive += sent.elapsed().as_secs_f64();
    }
    let per_round = 1e9 / f64::from(ROUNDS);
    Ok((send * per_round, receive * per_round))
}

/// Nanoseconds of creating and closing a socket.
fn sockets() -> anyhow::Result<f64> {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        drop(socket(AddressFamily::INET, SocketType::STREAM, None).context("socket")?);
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS))
}

fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Nanoseconds of processor time of one wake-up: a ping-pong of two threads that sleep, less its calls.
fn wake(calls_ns: f64) -> anyhow::Result<f64> {
    let (mut near, mut far) = pair()?;
    let echo = thread::spawn(move || {
        let mut byte = [0; SMALL];
        while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
    });
    let mut byte = [0; SMALL];
    let start = processor_seconds();
    for _ in 0..ROUNDS {
        near.write_all(&byte).context("sending over loopback")?;
        near.read_exact(&mut byte)
            .context("receiving over loopback")?;
    }
    let round_ns = (processor_seconds() - start) * 1e9 / f64::from(ROUNDS);
    drop(near);
    let _ = echo.join();
    Ok(((round_ns - 2.0 * calls_ns) / 2.0).max(0.0))
}

fn to_toml(preset: &Preset) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut text = format!(
        "# What a request costs on each stack, in nanoseconds; written by shunt sim calibrate.\nmachine = {}\n",
        quoted(&preset.machine)
    );
    for (name, costs) in &preset.stacks {
        let place = match costs.place {
            sim::plan::Where::Host => "host",
            sim::plan::Where::Engine => "engine",
            sim::plan::Where::Nic => "nic",
        };
        let _ = write!(
            text,
            "\n[{name}]\nwhere = \"{place}\"\npolls = {}\n",
            costs.polls
        );
        for (key, value) in costs.values() {
            let source = match value.source {
                Source::Measured => "measured",
                Source::Literature => "literature",
                Source::Assumed => "assumed",
            };
            let spread = value
                .spread
                .map_or(String::new(), |s| format!(", spread = {s:?}"));
            let _ = writeln!(
                text,
                "{key} = {{ value = {:?}, source = \"{source}\", how = {}{spread} }}",
                value.value,
                quoted(&value.how)
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_preset_reads_as_it_was() {
        let preset = Preset::shipped();
        assert_eq!(Preset::parse(&to_toml(&preset)).unwrap(), preset);
    }

    #[test]
    fn what_another_machine_measured_is_not_called_measured() {
        let mut preset = Preset::shipped();
        for costs in preset.stacks.values_mut() {
            no_longer_measured(costs, "another");
            let values = costs.values();
            assert!(
                values
                    .iter()
                    .all(|(_, value)| value.source != Source::Measured)
            );
        }
        let send = &preset.stacks["kernel"].send_ns;
        assert_eq!(send.source, Source::Literature);
        assert!(send.how.contains("another"));
    }
}
