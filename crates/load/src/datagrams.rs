//! UDP: round trips of datagrams, one at a time, and datagrams that go one way as fast as calls take them.

use std::{
    io::{self, ErrorKind},
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::{
    common::{SILENCE, spin},
    ping,
};

/// Count datagrams until killed.
#[derive(Debug, Args)]
pub struct Count {
    /// Where they come to.
    #[arg(long)]
    address: SocketAddrV4,
    /// Also those to this group, at the same port.
    #[arg(long)]
    group: Option<Ipv4Addr>,
}

/// Send datagrams as fast as calls take them, to somebody who counts.
#[derive(Debug, Args)]
pub struct Pour {
    /// Who counts them.
    #[arg(long)]
    address: SocketAddrV4,
    /// They go to this group, at the same port.
    #[arg(long)]
    group: Option<Ipv4Addr>,
    /// The sender's own address, which says by which interface a group is reached.
    #[arg(long, default_value_t = Ipv4Addr::UNSPECIFIED)]
    from: Ipv4Addr,
    #[arg(long, default_value_t = 1000)]
    milliseconds: u64,
}

/// What came of it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Poured {
    /// Datagrams sent each second.
    pub sent_per_s: f64,
    /// Of these, counted.
    pub counted_per_s: f64,
}

/// Payload of a datagram.
const BYTES: usize = 64;
/// First byte of a datagram that asks how many there were.
const ASKS: u8 = 0xc3;
/// After so long without an answer it is asked again.
const AGAIN: Duration = Duration::from_millis(100);
/// Before anything counts.
const WARM_UP: Duration = Duration::from_millis(100);
/// Datagrams between two looks at the clock.
const BURST: u64 = 64;

fn bind(address: SocketAddrV4) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind(address).with_context(|| format!("binding to {address}"))?;
    // Whoever started this waits for the word.
    say!("listening");
    Ok(socket)
}

/// Answers each datagram with itself until killed.
pub fn echo(address: SocketAddrV4, size: usize, spins: bool) -> anyhow::Result<()> {
    let socket = bind(address)?;
    socket.set_nonblocking(spins).context("O_NONBLOCK")?;
    let mut buffer = vec![0; size];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((count, from)) => {
                spin(|| socket.send_to(&buffer[..count], from)).context("answering")?;
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error).context("receiving"),
        }
    }
}

/// What the next call may find otherwise; a client that has gone leaves a refusal behind (ICMP).
fn is_passing(error: &io::Error) -> bool {
    let passing = [
        ErrorKind::WouldBlock,
        ErrorKind::Interrupted,
        ErrorKind::ConnectionRefused,
    ];
    passing.contains(&error.kind())
}

/// Round trips, one at a time.
pub fn ping(
    address: SocketAddrV4,
    size: usize,
    length: Duration,
    spins: bool,
) -> anyhow::Result<ping::Outcome> {
    let socket = connect(Ipv4Addr::UNSPECIFIED, address)?;
    socket.set_nonblocking(spins).context("O_NONBLOCK")?;
    socket
        .set_read_timeout(Some(SILENCE))
        .context("SO_RCVTIMEO")?;
    let message = vec![b'm'; size];
    let mut answer = vec![0; size];
    let round_trip = || -> io::Result<()> {
        spin(|| socket.send(&message))?;
        spin(|| socket.recv(&mut answer)).map(|_| ())
    };
    ping::time_round_trips(round_trip, length).with_context(|| format!("talking to {address}"))
}

fn connect(from: Ipv4Addr, address: SocketAddrV4) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind((from, 0)).with_context(|| format!("binding to {from}"))?;
    socket
        .connect(address)
        .with_context(|| format!("connecting to {address}"))?;
    Ok(socket)
}

