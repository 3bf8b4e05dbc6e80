//! Overload: a server that answers datagrams and computes for each, and a client that sends them at a rate of its
//! own, whether or not answers come. Nothing holds such a client back, so that it shows whether a stack still
//! serves when more arrives than it can do (Mogul and Ramakrishnan, "Eliminating Receive Livelock", 1997).

use std::{
    io::ErrorKind,
    net::{SocketAddrV4, TcpListener, UdpSocket},
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;
use serde::{Deserialize, Serialize};

use statistics::Times;

use super::requests::compute;

/// Answers datagrams until killed.
#[derive(Debug, Args)]
pub struct Answer {
    #[arg(long)]
    address: SocketAddrV4,
    /// Computation per datagram
    #[arg(long, default_value_t = 0)]
    compute_ns: u64,
}

/// Sends datagrams at a rate, or a new one for each answer.
#[derive(Debug, Args)]
pub struct Flood {
    #[arg(long)]
    address: SocketAddrV4,
    #[arg(long, default_value_t = 1000)]
    milliseconds: u64,
    /// Datagrams per second; 0 keeps some under way and sends one for each answer
    #[arg(long, default_value_t = 0)]
    per_s: u64,
}

/// What came of a flood.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Flooded {
    /// Datagrams sent per second.
    pub offered_per_s: f64,
    /// Of these, answered.
    pub answered_per_s: f64,
    /// Median time of those that were answered; none where none was.
    pub p50_us: Option<f64>,
}

/// Payload of a datagram; the time of its sending is in the first eight bytes and comes back.
const BYTES: usize = 64;
/// Datagrams under way where their number and not their rate is kept.
const UNDER_WAY: u64 = 16;
/// Datagrams that are sent before answers are looked for.
const BURST: u64 = 16;
/// Part of the time before anything counts.
const WARM_UP: u32 = 5;
/// A datagram that is under way for longer is lost; another takes its place.
const LOST: Duration = Duration::from_millis(20);

impl Answer {
    /// Serves.
    pub fn run(&self) -> anyhow::Result<()> {
        let socket = UdpSocket::bind(self.address)
            .with_context(|| format!("binding to {}", self.address))?;
        // Whoever can connect here knows that datagrams are waited for.
        let _ready = TcpListener::bind(self.address)
            .with_context(|| format!("listening at {}", self.address))?;
        let mut buffer = [0; BYTES];
        let work = Duration::from_nanos(self.compute_ns);
        loop {
            match socket.recv_from(&mut buffer) {
                Ok((bytes, from)) => {
                    compute(work);
                    // A lost answer is what overload is about: the client counts.
                    let _ = socket.send_to(&buffer[..bytes], from);
                }
                // What a client that has gone leaves behind (ICMP).
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error).context("receiving"),
            }
        }
    }
}

/// A flood under way.
struct Under {
    socket: UdpSocket,
    began: Instant,
    sent: u64,
    answered: u64,
    times: Times,
}

impl Flood {
    /// Floods.
    pub fn run(&self) -> anyhow::Result<Flooded> {
        let socket = UdpSocket::bind("0.0.0.0:0").context("binding")?;
        socket.connect(self.address).context("connecting")?;
        socket.set_nonblocking(true).context("O_NONBLOCK")?;
        let mut under = Under {
            socket,
            began: Instant::now(),
            sent: 0,
            answered: 0,
            times: Times::default(),
        };
        let time = Duration::from_millis(self.milliseconds);
        let (mut counted_from, mut quiet_since) = (None, Instant::now());
        let mut lost = 0;
        while under.began.elapsed() < time {
            let elapsed = under.began.elapsed();
            let due = match self.per_s {
                0 => under.answered + lost + UNDER_WAY,
                per_s => u64::try_from(elapsed.as_micros())? * per_s / 1_000_000,
            };
            for _ in 0..due.saturating_sub(under.sent).min(BURST) {
                under.send()?;
            }
            if under.receive()? > 0 {
                quiet_since = Instant::now();
            } else if quiet_since.elapsed() > LOST {
                lost = under.sent - under.answered;
                quiet_since = Instant::now();
            }
            if counted_from.is_none() && elapsed >= time / WARM_UP {
                counted_from = Some((Instant::now(), under.sent, under.answered));
                under.times.clear();
            }
        }
        let (from, sent, answered) = counted_from.context("the time was too short")?;
        let per_s = |count: u64| count as f64 / from.elapsed().as_secs_f64();
        Ok(Flooded {
            offered_per_s: per_s(under.sent - sent),
            answered_per_s: per_s(under.answered - answered),
            p50_us: under.times.percentile_us(50.0),
        })
    }
}

impl Under {
    fn now_ns(&self) -> anyhow::Result<u64> {
        u64::try_from(self.began.elapsed().as_nanos()).context("invariant: a flood ends")
    }

    fn send(&mut self) -> anyhow::Result<()> {
        let mut message = [0; BYTES];
        message[..8].copy_from_slice(&self.now_ns()?.to_le_bytes());
        match self.socket.send(&message) {
            // What finds no room is lost like any other datagram.
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            Err(error) => return Err(error).context("sending"),
        }
        self.sent += 1;
        Ok(())
    }

    /// Takes the answers that are there.
    fn receive(&mut self) -> anyhow::Result<u64> {
        let mut message = [0; BYTES];
        for count in 0.. {
            match self.socket.recv(&mut message) {
                Ok(_) => {
                    let mut sent = [0; 8];
                    sent.copy_from_slice(&message[..8]);
                    let now_ns = self.now_ns()?;
                    let ns = now_ns.saturating_sub(u64::from_le_bytes(sent));
                    self.times.add(Duration::from_nanos(ns));
                    self.answered += 1;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(count),
                Err(error) => return Err(error).context("receiving"),
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_counts_what_was_sent_and_what_was_answered() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: SocketAddrV4 = free.local_addr().unwrap().to_string().parse().unwrap();
        drop(free);
        let answer = Answer {
            address,
            compute_ns: 1000,
        };
        std::thread::spawn(move || answer.run());
        while std::net::TcpStream::connect(address).is_err() {
            std::thread::yield_now();
        }
        let flood = |per_s| Flood {
            address,
            milliseconds: 200,
            per_s,
        };
        let few = flood(1000).run().unwrap();
        assert!(few.answered_per_s > 0.0 && few.p50_us.is_some(), "{few:?}");
        assert!(few.offered_per_s < 2000.0, "{few:?}");
        let all = flood(0).run().unwrap();
        assert!(all.answered_per_s > 0.0 && all.p50_us.is_some(), "{all:?}");
    }
}
