//! `shunt probe`: the small programs that `shunt bench` runs on either stack where no well-known program
//! measures the same.
//!
//! Plain sockets of the C library, as any program would use them: the same binary runs on the kernel and under
//! `shunt run`. Each prints one line of JSON. They are tools of the benchmark and hidden from the help.

pub mod calls;
pub mod connections;
pub mod create;
mod echo;
pub mod ping;
mod wake;

use std::{
    io,
    net::{SocketAddrV4, TcpListener, TcpStream},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

/// Small programs that `shunt bench` measures with.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    Echo(echo::Arguments),
    Ping(ping::Arguments),
    Accept(connections::AcceptArguments),
    Connect(connections::ConnectArguments),
    Stream(calls::StreamArguments),
    Calls(calls::CallsArguments),
    Create(create::Arguments),
    Wake(wake::Arguments),
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match &arguments.role {
        Role::Echo(arguments) => echo::execute(arguments)?,
        Role::Ping(arguments) => say(&ping::execute(arguments)?)?,
        Role::Accept(arguments) => connections::accept(arguments)?,
        Role::Connect(arguments) => say(&connections::connect(arguments)?)?,
        Role::Stream(arguments) => calls::stream(arguments)?,
        Role::Calls(arguments) => say(&calls::execute(arguments)?)?,
        Role::Create(arguments) => say(&create::execute(arguments)?)?,
        Role::Wake(arguments) => say(&wake::execute(arguments)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn say(result: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string(result).context("composing JSON")?;
    output::print(&(text + "\n"))
}

/// Largest message of any of these programs.
const MESSAGE_MAX_BYTES: usize = 64 * 1024;

/// How long somebody may stay silent.
const SILENCE: Duration = Duration::from_secs(10);

/// Times of many round trips.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many there were.
    pub count: usize,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
}

impl Latency {
    /// None where there was no round trip.
    fn of(mut times_ns: Vec<u64>) -> Option<Self> {
        times_ns.sort_unstable();
        let last = times_ns.len().checked_sub(1)?;
        let at = |parts: usize, of: usize| {
            // Nearest rank: the smallest time that so many parts do not exceed.
            let rank = (times_ns.len() * parts).div_ceil(of).saturating_sub(1);
            Duration::from_nanos(times_ns[rank.min(last)]).as_secs_f64() * 1e6
        };
        Some(Self {
            count: times_ns.len(),
            p50_us: at(50, 100),
            p99_us: at(99, 100),
            p999_us: at(999, 1000),
        })
    }
}

fn listen(at: SocketAddrV4) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(at).with_context(|| format!("listening on {at}"))?;
    // Whoever started this waits for the word.
    say!("listening");
    Ok(listener)
}

/// A connection whose calls wait, or spin; nothing is held back on it.
fn connect(to: SocketAddrV4, spin: bool) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(to).with_context(|| format!("connecting to {to}"))?;
    prepare(&stream, spin)?;
    Ok(stream)
}

fn prepare(stream: &TcpStream, spin: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if spin {
        stream.set_nonblocking(true)
    } else {
        stream.set_read_timeout(Some(SILENCE))
    }
}

/// Repeats a call of a socket that does not wait until it has done something, for [`SILENCE`] at most.
fn spin<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut tries = 0_u32;
    let mut begun = None;
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tries = tries.wrapping_add(1);
                // A look at the clock now and then costs the spin nothing.
                let begun = *begun.get_or_insert_with(Instant::now);
                if tries.is_multiple_of(1024) && begun.elapsed() > SILENCE {
                    return Err(io::Error::from(io::ErrorKind::TimedOut));
                }
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let latency = Latency::of((1..=1000).rev().map(|us| us * 1000).collect()).unwrap();
        assert_eq!(latency.count, 1000);
        let close = |value: f64, wanted: f64| (value - wanted).abs() < 1e-6;
        assert!(close(latency.p50_us, 500.0) && close(latency.p99_us, 990.0));
        assert!(close(latency.p999_us, 999.0));
        assert!(close(Latency::of(vec![7000]).unwrap().p999_us, 7.0));
        assert_eq!(Latency::of(Vec::new()), None);
    }
}
