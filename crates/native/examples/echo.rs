//! An echo server and its client over Shunt's native interface.
//!
//! `echo server ADDRESS:PORT` sends everything back, to one connection after the other, for ever;
//! `echo client ADDRESS:PORT BYTES` sends that many and checks what comes back.

use std::error::Error;
use std::net::SocketAddr;

use native::{Engine, TcpListener, TcpStream};

/// From window to window: the one copy is this program's own.
fn serve(mut peer: TcpStream) -> std::io::Result<()> {
    let (sending, receiving) = peer.halves();
    while let Some(arrived) = receiving.borrow(65_536)? {
        let mut room = sending.reserve(arrived.len())?;
        let [first, second] = arrived.slices();
        let filled = room.fill(0, first);
        let filled = filled + room.fill(filled, second);
        room.commit(filled)?;
        arrived.consume(filled)?;
    }
    Ok(())
}

fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]
}

fn ask(server: TcpStream, bytes: usize) -> Result<(), Box<dyn Error>> {
    let (mut sending, mut receiving) = server.split();
    let sender = std::thread::spawn(move || -> std::io::Result<()> {
        let mut sent = 0;
        while sent < bytes {
            let mut room = sending.reserve(bytes - sent)?;
            let len = room.len();
            for (at, byte) in room.slices().into_iter().flatten().enumerate() {
                *byte = pattern(sent + at);
            }
            room.commit(len)?;
            sent += len;
        }
        sending.finish()
    });
    let mut received = 0;
    while let Some(arrived) = receiving.borrow(usize::MAX)? {
        for (at, byte) in arrived.slices().into_iter().flatten().enumerate() {
            if *byte != pattern(received + at) {
                return Err(format!("another byte came back at {}", received + at).into());
            }
        }
        let len = arrived.len();
        arrived.consume(len)?;
        received += len;
    }
    sender.join().map_err(|_| "the sender panicked")??;
    if received != bytes {
        return Err(format!("{received} bytes of {bytes} came back").into());
    }
    println!("{received} bytes came back");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let engine = Engine::from_environment()?;
    match arguments.get(1..).unwrap_or_default() {
        [role, address] if role == "server" => {
            let address: SocketAddr = address.parse()?;
            let listener = TcpListener::bind(engine, address, 64)?;
            println!("listening");
            loop {
                let (peer, _) = listener.accept()?;
                if let Err(error) = serve(peer) {
                    eprintln!("a connection failed: {error}");
                }
            }
        }
        [role, address, bytes] if role == "client" => ask(
            TcpStream::connect(engine, address.parse()?)?,
            bytes.parse()?,
        ),
        _ => Err("usage: echo server ADDRESS:PORT, or echo client ADDRESS:PORT BYTES".into()),
    }
}
