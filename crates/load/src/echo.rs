//! A server that answers each message with a message of the same size, in a send of its own.

use std::{
    io::{Read, Write},
    net::SocketAddrV4,
    net::TcpStream,
};

use clap::Args;

use super::{
    common::{MESSAGE_MAX_BYTES, listen, prepare, spin},
    datagrams,
};

/// Answer each message with one, one connection after the other, until killed.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddrV4,
    /// Bytes of a message.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    size: u16,
    /// Do not wait in calls.
    #[arg(long)]
    spin: bool,
    /// Answer datagrams.
    #[arg(long)]
    udp: bool,
}

/// Runs until it is killed.
pub fn execute(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.udp {
        let size = usize::from(arguments.size);
        return datagrams::echo(arguments.listen, size, arguments.spin);
    }
    let listener = listen(arguments.listen)?;
    loop {
        let (stream, _) = listener.accept()?;
        // A connection that fails tells its client by failing.
        let _ = prepare(&stream, arguments.spin).and_then(|()| serve(stream, arguments.size));
    }
}

fn serve(mut stream: TcpStream, size: u16) -> std::io::Result<()> {
    let size = usize::from(size);
    let mut buffer = vec![0; MESSAGE_MAX_BYTES];
    let mut held = 0;
    loop {
        match spin(|| stream.read(&mut buffer[held..]))? {
            0 => return Ok(()),
            count => held += count,
        }
        let whole = held - held % size;
        for message in buffer[..whole].chunks_exact(size) {
            let mut rest = message;
            while !rest.is_empty() {
                let sent = spin(|| stream.write(rest))?;
                rest = &rest[sent..];
            }
        }
        buffer.copy_within(whole..held, 0);
        held -= whole;
    }
}
