//! How long somebody who sleeps takes to answer: datagrams to a port where nobody listens, with pauses.
//!
//! The host itself refuses them (ICMP port unreachable, RFC 1122 §4.1.3.1), so no program's wake-up is in the time.
//! Who asks spins meanwhile. Both stacks limit such errors; pauses of some milliseconds stay below an
//! engine's limit, and the bench lifts the kernel's.

use std::{
    io,
    net::{SocketAddrV4, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Args;

use statistics::Times;

use super::common::Latency;

/// Ask a closed port again and again, with pauses.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where nobody listens.
    #[arg(long)]
    to: SocketAddrV4,
    /// How often.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// Pause between two questions.
    #[arg(long, default_value_t = 10)]
    pause_ms: u64,
}

/// An answer that takes longer is lost.
const PATIENCE: Duration = Duration::from_millis(200);

/// Runs until it has asked so often.
pub fn execute(arguments: &Arguments) -> anyhow::Result<Latency> {
    let socket = UdpSocket::bind("0.0.0.0:0").context("making a socket")?;
    socket.connect(arguments.to)?;
    socket.set_nonblocking(true)?;
    let pause = Duration::from_millis(arguments.pause_ms);
    // The first one also finds the neighbour.
    let _ = ask(&socket);
    let mut times = Times::default();
    for _ in 0..arguments.count {
        thread::sleep(pause);
        if let Some(time) = ask(&socket)? {
            times.add(time);
        }
    }
    let Some(latency) = Latency::of(&times) else {
        bail!("{} answered nothing", arguments.to);
    };
    Ok(latency)
}

/// None where no answer came.
fn ask(socket: &UdpSocket) -> io::Result<Option<Duration>> {
    let mut begun = Instant::now();
    // An answer that came too late for its question is told here.
    while let Err(error) = socket.send(b"?") {
        if error.kind() != io::ErrorKind::ConnectionRefused {
            return Err(error);
        }
        begun = Instant::now();
    }
    while begun.elapsed() < PATIENCE {
        match socket.recv(&mut [0; 1]) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Ok(Some(begun.elapsed()));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(io::Error::other("somebody listens there")),
        }
    }
    Ok(None)
}
