//! What one send(2) or recv(2) costs the program that calls it: its processor time over many of them.
//!
//! The peer takes or sends without end. Time that a call sleeps costs no processor.

use std::{
    io::{self, Read, Write},
    net::SocketAddrV4,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::common::{MESSAGE_MAX_BYTES, connect, listen};

/// Take without end from everybody who connects, or send without end, until killed.
#[derive(Debug, Args)]
pub struct StreamArguments {
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddrV4,
    /// What the peer of this does.
    #[arg(long, value_enum)]
    peer: Call,
}

/// Call send(2) or recv(2) on one connection, for a time.
#[derive(Debug, Args)]
pub struct CallsArguments {
    /// Where `probe stream` listens.
    #[arg(long)]
    connect: SocketAddrV4,
    /// Which call.
    #[arg(long, value_enum)]
    call: Call,
    /// Bytes of each call.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..))]
    size: u16,
    /// How long.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Call {
    Send,
    Recv,
}

/// What was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Calls that moved something.
    pub calls: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// In this time.
    pub seconds: f64,
    /// Processor time of the whole program.
    pub cpu_seconds: f64,
}

/// Runs until it is killed.
pub fn stream(arguments: &StreamArguments) -> anyhow::Result<()> {
    let listener = listen(arguments.listen)?;
    let mut buffer = vec![0; MESSAGE_MAX_BYTES];
    loop {
        let (mut stream, _) = listener.accept()?;
        // Ends when the peer goes away.
        while let Ok(1..) = match arguments.peer {
            Call::Send => stream.read(&mut buffer),
            Call::Recv => stream.write(&buffer),
        } {}
    }
}

/// Runs for the time that was asked for.
pub fn execute(arguments: &CallsArguments) -> anyhow::Result<Outcome> {
    let mut stream = connect(arguments.connect, false)?;
    let length = Duration::from_secs_f64(arguments.seconds);
    let mut message = vec![b'm'; usize::from(arguments.size)];
    let mut call = || match arguments.call {
        Call::Send => stream.write(&message),
        Call::Recv => stream.read(&mut message),
    };
    repeat(WARM_UP, &mut call).context("warming up")?;
    let cpu = cpu_seconds();
    let (calls, bytes, seconds) = repeat(length, &mut call).context("in the measured calls")?;
    Ok(Outcome {
        calls,
        bytes,
        seconds,
        cpu_seconds: cpu_seconds() - cpu,
    })
}

/// Calls that do not count.
const WARM_UP: Duration = Duration::from_millis(200);
/// Calls between looks at the clock.
const BATCH: u32 = 32;

fn repeat(
    length: Duration,
    call: &mut dyn FnMut() -> io::Result<usize>,
) -> io::Result<(u64, u64, f64)> {
    let (mut calls, mut bytes) = (0_u64, 0_u64);
    let begun = Instant::now();
    while begun.elapsed() < length {
        for _ in 0..BATCH {
            match call()? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => bytes += count as u64,
            }
            calls += 1;
        }
    }
    Ok((calls, bytes, begun.elapsed().as_secs_f64()))
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).map_or(0.0, |time| time.as_secs_f64())
}
