//! A server that computes for a known time per request, and clients that wait for each answer: one thread each,
//! epoll over many connections.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddrV4, TcpListener, TcpStream},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};
use serde::{Deserialize, Serialize};

use statistics::Times;

use super::sys::Epoll;

/// Answer requests until killed.
#[derive(Debug, Args)]
pub struct Serve {
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

/// Ask over some connections, one request at a time on each.
#[derive(Debug, Args)]
pub struct Ask {
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
    /// What the clients did per exchange.
    pub client: Each,
    /// What the server did per exchange.
    pub server: Each,
}

/// What one end did per exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Each {
    /// Times that it came back from waiting with something to do.
    pub turns: f64,
    /// Times that its thread went to sleep.
    pub sleeps: f64,
    /// Processor time of its process; where it waits awake that is in it.
    pub processor_ns: f64,
}

/// What one end has done since it began.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    exchanges: u64,
    turns: u64,
    sleeps: u64,
    processor_ns: u64,
}

impl Done {
    /// Fills in what the system counts.
    fn now(mut self) -> Self {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        // Neither is negative.
        self.processor_ns = u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
            + u64::try_from(time.tv_nsec).unwrap_or(0);
        self.sleeps = super::sys::sleeps_of_this_thread();
        self
    }

    fn write(self, message: &mut [u8]) {
        let numbers = [self.exchanges, self.turns, self.sleeps, self.processor_ns];
        for (place, number) in message.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
    }

    fn read(message: &[u8]) -> Self {
        let mut numbers = message.chunks_exact(8).map(|place| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(place);
            u64::from_le_bytes(bytes)
        });
        let mut next = || numbers.next().unwrap_or(0);
        Self {
            exchanges: next(),
            turns: next(),
            sleeps: next(),
            processor_ns: next(),
        }
    }

    fn each_since(self, before: Self) -> Each {
        let exchanges = self.exchanges.saturating_sub(before.exchanges).max(1) as f64;
        let each = |now: u64, before: u64| now.saturating_sub(before) as f64 / exchanges;
        Each {
            turns: each(self.turns, before.turns),
            sleeps: each(self.sleeps, before.sleeps),
            processor_ns: each(self.processor_ns, before.processor_ns),
        }
    }
}

const MOST_CONNECTIONS: usize = 16_384;
/// Part of the time before anything counts.
const WARM_UP: u32 = 4;
/// What has not ended by then has failed.
const GRACE: Duration = Duration::from_secs(5);
/// First byte of a request that asks what the server has done, and the least size of its answer.
const ASKS_WHAT_WAS_DONE: u8 = 0xc3;
const LEAST_BYTES: usize = 32;
/// Messages up to this size; a response waits in the socket's buffer while its reader is busy.
const MOST_BYTES: usize = 64 << 10;

/// A connection and how much of a message has come over it.
#[derive(Debug)]
struct Peer {
    stream: TcpStream,
    received: usize,
    asks_what_was_done: bool,
    asked: Instant,
}

impl Peer {
    fn new(stream: TcpStream) -> anyhow::Result<Self> {
        stream.set_nodelay(true).context("TCP_NODELAY")?;
        Ok(Self {
            stream,
            received: 0,
            asks_what_was_done: false,
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
        if self.received == 0 {
            self.asks_what_was_done = buffer.first() == Some(&ASKS_WHAT_WAS_DONE);
        }
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

/// What [`MOST_CONNECTIONS`] need, twice as many with an engine inside; or as many as may be: a limit that is too low shows where the
/// descriptor is asked for.
fn allow_descriptors() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let needed = u64::try_from(3 * MOST_CONNECTIONS).ok();
    // No maximum is more than any.
    let raised = [maximum.and_then(|_| needed.max(maximum)), maximum];
    let _ = raised.into_iter().any(|limit| {
        let both = Rlimit {
            current: limit,
            maximum: limit,
        };
        setrlimit(Resource::Nofile, both).is_ok()
    });
}

impl Serve {
    /// Serves.
    pub fn run(&self) -> anyhow::Result<()> {
        let response = message(self.response_bytes)?;
        ensure!(
            response.len() >= LEAST_BYTES,
            "a response has {LEAST_BYTES} bytes at least"
        );
        let mut buffer = message(self.request_bytes)?;
        allow_descriptors();
        let listener = TcpListener::bind(self.address)
            .with_context(|| format!("listening at {}", self.address))?;
        let epoll = Epoll::create().context("epoll")?;
        epoll.add(listener.as_fd(), 0).context("epoll")?;
        let mut peers: Vec<Option<Peer>> = Vec::new();
        let work = Duration::from_nanos(self.compute_ns);
        let mut owed: Vec<(usize, usize)> = Vec::new();
        let mut done = Done::default();
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
                    accept(&listener, &epoll, &mut peers)?;
                    continue;
                };
                let Some(Some(peer)) = peers.get_mut(index) else {
                    continue;
                };
                let Some(requests) = peer.read(&mut buffer, self.request_bytes)? else {
                    peers[index] = None;
                    continue;
                };
                if peer.asks_what_was_done {
                    let mut answer = response.clone();
                    done.now().write(&mut answer);
                    let _ = peer.stream.write_all(&answer);
                    continue;
                }
                done.exchanges += requests as u64;
                for _ in 0..requests {
                    compute(work);
                    if !self.together {
                        let _ = peer.stream.write_all(&response);
                    }
                }
                if self.together {
                    owed.push((index, requests));
                }
            }
            done.turns += 1;
        }
    }
}

