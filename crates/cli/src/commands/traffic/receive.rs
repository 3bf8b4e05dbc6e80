//! The receiving end: counts and checks, one thread per connection.

use std::{
    io::{self, Read, Write},
    net::{SocketAddrV4, TcpListener, TcpStream},
    process::ExitCode,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;

use super::{Answer, HELLO_BYTES, PERIOD, content, place};

/// Receive, check and count what senders send, until killed.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddrV4,
}

/// A sender that says nothing for so long is left.
const SILENCE: Duration = Duration::from_secs(60);

/// Runs until it is killed.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let listener = TcpListener::bind(arguments.listen)
        .with_context(|| format!("listening on {}", arguments.listen))?;
    println!("listening");
    let content: Arc<[u8]> = content().into();
    for stream in listener.incoming() {
        let stream = stream.context("accepting")?;
        let content = Arc::clone(&content);
        thread::spawn(move || {
            // A connection that fails tells its sender by failing.
            let _ = serve(stream, &content);
        });
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(mut stream: TcpStream, content: &[u8]) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE))?;
    let begun = Instant::now();
    let mut hello = [0; HELLO_BYTES];
    stream.read_exact(&mut hello)?;
    let skip = Duration::from_micros(u64::from_le_bytes(hello));
    let mut buffer = vec![0; PERIOD];
    let mut answer = Answer {
        right: 1,
        ..Answer::default()
    };
    loop {
        let len = match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let at = place(answer.bytes);
        if buffer[..len] != content[at..at + len] {
            answer.right = 0;
        }
        answer.bytes += len as u64;
        if let Some(later) = begun.elapsed().checked_sub(skip) {
            answer.later_bytes += len as u64;
            answer.later_us = u64::try_from(later.as_micros()).unwrap_or(u64::MAX);
        }
    }
    stream.write_all(&answer.emit())
}