impl Count {
    /// Counts.
    pub fn run(&self) -> anyhow::Result<()> {
        let socket = match self.group {
            None => bind(self.address)?,
            Some(group) => {
                let socket = bind(SocketAddrV4::new(
                    Ipv4Addr::UNSPECIFIED,
                    self.address.port(),
                ))?;
                socket
                    .join_multicast_v4(&group, self.address.ip())
                    .with_context(|| format!("joining {group}"))?;
                socket
            }
        };
        let mut buffer = [0; BYTES];
        let mut counted = 0_u64;
        loop {
            match socket.recv_from(&mut buffer) {
                Ok((_, from)) if buffer[0] == ASKS => {
                    // Who asks asks again.
                    let _ = socket.send_to(&counted.to_le_bytes(), from);
                }
                Ok(_) => counted += 1,
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error).context("receiving"),
            }
        }
    }
}

impl Pour {
    /// Sends for the time that was given.
    pub fn run(&self) -> anyhow::Result<Poured> {
        let to = SocketAddrV4::new(
            self.group.unwrap_or(*self.address.ip()),
            self.address.port(),
        );
        let socket = connect(self.from, to)?;
        self.pour(&socket, WARM_UP)?;
        let before = self.ask()?;
        let began = Instant::now();
        let sent = self.pour(&socket, Duration::from_millis(self.milliseconds))?;
        let seconds = began.elapsed().as_secs_f64();
        let counted = self.ask()?.saturating_sub(before);
        ensure!(counted > 0, "none of {sent} datagrams to {to} was counted");
        let per_s = |count: u64| count as f64 / seconds;
        Ok(Poured {
            sent_per_s: per_s(sent),
            counted_per_s: per_s(counted),
        })
    }

    fn pour(&self, socket: &UdpSocket, length: Duration) -> anyhow::Result<u64> {
        let message = [0x5a; BYTES];
        let began = Instant::now();
        let mut sent = 0;
        while began.elapsed() < length {
            for _ in 0..BURST {
                match socket.send(&message) {
                    Ok(_) => sent += 1,
                    // What finds no room is not sent.
                    Err(error) if is_passing(&error) => {}
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                    Err(error) => {
                        return Err(error).with_context(|| format!("sending to {}", self.address));
                    }
                }
            }
        }
        Ok(sent)
    }

    /// How many were counted, from a socket of its own: what is asked waits behind what was sent.
    fn ask(&self) -> anyhow::Result<u64> {
        let socket = connect(self.from, self.address)?;
        socket
            .set_read_timeout(Some(AGAIN))
            .context("SO_RCVTIMEO")?;
        let mut question = [0; BYTES];
        question[0] = ASKS;
        let began = Instant::now();
        while began.elapsed() < SILENCE {
            let mut answer = [0; size_of::<u64>()];
            let sent = socket.send(&question);
            match sent.and_then(|_| socket.recv(&mut answer)) {
                Ok(count) if count == answer.len() => return Ok(u64::from_le_bytes(answer)),
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error).context("asking how many were counted"),
            }
        }
        bail!("{} does not say how many it has counted", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free_address() -> SocketAddrV4 {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().to_string().parse().unwrap()
    }

    #[test]
    fn what_is_poured_is_counted() {
        let address = free_address();
        let count = Count {
            address,
            group: None,
        };
        std::thread::spawn(move || count.run());
        let pour = Pour {
            address,
            group: None,
            from: Ipv4Addr::LOCALHOST,
            milliseconds: 100,
        };
        let poured = pour.run().unwrap();
        assert!(poured.counted_per_s > 0.0, "{poured:?}");
        assert!(poured.counted_per_s <= poured.sent_per_s, "{poured:?}");
    }

    #[test]
    fn round_trips_are_counted_and_timed_whoever_waits() {
        for spins in [false, true] {
            let address = free_address();
            std::thread::spawn(move || echo(address, 64, spins));
            let began = Instant::now();
            while let Err(error) = ping(address, 64, Duration::ZERO, spins) {
                assert!(began.elapsed() < SILENCE, "{error:#}");
            }
            let outcome = ping(address, 64, Duration::from_millis(50), spins).unwrap();
            assert_eq!(
                outcome.latency.map(|latency| latency.count),
                Some(outcome.messages)
            );
        }
    }
}
