//! The runner's end of an agent: commands out, answers in.

use std::{
    collections::{HashMap, VecDeque},
    io::{ErrorKind, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

/// How long something may take that takes a millisecond.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running agent; it ends with this value.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    channel: UnixStream,
    unread: Vec<u8>,
    started: VecDeque<u64>,
    done: HashMap<u64, Done>,
    next: u64,
}

/// A call that has returned.
#[derive(Clone, Debug)]
pub struct Done {
    /// When, ns since the epoch.
    pub at_ns: i64,
    /// What.
    pub result: String,
}

impl Agent {
    /// Starts the command, which is to be an agent.
    pub fn start(mut command: Command) -> anyhow::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        command.stdout(Stdio::null());
        let child = command.spawn().context("starting an agent")?;
        Ok(Self {
            child,
            channel: ours,
            unread: Vec::new(),
            started: VecDeque::new(),
            done: HashMap::new(),
            next: 0,
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What becomes readable when the agent has said something.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Asks for a call; returns its number.
    pub fn send(
        &mut self,
        makes: Option<&str>,
        name: &str,
        socket: &str,
        arguments: &[String],
    ) -> anyhow::Result<u64> {
        self.next += 1;
        let number = self.next;
        let makes = makes.unwrap_or("-");
        let line = format!("{number} {makes} {name} {socket} {}\n", arguments.join(" "));
        self.channel
            .write_all(line.as_bytes())
            .context("the agent is gone")?;
        Ok(number)
    }

    /// Takes what has been said, without waiting.
    pub fn read(&mut self) -> anyhow::Result<()> {
        let mut bytes = [0; 4096];
        loop {
            match self.channel.read(&mut bytes) {
                Ok(0) => bail!("the agent has ended"),
                Ok(len) => self.unread.extend(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("the agent is gone"),
            }
        }
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            self.take(&String::from_utf8_lossy(&line));
        }
        Ok(())
    }

    fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words.as_slice() {
            [number, "started"] => self.started.extend(number.parse::<u64>().ok()),
            [number, "done", at, result] => {
                if let (Ok(number), Ok(at_ns)) = (number.parse(), at.parse()) {
                    let result = result.to_owned();
                    self.done.insert(number, Done { at_ns, result });
                }
            }
            _ => {}
        }
    }

    /// Whether that call has begun.
    pub fn has_started(&self, number: u64) -> bool {
        self.started.contains(&number)
    }

    /// The result of that call, once it has returned.
    pub fn take_done(&mut self, number: u64) -> Option<Done> {
        self.done.remove(&number)
    }

    /// Makes a call that never blocks, and waits for its result.
    pub fn ask(
        &mut self,
        name: &str,
        socket: &str,
        arguments: &[String],
    ) -> anyhow::Result<String> {
        self.ask_for(None, name, socket, arguments)
    }

    /// The same for a call that makes a socket of that name.
    pub fn ask_for(
        &mut self,
        makes: Option<&str>,
        name: &str,
        socket: &str,
        arguments: &[String],
    ) -> anyhow::Result<String> {
        let number = self.send(makes, name, socket, arguments)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.read()?;
            if let Some(done) = self.take_done(number) {
                return Ok(done.result);
            }
            if Instant::now() > deadline {
                bail!("{name} took longer than {} s", PATIENCE.as_secs());
            }
            let mut fds = [rustix::event::PollFd::new(
                &self.channel,
                rustix::event::PollFlags::IN,
            )];
            let limit = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 100_000_000,
            };
            let _ = rustix::event::poll(&mut fds, Some(&limit));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
