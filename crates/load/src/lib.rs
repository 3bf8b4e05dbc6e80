//! `shunt load`: the small programs that put load on a stack where no well-known program measures the same: for
//! `shunt bench`, `shunt sim calibrate`, `shunt sim plan --verify` and `shunt doctor --measure`.
//!
//! Plain sockets of the C library, as any program would use them: the same binary runs on the kernel and under
//! `shunt run`. A client prints one line of JSON; a server runs until it is killed. The command is hidden from the help.
//!
//! What those measurements share is here too: `trial` starts a server and its clients in a lab, `competing` computes
//! beside them, `idle` keeps processors awake, `interrupt` ends it all at Ctrl-C. What is measured with it is the users'.

#![deny(clippy::print_stderr, clippy::print_stdout)] // they end the process where nobody reads: see `output`

#[macro_use]
extern crate output;

pub mod calls;
pub mod competing;
pub mod connections;
pub mod create;
mod echo;
pub mod flood;
pub mod idle;
pub mod interrupt;
pub mod market;
mod pace;
pub mod ping;
pub mod requests;
mod sys;
pub mod transfer;
pub mod trial;
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
use statistics::Times;

/// Small programs that put load on a stack, for measurements.
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
    Serve(requests::Serve),
    Ask(requests::Ask),
    Pace(pace::Arguments),
    Exchange(market::Exchange),
    Trade(market::Trade),
    Answer(flood::Answer),
    Flood(flood::Flood),
    Receive(transfer::ReceiveArguments),
    Send,
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
        Role::Serve(arguments) => arguments.run()?,
        Role::Ask(arguments) => say(&arguments.run()?)?,
        Role::Pace(arguments) => say(&pace::execute(arguments)?)?,
        Role::Exchange(arguments) => arguments.run()?,
        Role::Trade(arguments) => say(&arguments.run()?)?,
        Role::Answer(arguments) => arguments.run()?,
        Role::Flood(arguments) => say(&arguments.run()?)?,
        Role::Receive(arguments) => transfer::receive(arguments)?,
        Role::Send => transfer::send()?,
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
    pub count: u64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
}

impl Latency {
    /// None where there was no round trip.
    fn of(times: &Times) -> Option<Self> {
        Some(Self {
            count: times.count(),
            p50_us: times.percentile_us(50.0)?,
            p99_us: times.percentile_us(99.0)?,
            p999_us: times.percentile_us(99.9)?,
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
