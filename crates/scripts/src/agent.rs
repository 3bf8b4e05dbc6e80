//! The program on the host under test: makes the socket calls that a script asks for, through libc's
//! functions, so that a preloaded library serves them.
//!
//! Protocol, on a socket that is its standard input: a command is a line `ID MAKES NAME SOCKET ARGUMENT…`
//! (`-` where a field has nothing); each is made by a thread of its own, because it may block. The agent
//! answers `ID started` and, when the call has returned, `ID done NANOSECONDS RESULT`, where the time is
//! since the epoch and the result a number or the name of an error.

mod calls;
mod errno;
mod options;
mod setup;
mod sys;

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    net::{IpAddr, SocketAddr},
    os::fd::RawFd,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::fd::OwnedFd;

/// The byte at this position of each stream, both ways: a period that divides no usual size.
pub fn pattern(position: u64) -> u8 {
    u8::try_from(position % 251).expect("invariant: a remainder of 251")
}

/// Whom the scripted peer pretends to be, and who we are.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Address of the host under test.
    pub host: IpAddr,
    /// Port that its listeners bind.
    pub port: u16,
    /// Address of the peer.
    pub peer: IpAddr,
}

/// Port of the peer on its `flow`-th connection.
pub fn peer_port(flow: u16) -> u16 {
    20_000 + flow
}

/// A socket by its name in the script.
#[derive(Debug)]
struct Socket {
    fd: RawFd,
    /// Bytes sent and received so far.
    position: Mutex<(u64, u64)>,
}

/// What the calls share.
struct Agent {
    addresses: Addresses,
    sockets: Mutex<HashMap<String, Arc<Socket>>>,
    answers: Mutex<UnixStream>,
}

struct Command {
    id: String,
    makes: Option<String>,
    name: String,
    socket: String,
    arguments: Vec<String>,
}

impl Command {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace().map(str::to_owned);
        Some(Self {
            id: words.next()?,
            makes: words.next().filter(|name| name != "-"),
            name: words.next()?,
            socket: words.next()?,
            arguments: words.collect(),
        })
    }

    fn argument(&self, index: usize) -> Option<&str> {
        self.arguments.get(index).map(String::as_str)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Agent {
    fn answer(&self, text: &str) {
        // The runner may be gone; then nobody waits for an answer, and the next read ends us.
        let _ = locked(&self.answers).write_all(text.as_bytes());
    }

    fn perform(&self, command: &Command) {
        self.answer(&format!("{} started\n", command.id));
        let result = calls::make(self, command);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanoseconds = now.map_or(0, |since| since.as_nanos());
        self.answer(&format!("{} done {nanoseconds} {result}\n", command.id));
    }
}

/// Serves commands on `channel` until its other end is closed.
///
/// # Errors
/// Where the channel fails.
pub fn serve(channel: OwnedFd, addresses: Addresses) -> std::io::Result<()> {
    let channel = UnixStream::from(channel);
    let agent = Arc::new(Agent {
        addresses,
        sockets: Mutex::default(),
        answers: Mutex::new(channel.try_clone()?),
    });
    for line in BufReader::new(channel).lines() {
        let Some(command) = Command::parse(&line?) else {
            continue;
        };
        let agent = Arc::clone(&agent);
        std::thread::spawn(move || agent.perform(&command));
    }
    Ok(())
}

impl Addresses {
    /// Where a socket binds.
    fn own(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.host, port)
    }

    /// Where a connection goes.
    fn remote(&self, flow: u16) -> SocketAddr {
        SocketAddr::new(self.peer, peer_port(flow))
    }
}