/// Takes a new connection and waits for what comes over it.
fn accept(
    listener: &TcpListener,
    epoll: &Epoll,
    peers: &mut Vec<Option<Peer>>,
) -> anyhow::Result<()> {
    let (stream, _) = listener.accept().context("accepting")?;
    peers.push(Some(Peer::new(stream)?));
    ensure!(peers.len() < 8 * MOST_CONNECTIONS, "too many connections");
    if let Some(Some(peer)) = peers.last() {
        let number = u64::try_from(peers.len())?;
        epoll.add(peer.stream.as_fd(), number).context("epoll")?;
    }
    Ok(())
}

/// Computes for some time.
pub fn compute(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

impl Ask {
    /// Asks for the time that was given.
    pub fn run(&self) -> anyhow::Result<Seen> {
        ensure!(
            (1..=MOST_CONNECTIONS).contains(&self.connections),
            "connections must be 1 to {MOST_CONNECTIONS}"
        );
        let request = message(self.request_bytes)?;
        let mut buffer = message(self.response_bytes)?;
        allow_descriptors();
        let epoll = Epoll::create().context("epoll")?;
        let mut peers = Vec::new();
        let mut watch = self.connect()?;
        for number in 0..self.connections {
            let stream = self.connect()?;
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
        let mut times = Times::default();
        let mut done = Done::default();
        loop {
            for number in epoll.wait(1000).context("epoll")? {
                let peer = &mut peers[usize::try_from(number)?];
                let Some(whole) = peer.read(&mut buffer, self.response_bytes)? else {
                    bail!("the server closed a connection");
                };
                done.exchanges += whole as u64;
                for _ in 0..whole {
                    let now = Instant::now();
                    if counted_from.is_some() {
                        times.add(now - peer.asked);
                    }
                    peer.asked = now;
                    peer.stream.write_all(&request).context("sending")?;
                }
            }
            done.turns += 1;
            let elapsed = began.elapsed();
            if counted_from.is_none() && elapsed >= warm {
                let server = self.done_by_the_server(&mut watch)?;
                counted_from = Some((Instant::now(), done.now(), server));
            }
            if elapsed >= time {
                break;
            }
            ensure!(elapsed < time + GRACE, "the server does not answer");
        }
        let (from, before, server_before) = counted_from.context("the time was too short")?;
        let (time, client) = (from.elapsed(), done.now().each_since(before));
        let server = self.done_by_the_server(&mut watch)?;
        seen(&times, time, client, server.each_since(server_before))
    }

    fn connect(&self) -> anyhow::Result<TcpStream> {
        TcpStream::connect(self.address).with_context(|| format!("connecting to {}", self.address))
    }

    /// Asks the server, over a connection of its own.
    fn done_by_the_server(&self, watch: &mut TcpStream) -> anyhow::Result<Done> {
        let mut request = message(self.request_bytes)?;
        request[0] = ASKS_WHAT_WAS_DONE;
        let mut answer = message(self.response_bytes)?;
        watch.write_all(&request).context("sending")?;
        watch.read_exact(&mut answer).context("receiving")?;
        Ok(Done::read(&answer))
    }
}

fn seen(times: &Times, time: Duration, client: Each, server: Each) -> anyhow::Result<Seen> {
    let nothing = "nothing was answered";
    Ok(Seen {
        rate_per_s: times.count() as f64 / time.as_secs_f64(),
        mean_us: times.mean_us().context(nothing)?,
        p50_us: times.percentile_us(50.0).context(nothing)?,
        p99_us: times.percentile_us(99.0).context(nothing)?,
        client_ns: client.processor_ns,
        client,
        server,
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
        // The server takes what has come meanwhile at once: one to three requests a turn.
        for each in [seen.client, seen.server] {
            assert!((0.3..1.2).contains(&each.turns), "{each:?}");
        }
        assert!(seen.server.processor_ns > 1000.0, "{seen:?}");
    }
}
