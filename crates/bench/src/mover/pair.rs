//! One transfer by two programs: a server that is started first, and a client that ends when it is done. Time, and
//! the processor time of both with all that they start.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    os::fd::OwnedFd,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use load::interrupt::Interrupt;
use observe::process::{cpu_with_descendants_s, family};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

use super::site::Site;

/// How long a server may take until it listens, and to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a transfer may take, whatever its size, and how many bytes a second it must move beyond that: a program that
/// stalls is told of, and the others have their turn.
const TRANSFER: Duration = Duration::from_secs(30);
const LEAST_BYTES_PER_S: u64 = 50_000_000;

pub struct Pair {
    /// Listens on `port`.
    pub server: Command,
    pub port: u16,
    /// It serves others after this one, and is ended; otherwise its own end is part of the transfer.
    pub is_lasting: bool,
    /// Connects, and ends with status 0 when it is done.
    pub client: Command,
    /// Processes that work for both, and whose processor time counts.
    pub beside: Vec<u32>,
}

/// What a transfer took.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// From the client's start to both ends' end, and to the stored file's fdatasync.
    pub seconds: f64,
    /// Processor time of both.
    pub cpu_s: f64,
}

/// A port that nobody uses at this moment.
pub fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("finding a free port")?;
    Ok(listener.local_addr()?.port())
}

impl Pair {
    /// Both end with the transfer.
    pub fn once(server: Command, port: u16, client: Command) -> Self {
        Self {
            server,
            port,
            is_lasting: false,
            client,
            beside: Vec::new(),
        }
    }

    /// The server is ended after it.
    pub fn lasting(server: Command, port: u16, client: Command) -> Self {
        Self {
            is_lasting: true,
            ..Self::once(server, port, client)
        }
    }

    pub fn run(self, site: &Site) -> anyhow::Result<Took> {
        let mut server = Running::start(self.server, site.aside("server.log"))?;
        server.await_listening(self.port, &site.interrupt)?;
        let before = cpu_with_descendants_s(server.pid());
        let beside = || -> f64 {
            self.beside
                .iter()
                .map(|&pid| cpu_with_descendants_s(pid))
                .sum()
        };
        let beside_before = beside();
        let begun = Instant::now();
        let mut client = Running::start(self.client, site.aside("client.log"))?;
        client.finish(&site.interrupt, patience(site.bytes))?;
        let client_cpu = client.cpu_s;
        if !self.is_lasting {
            server.finish(&site.interrupt, patience(site.bytes))?;
        }
        if let Ok(stored) = File::open(site.stored()) {
            stored.sync_data().context("syncing what was stored")?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let server_cpu = if self.is_lasting {
            cpu_with_descendants_s(server.pid()) - before
        } else {
            server.cpu_s
        };
        Ok(Took {
            seconds,
            cpu_s: client_cpu + server_cpu + beside() - beside_before,
        })
    }
}

/// How long a transfer of so many bytes may take.
fn patience(bytes: u64) -> Duration {
    TRANSFER + Duration::from_secs(bytes / LEAST_BYTES_PER_S)
}

/// A program that was started; it and what it has started are ended when this goes.
struct Running {
    name: String,
    child: Child,
    handle: OwnedFd,
    log: PathBuf,
    is_over: bool,
    cpu_s: f64,
}

impl Running {
    fn start(mut command: Command, log: PathBuf) -> anyhow::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let output = File::create(&log).context("making a log")?;
        // Where standard output is the file that is stored, it was set already; stderr is always ours.
        command.stderr(Stdio::from(output));
        let child = command
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.context("a process without a number")?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).context("watching a process")?;
        Ok(Self {
            name,
            child,
            handle,
            log,
            is_over: false,
            cpu_s: 0.0,
        })
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it ends within this time.
    fn ends_within(&self, time: Duration) -> bool {
        let time = Timespec::try_from(time).ok();
        let mut entries = [PollFd::new(&self.handle, PollFlags::IN)];
        matches!(poll(&mut entries, time.as_ref()), Ok(1..))
    }

    /// Waits so long for its end, which must be a good one; notes its processor time.
    fn finish(&mut self, interrupt: &Interrupt, patience: Duration) -> anyhow::Result<()> {
        const LOOK: Duration = Duration::from_millis(100);
        let until = Instant::now() + patience;
        while !self.ends_within(LOOK) {
            interrupt.check()?;
            if Instant::now() > until {
                bail!("{} did not end in {} s", self.name, patience.as_secs());
            }
        }
        // It can be read until somebody waits for the process.
        self.cpu_s = cpu_with_descendants_s(self.pid());
        let status = self.child.wait().context("waiting for a process")?;
        self.is_over = true;
        interrupt.check()?;
        if !status.success() {
            bail!("{} ended with {status}: {}", self.name, self.said());
        }
        Ok(())
    }

    /// The end of what it said.
    fn said(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("; ")
    }

    fn await_listening(&mut self, port: u16, interrupt: &Interrupt) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        while !is_listening(self.pid(), port) {
            interrupt.check()?;
            if self.ends_within(Duration::from_millis(2)) {
                bail!("{} ended before it listened: {}", self.name, self.said());
            }
            if Instant::now() > until {
                bail!("{} does not listen on {port}: {}", self.name, self.said());
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let all = family(self.pid());
        for signal in [Signal::TERM, Signal::KILL] {
            for pid in all.iter().filter_map(|pid| i32::try_from(*pid).ok()) {
                if let Some(pid) = Pid::from_raw(pid) {
                    // Over already, perhaps.
                    let _ = kill_process(pid, signal);
                }
            }
            if self.ends_within(PATIENCE) {
                break;
            }
        }
        let _ = self.child.wait();
    }
}

/// Whether somebody listens on a port of a process's network namespace, see proc_net_tcp(5). Asking by connecting would use
/// up a server for one connection.
fn is_listening(pid: u32, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        text.lines().any(|line| {
            let mut words = line.split_ascii_whitespace().skip(1);
            let (local, state) = (words.next().unwrap_or_default(), words.nth(1));
            local.ends_with(&port) && state == Some(LISTEN)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_listener_is_seen_without_a_connection() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_listening(std::process::id(), port));
        drop(listener);
        // A process that another test is starting may hold a copy for a moment.
        let until = Instant::now() + PATIENCE;
        while is_listening(std::process::id(), port) {
            assert!(Instant::now() < until, "it listens for ever");
        }
    }

    #[test]
    fn the_time_of_what_a_program_has_started_counts_and_a_bad_end_is_told() {
        let log = std::env::temp_dir().join(format!("shunt-pair-{}", std::process::id()));
        let busy = "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'";
        let mut running = Running::start(shell(busy), log.clone()).unwrap();
        running.finish(&Interrupt::default(), patience(0)).unwrap();
        assert!(running.cpu_s > 0.0);
        let mut running = Running::start(shell("echo no >&2; exit 3"), log.clone()).unwrap();
        let error = running.finish(&Interrupt::default(), patience(0));
        let error = error.unwrap_err();
        assert!(error.to_string().contains("3: no"), "{error}");
        // One that stalls is ended with those that it has started.
        let mut running = Running::start(shell("sleep 1000 & wait"), log.clone()).unwrap();
        let error = running.finish(&Interrupt::default(), Duration::ZERO);
        assert!(error.unwrap_err().to_string().contains("did not end"));
        drop(running);
        fs::remove_file(log).unwrap();
    }
}
