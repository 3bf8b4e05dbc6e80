//! What these programs share: listening, connecting, waiting in calls or spinning, and times of round trips.

use std::{
    io,
    net::{SocketAddrV4, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use statistics::Times;

/// Largest message of any of these programs.
pub(crate) const MESSAGE_MAX_BYTES: usize = 64 * 1024;

/// How long somebody may stay silent.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);

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
    pub(crate) fn of(times: &Times) -> Option<Self> {
        Some(Self {
            count: times.count(),
            p50_us: times.percentile_us(50.0)?,
            p99_us: times.percentile_us(99.0)?,
            p999_us: times.percentile_us(99.9)?,
        })
    }
}

pub(crate) fn listen(at: SocketAddrV4) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(at).with_context(|| format!("listening on {at}"))?;
    // Whoever started this waits for the word.
    say!("listening");
    Ok(listener)
}

/// A connection whose calls wait, or spin; nothing is held back on it.
pub(crate) fn connect(to: SocketAddrV4, spin: bool) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(to).with_context(|| format!("connecting to {to}"))?;
    prepare(&stream, spin)?;
    Ok(stream)
}

pub(crate) fn prepare(stream: &TcpStream, spin: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if spin {
        stream.set_nonblocking(true)
    } else {
        stream.set_read_timeout(Some(SILENCE))
    }
}

/// Repeats a call of a socket that does not wait until it has done something, for [`SILENCE`] at most.
pub(crate) fn spin<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
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
