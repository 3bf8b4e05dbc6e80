//! A client that sends messages and takes their echoes: one at a time, or several on their way.

use std::{
    io::{self, Read, Write},
    net::{SocketAddrV4, TcpStream},
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;
use serde::{Deserialize, Serialize};

use statistics::Times;

use super::{
    common::{Latency, MESSAGE_MAX_BYTES, connect, spin},
    datagrams,
};

/// Send messages and take their echoes, for a time.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where an echo listens.
    #[arg(long)]
    connect: SocketAddrV4,
    /// Bytes of a message.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    size: u16,
    /// Messages on their way at once; their times are taken only where it is one.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    depth: u16,
    /// How long.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Do not wait in calls.
    #[arg(long)]
    spin: bool,
    /// Datagrams, one on its way at a time.
    #[arg(long, conflicts_with = "depth")]
    udp: bool,
}

/// What was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Messages that came back.
    pub messages: u64,
    /// In this time.
    pub seconds: f64,
    /// Times of the round trips.
    pub latency: Option<Latency>,
}

/// Round trips that do not count.
const WARM_UP: Duration = Duration::from_millis(100);

/// Runs for the time that was asked for.
pub fn execute(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let size = usize::from(arguments.size);
    if arguments.udp {
        let length = Duration::from_secs_f64(arguments.seconds);
        return datagrams::ping(arguments.connect, size, length, arguments.spin);
    }
    let stream = connect(arguments.connect, arguments.spin)?;
    let length = Duration::from_secs_f64(arguments.seconds);
    let outcome = if arguments.depth == 1 {
        one_at_a_time(stream, size, length)
    } else {
        let depth = u64::from(arguments.depth);
        pipelined(stream, size, depth, length)
    };
    outcome.with_context(|| format!("talking to {}", arguments.connect))
}

fn one_at_a_time(mut stream: TcpStream, size: usize, length: Duration) -> io::Result<Outcome> {
    let message = vec![b'm'; size];
    let mut answer = vec![0; size];
    let round_trip = || -> io::Result<()> {
        send(&mut stream, &message)?;
        let mut got = 0;
        while got < size {
            match spin(|| stream.read(&mut answer[got..]))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => got += count,
            }
        }
        Ok(())
    };
    time_round_trips(round_trip, length)
}

/// Repeats a round trip for a time.
pub(super) fn time_round_trips(
    mut round_trip: impl FnMut() -> io::Result<()>,
    length: Duration,
) -> io::Result<Outcome> {
    let warm = Instant::now();
    while warm.elapsed() < WARM_UP {
        round_trip()?;
    }
    let mut times = Times::default();
    let begun = Instant::now();
    let mut last = begun;
    while last.duration_since(begun) < length {
        round_trip()?;
        let now = Instant::now();
        times.add(now.duration_since(last));
        last = now;
    }
    Ok(Outcome {
        messages: times.count(),
        seconds: last.duration_since(begun).as_secs_f64(),
        latency: Latency::of(&times),
    })
}

fn pipelined(
    mut stream: TcpStream,
    size: usize,
    depth: u64,
    length: Duration,
) -> io::Result<Outcome> {
    let message = vec![b'm'; size];
    let mut buffer = vec![0; MESSAGE_MAX_BYTES];
    let (mut sent, mut received_bytes) = (0_u64, 0_u64);
    let mut turn = |sending: bool| -> io::Result<u64> {
        while sending && sent - received_bytes / (size as u64) < depth {
            send(&mut stream, &message)?;
            sent += 1;
        }
        if !sending && received_bytes == sent * size as u64 {
            return Ok(0);
        }
        match spin(|| stream.read(&mut buffer))? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                received_bytes += count as u64;
                Ok(received_bytes / size as u64)
            }
        }
    };
    let warm = Instant::now();
    let mut before = 0;
    while warm.elapsed() < WARM_UP {
        before = turn(true)?;
    }
    let begun = Instant::now();
    let mut after = before;
    while begun.elapsed() < length {
        after = turn(true)?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    // What is on its way is taken in, so that the end is none of a reset.
    while turn(false)? > 0 {}
    Ok(Outcome {
        messages: after - before,
        seconds,
        latency: None,
    })
}

fn send(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let mut rest = message;
    while !rest.is_empty() {
        let sent = spin(|| stream.write(rest))?;
        rest = &rest[sent..];
    }
    Ok(())
}
