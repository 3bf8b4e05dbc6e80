//! Connections that live for a few requests or for none: accepted and closed, connected and closed.
//!
//! The server closes first, so that TIME-WAIT is its own and the client's ports are free again at once.

use std::{
    io::{self, Read, Write},
    net::{SocketAddrV4, TcpStream},
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::common::{listen, prepare};
use crate::sys;

/// Bytes of a request and of its answer.
const REQUEST_BYTES: usize = 64;

/// Accept, answer some requests, close, one connection after the other, until killed.
#[derive(Debug, Args)]
pub struct AcceptArguments {
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddrV4,
    /// Requests of each connection.
    #[arg(long, default_value_t = 0)]
    requests: u32,
}

/// Connect, send some requests, wait for the end, close, for a time.
#[derive(Debug, Args)]
pub struct ConnectArguments {
    /// Where `probe accept` listens.
    #[arg(long)]
    connect: SocketAddrV4,
    /// Requests of each connection.
    #[arg(long, default_value_t = 0)]
    requests: u32,
    /// How long.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

/// What was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Connections that were made, served and closed.
    pub connections: u64,
    /// In this time.
    pub seconds: f64,
    /// Mean time in socket(2) and in close(2) of one of them, connect(2) not counted.
    pub create_and_close_us: f64,
}

/// Runs until it is killed.
pub fn accept(arguments: &AcceptArguments) -> anyhow::Result<()> {
    let listener = listen(arguments.listen)?;
    loop {
        let (stream, _) = listener.accept()?;
        // A connection that fails tells its client by failing.
        let _ = serve(stream, arguments.requests);
    }
}

fn serve(mut stream: TcpStream, requests: u32) -> io::Result<()> {
    if requests > 0 {
        prepare(&stream, false)?;
    }
    let mut request = [0; REQUEST_BYTES];
    for _ in 0..requests {
        stream.read_exact(&mut request)?;
        stream.write_all(&request)?;
    }
    Ok(())
}

/// Runs for the time that was asked for.
pub fn connect(arguments: &ConnectArguments) -> anyhow::Result<Outcome> {
    let length = Duration::from_secs_f64(arguments.seconds);
    let mut connections = 0_u64;
    let mut aside = Duration::ZERO;
    let begun = Instant::now();
    while begun.elapsed() < length {
        aside += one(arguments.connect, arguments.requests)
            .with_context(|| format!("connection {connections} to {}", arguments.connect))?;
        connections += 1;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let count = connections as f64;
    Ok(Outcome {
        connections,
        seconds,
        create_and_close_us: aside.as_secs_f64() * 1e6 / count,
    })
}

/// One connection; the time that creating and closing its socket took.
fn one(to: SocketAddrV4, requests: u32) -> io::Result<Duration> {
    let begun = Instant::now();
    let socket = sys::tcp_socket()?;
    let created = begun.elapsed();
    sys::connect(&socket, to)?;
    let mut stream = TcpStream::from(socket);
    if requests > 0 {
        stream.set_nodelay(true)?;
    }
    let mut answer = [0; REQUEST_BYTES];
    for _ in 0..requests {
        stream.write_all(&[b'r'; REQUEST_BYTES])?;
        stream.read_exact(&mut answer)?;
    }
    if stream.read(&mut answer)? != 0 {
        return Err(io::Error::other("the server said more than it was asked"));
    }
    let begun = Instant::now();
    drop(stream);
    Ok(created + begun.elapsed())
}
