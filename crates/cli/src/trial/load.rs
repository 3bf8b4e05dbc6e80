//! The two ends of a trial: a server that computes for a known time per request, and clients that wait
//! for each answer. Plain sockets of the C library, one thread each, so that the same program runs on
//! the kernel and under `shunt run`.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddrV4, TcpListener, TcpStream},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::sys::Epoll;
use crate::output;

/// One end of a trial.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    end: End,
}

#[derive(Debug, Subcommand)]
enum End {
    /// Answer requests until killed
    Serve(Serve),
    /// Ask over some connections, one request at a time on each
    Ask(Ask),
}

#[derive(Debug, Args)]
struct Serve {
    #[arg(long)]
    address: SocketAddrV4,
    #[arg(long, default_value_t = 64)]
    request_bytes: usize,
    #[arg(long, default_value_t = 64)]
    response_bytes: usize,
    /// Computation per request
    #[arg(long, default_value_t = 0)]
    compute_ns: u64,
    /// Write all answers of a wake-up at its end
    #[arg(long)]
    together: bool,
}

#[derive(Debug, Args)]
struct Ask {
    #[arg(long)]
    address: SocketAddrV4,
    #[arg(long, default_value_t = 1)]
    connections: usize,
    #[arg(long, default_value_t = 1000)]
    milliseconds: u64,
    #[arg(long, default_value_t = 64)]
    request_bytes: usize,
    #[arg(long, default_value_t = 64)]
    response_bytes: usize,
}

/// What the clients saw.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Seen {
    /// Answers per second.
    pub rate_per_s: f64,
    /// Mean time of an exchange.
    pub mean_us: f64,
    /// Its median.
    pub p50_us: f64,
    /// Its 99th percentile.
    pub p99_us: f64,
    /// The clients' processor time per exchange.
    pub client_ns: f64,
}

/// More connections than this no trial has.
const MOST_CONNECTIONS: usize = 1024;
/// Part of the time before anything counts.
const WARM_UP: u32 = 4;
/// A trial that has not ended by then has failed.
const GRACE: Duration = Duration::from_secs(5);
/// Messages up to this size; a response waits in the socket's buffer while its reader is busy.
const MOST_BYTES: usize = 64 << 10;

/// Runs one end.
pub fn execute(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.end {
        End::Serve(serve) => serve.run(),
        End::Ask(ask) => {
            let text = serde_json::to_string(&ask.run()?).context("composing JSON")?;
            output::print(&(text + "\n"))
        }
    }
}

/// A connection and how much of a message has come over it.
#[derive(Debug)]
struct Peer {
    stream: TcpStream,
    received: usize,
    asked: Instant,
}

impl Peer {
    fn new(stream: TcpStream) -> anyhow::Result<Self> {
        stream.set_nodelay(true).context("TCP_NODELAY")?;
        Ok(Self {
            stream,
            received: 0,
            asked: Instant::now(),
        })
    }

    /// Reads once; how many whole messages of this size are there now, none at the end of the stream.
    fn read(&mut self, buffer: &mut [u8], message: usize) -> anyhow::Result<Option<usize>> {
        let count = match self.stream.read(buffer) {
            Ok(0) => return Ok(None),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error).context("receiving"),
        };
        self.received += count;
        let whole = self.received / message;
        self.received %= message;
        Ok(Some(whole))
    }
}

fn message(bytes: usize) -> anyhow::Result<Vec<u8>> {
    ensure!(
        (1..=MOST_BYTES).contains(&bytes),
        "a message has 1 to {MOST_BYTES} bytes"
    );
    Ok(vec![0x5a; bytes])
}

impl Serve {
    fn run(&self) -> anyhow::Result<()> {
        let response = message(self.response_bytes)?;
        let mut buffer = message(self.request_bytes)?;
        let listener = TcpListener::bind(self.address)
            .with_context(|| format!("listening at {}", self.address))?;
        let epoll = Epoll::create().context("epoll")?;
        epoll.add(listener.as_fd(), 0).context("epoll")?;
        let mut peers: Vec<Option<Peer>> = Vec::new();
        let compute = Duration::from_nanos(self.compute_ns);
        let mut owed: Vec<(usize, usize)> = Vec::new();
        loop {
            for (index, answers) in owed.drain(..) {
                if let Some(Some(peer)) = peers.get_mut(index) {
                    for _ in 0..answers {
                        // Whoever has gone is found out by the next read.
                        let _ = peer.stream.write_all(&response);
                    }
                }
            }
            for number in epoll.wait(-1).context("epoll")? {
                let Some(index) = usize::try_from(number)?.checked_sub(1) else {
                    let (stream, _) = listener.accept().context("accepting")?;
                    peers.push(Some(Peer::new(stream)?));
                    ensure!(peers.len() < 100 * MOST_CONNECTIONS, "too many connections");
                    if let Some(Some(peer)) = peers.last() {
                        let number = u64::try_from(peers.len())?;
                        epoll.add(peer.stream.as_fd(), number).context("epoll")?;
                    }
                    continue;
                };
                let Some(Some(peer)) = peers.get_mut(index) else {
                    continue;
                };
                match peer.read(&mut buffer, self.request_bytes)? {
                    None => peers[index] = None,
                    Some(requests) => {
                        for _ in 0..requests {
                            spin(compute);
                            if self.together {
                                continue;
                            }
                            let _ = peer.stream.write_all(&response);
                        }
                        if self.together {
                            owed.push((index, requests));
                        }
                    }
                }
            }
        }
    }
}

