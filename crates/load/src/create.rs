//! What socket(2) and close(2) cost for sockets that are never connected.

use std::time::{Duration, Instant};

use clap::Args;
use rustix::net::{AddressFamily, SocketType, socket};
use serde::{Deserialize, Serialize};

/// Make and close TCP sockets, for a time.
#[derive(Debug, Args)]
pub struct Arguments {
    /// How long.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

/// What was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Time of both calls.
    pub each_us: f64,
}

/// Sockets that do not count: the first of a process starts what serves it.
const WARM_UP: u32 = 64;
/// Sockets between looks at the clock.
const BATCH: u32 = 32;

/// Runs for the time that was asked for.
pub fn execute(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let make = |count: u32| -> anyhow::Result<()> {
        for _ in 0..count {
            drop(socket(AddressFamily::INET, SocketType::STREAM, None)?);
        }
        Ok(())
    };
    make(WARM_UP)?;
    let length = Duration::from_secs_f64(arguments.seconds);
    let begun = Instant::now();
    let mut made = 0_u32;
    while begun.elapsed() < length {
        make(BATCH)?;
        made += BATCH;
    }
    Ok(Outcome {
        each_us: begun.elapsed().as_secs_f64() * 1e6 / f64::from(made.max(1)),
    })
}
