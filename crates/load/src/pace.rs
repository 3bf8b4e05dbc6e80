//! A client that asks for as much each millisecond, and sleeps between: a load that is the same whatever a stack can do.

use std::{
    io::{Read, Write},
    net::SocketAddrV4,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;

use super::common::connect;

/// Ask so many times each millisecond, for a time; prints how many seconds that took.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where `load serve` listens; an answer is as long as a request.
    #[arg(long)]
    address: SocketAddrV4,
    /// Requests each millisecond, on a connection each.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    per_ms: u16,
    #[arg(long)]
    milliseconds: u32,
    #[arg(long, default_value_t = 64)]
    request_bytes: u16,
}

/// Runs until everything was asked and answered.
pub fn execute(arguments: &Arguments) -> anyhow::Result<f64> {
    let connected = (0..arguments.per_ms).map(|_| connect(arguments.address, false));
    let mut streams = connected.collect::<anyhow::Result<Vec<_>>>()?;
    let mut message = vec![0; usize::from(arguments.request_bytes)];
    let began = Instant::now();
    for round in 0..arguments.milliseconds {
        // Who was late asks at once: as much is asked in the end.
        let due = Duration::from_millis(u64::from(round));
        thread::sleep(due.saturating_sub(began.elapsed()));
        for stream in &mut streams {
            stream.write_all(&message).context("asking")?;
        }
        for stream in &mut streams {
            stream.read_exact(&mut message).context("an answer")?;
        }
    }
    Ok(began.elapsed().as_secs_f64())
}