/// Computes for some time.
fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

impl Ask {
    fn run(&self) -> anyhow::Result<Seen> {
        ensure!(
            (1..=MOST_CONNECTIONS).contains(&self.connections),
            "connections must be 1 to {MOST_CONNECTIONS}"
        );
        let request = message(self.request_bytes)?;
        let mut buffer = message(self.response_bytes)?;
        let epoll = Epoll::create().context("epoll")?;
        let mut peers = Vec::new();
        for number in 0..self.connections {
            let stream = TcpStream::connect(self.address)
                .with_context(|| format!("connecting to {}", self.address))?;
            epoll
                .add(stream.as_fd(), u64::try_from(number)?)
                .context("epoll")?;
            peers.push(Peer::new(stream)?);
        }
        for peer in &mut peers {
            peer.asked = Instant::now();
            peer.stream.write_all(&request).context("sending")?;
        }
        let time = Duration::from_millis(self.milliseconds);
        let (began, warm) = (Instant::now(), time / WARM_UP);
        let mut counted_from = None;
        let mut times_ns: Vec<u64> = Vec::new();
        loop {
            for number in epoll.wait(1000).context("epoll")? {
                let peer = &mut peers[usize::try_from(number)?];
                let Some(whole) = peer.read(&mut buffer, self.response_bytes)? else {
                    bail!("the server closed a connection");
                };
                for _ in 0..whole {
                    let now = Instant::now();
                    if counted_from.is_some() {
                        times_ns.push(u64::try_from((now - peer.asked).as_nanos())?);
                    }
                    peer.asked = now;
                    peer.stream.write_all(&request).context("sending")?;
                }
            }
            let elapsed = began.elapsed();
            if counted_from.is_none() && elapsed >= warm {
                counted_from = Some((Instant::now(), processor_s()));
            }
            if elapsed >= time {
                break;
            }
            ensure!(elapsed < time + GRACE, "the server does not answer");
        }
        let (from, processor_from) = counted_from.context("the time was too short")?;
        seen(times_ns, from.elapsed(), processor_s() - processor_from)
    }
}

fn seen(mut times_ns: Vec<u64>, time: Duration, processor_s: f64) -> anyhow::Result<Seen> {
    times_ns.sort_unstable();
    let count = times_ns.len();
    ensure!(count > 0, "nothing was answered");
    let at = |percent: usize| times_ns[(count * percent / 100).min(count - 1)] as f64 / 1e3;
    Ok(Seen {
        rate_per_s: count as f64 / time.as_secs_f64(),
        mean_us: times_ns.iter().sum::<u64>() as f64 / count as f64 / 1e3,
        p50_us: at(50),
        p99_us: at(99),
        client_ns: processor_s * 1e9 / count as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_see_every_answer_of_a_server_that_computes() {
        for together in [false, true] {
            asked_of_a_server(together);
        }
    }

    fn asked_of_a_server(together: bool) {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string().parse().unwrap();
        drop(free);
        let serve = Serve {
            address,
            request_bytes: 100,
            response_bytes: 3000,
            compute_ns: 1000,
            together,
        };
        std::thread::spawn(move || serve.run());
        while TcpStream::connect(address).is_err() {
            std::thread::yield_now();
        }
        let ask = Ask {
            address,
            connections: 3,
            milliseconds: 40,
            request_bytes: 100,
            response_bytes: 3000,
        };
        let seen = ask.run().unwrap();
        assert!(seen.rate_per_s > 1.0 && seen.client_ns > 0.0);
        assert!(seen.mean_us >= 1.0 && seen.p50_us <= seen.p99_us);
    }

    #[test]
    fn percentiles_are_those_of_the_times() {
        let times = (1..=1000).rev().map(|us| us * 1000).collect();
        let seen = seen(times, Duration::from_secs(1), 0.001).unwrap();
        assert_eq!((seen.p50_us, seen.p99_us), (501.0, 991.0));
        assert!((seen.mean_us - 500.5).abs() < 1e-9 && (seen.client_ns - 1000.0).abs() < 1e-9);
    }
}
