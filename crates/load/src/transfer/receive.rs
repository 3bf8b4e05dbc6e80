//! The receiving end: counts and checks, one thread per connection.

use std::{
    io::{self, Read, Write},
    net::{SocketAddrV4, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;

use super::{Answer, HELLO_BYTES, Hello, PERIOD, content, place};

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
pub fn execute(arguments: &Arguments) -> anyhow::Result<()> {
    let listener = TcpListener::bind(arguments.listen)
        .with_context(|| format!("listening on {}", arguments.listen))?;
    say!("listening");
    let content: Arc<[u8]> = content().into();
    for stream in listener.incoming() {
        let stream = stream.context("accepting")?;
        let content = Arc::clone(&content);
        thread::spawn(move || {
            // A connection that fails tells its sender by failing.
            let _ = serve(stream, &content);
        });
    }
    Ok(())
}

fn serve(mut stream: TcpStream, content: &[u8]) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE))?;
    let begun = Instant::now();
    let mut hello = [0; HELLO_BYTES];
    stream.read_exact(&mut hello)?;
    let hello = Hello::parse(hello);
    let skip = Duration::from_micros(hello.skip_us);
    let end = (hello.span_us > 0).then(|| skip + Duration::from_micros(hello.span_us));
    let mut buffer = vec![0; PERIOD];
    let mut received = 0;
    let mut counted = 0;
    let mut right = true;
    while let len @ 1.. = read(&mut stream, &mut buffer)? {
        let now = begun.elapsed();
        if end.is_some_and(|end| now >= end) {
            break;
        }
        let at = place(received);
        right &= buffer[..len] == content[at..at + len];
        received += len as u64;
        if now >= skip {
            counted += len as u64;
        }
    }
    let answer = Answer {
        bytes: counted,
        right,
    };
    stream.write_all(&answer.emit())?;
    // A sender that is measured for a time aborts what it has not sent: take it in until then.
    while read(&mut stream, &mut buffer)? > 0 {}
    Ok(())
}

fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
