//! Trials: one server and its clients in a lab of two hosts, on the kernel, with Shunt's engine inside the
//! server, or with an engine beside it. What the simulator's costs are measured with, and what its
//! predictions are held against.
//!
//! Everything has a processor of its own as far as there are enough: clients on the first one, the server on
//! the last; an engine takes the last one and the server then shares the clients'.

pub mod quiet;

use std::{
    ffi::OsString,
    fmt,
    net::SocketAddrV4,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use lab::{Host, INTERFACE, Lab, LabSpec, Program, own_binary};
use observe::{machine_s, processor_s};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{flood::Flooded, idle::IdleLatency, interrupt::Interrupt, requests::Seen, sys};

/// Whose TCP the server uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// The kernel's.
    Kernel,
    /// Shunt's, in the server's own process.
    Inline,
    /// The same over AF_XDP.
    AfXdp,
    /// Shunt's, on a processor of its own.
    Engine,
}

impl Stack {
    /// All, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Kernel, Self::Inline, Self::AfXdp, Self::Engine];

    /// Its name in presets and workloads.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Inline => "inline",
            Self::AfXdp => "af_xdp",
            Self::Engine => "engine",
        }
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is asked of the server.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// Size of a request.
    pub request_bytes: usize,
    /// Size of a response.
    pub response_bytes: usize,
    /// Computation per request.
    pub compute_ns: u64,
    /// All answers of a wake-up are written together at its end, as redis does, and not each at once.
    pub together: bool,
}

/// How long programs may take to be ready or to end.
const PATIENCE: Duration = Duration::from_secs(10);
const PORT: u16 = 7007;
const SERVING: &str = "a";
const ASKING: &str = "b";

/// Two hosts on a cable. Dropping it removes them.
#[derive(Debug)]
pub struct Testbed {
    lab: Lab,
    idle: IdleLatency,
    interrupt: Interrupt,
    processors: Vec<usize>,
}

/// A server that answers, on its stack. Dropping it ends it, then its engine.
#[derive(Debug)]
pub struct Server {
    program: Program,
    engine: Option<Program>,
    address: SocketAddrV4,
}

impl Testbed {
    /// Builds the lab.
    pub fn create(interrupt: Interrupt) -> anyhow::Result<Self> {
        let allowed = sched_getaffinity(None).context("reading this process's processors")?;
        let processors: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|&cpu| allowed.is_set(cpu))
            .collect();
        ensure!(
            processors.len() >= 2,
            "a trial needs two processors, one for clients and one for the server"
        );
        let name = format!("trial-{}", std::process::id());
        Ok(Self {
            lab: Lab::temporary(&name, &LabSpec::default())?,
            idle: IdleLatency::hold(),
            interrupt,
            processors,
        })
    }

    /// Why processors are not kept from deep idle states; `None`: they are, for every stack alike.
    pub fn idle_not_held(&self) -> Option<&'static str> {
        self.idle.why_not()
    }

    /// Starts the server of trials on a stack.
    pub fn serve(&self, stack: Stack, work: Work) -> anyhow::Result<Server> {
        self.serve_at(stack, PORT, work)
    }

    /// The same at another port: beside one that runs.
    pub fn serve_at(&self, stack: Stack, port: u16, work: Work) -> anyhow::Result<Server> {
        self.serve_program(stack, port, "the server", own_server(work))
    }

    /// Starts a server of datagrams on a stack.
    pub fn serve_datagrams(&self, stack: Stack, compute_ns: u64) -> anyhow::Result<Server> {
        self.serve_program(stack, PORT, "the server", |address| {
            let mut words = load("answer", address);
            words.push(format!("--compute-ns={compute_ns}").into());
            words
        })
    }

    /// Lets a client send datagrams at a rate, or as many as are answered where that is 0.
    pub fn flood(&self, server: &Server, per_s: u64, time: Duration) -> anyhow::Result<Flooded> {
        let mut words = load("flood", server.address);
        words.push(format!("--per-s={per_s}").into());
        words.push(format!("--milliseconds={}", time.as_millis()).into());
        let text = self.client("the client", &words, time)?;
        serde_json::from_str(&text).context("reading what the client saw")
    }

    /// An error once somebody asked this process to end.
    pub fn check_interrupt(&self) -> anyhow::Result<()> {
        self.interrupt.check()
    }

    /// How many processors there are to divide.
    pub fn processors(&self) -> usize {
        self.processors.len()
    }

    /// Starts it beside an engine that sleeps at once when it has nothing to do, so that its processor time is
    /// its work.
    pub fn serve_beside_sleeper(&self, work: Work) -> anyhow::Result<Server> {
        let engine = self.engine(self.lab.host(SERVING)?, &["--spin-us", "0"])?;
        self.start(
            Stack::Engine,
            Some(engine),
            PORT,
            "the server",
            own_server(work),
        )
    }

    /// Starts any program as the server.
    pub fn serve_program(
        &self,
        stack: Stack,
        port: u16,
        name: &str,
        line: impl FnOnce(SocketAddrV4) -> Vec<OsString>,
    ) -> anyhow::Result<Server> {
        let engine = match stack {
            Stack::Engine => Some(self.engine(self.lab.host(SERVING)?, &[])?),
            Stack::Kernel | Stack::Inline | Stack::AfXdp => None,
        };
        self.start(stack, engine, port, name, line)
    }

    fn start(
        &self,
        stack: Stack,
        engine: Option<Program>,
        port: u16,
        name: &str,
        line: impl FnOnce(SocketAddrV4) -> Vec<OsString>,
    ) -> anyhow::Result<Server> {
        let host = self.lab.host(SERVING)?;
        let address = match stack {
            Stack::Kernel => host.spec().address.address,
            Stack::Inline | Stack::AfXdp | Stack::Engine => host.spec().engine_address.address,
        };
        let address = SocketAddrV4::new(address, port);
        let own: OsString = own_binary().into();
        let mut words: Vec<OsString> = match stack {
            Stack::Kernel => Vec::new(),
            Stack::Inline => vec![own, "run".into(), "--engine-mode=inline".into()],
            Stack::AfXdp => {
                let address = host.spec().engine_address.to_string();
                let flags = [
                    "run",
                    "--engine-mode=inline",
                    "--driver",
                    "af_xdp",
                    "--nic",
                    INTERFACE,
                ];
                let mut words = vec![own];
                words.extend(flags.map(OsString::from));
                words.extend(["--address".into(), address.into()]);
                words
            }
            Stack::Engine => vec![own, "run".into()],
        };
        if !words.is_empty() {
            words.extend(["--policy", "engine-only", "--"].map(OsString::from));
        }
        words.extend(line(address));
        let cpu = match stack {
            Stack::Engine => self.first(),
            Stack::Kernel | Stack::Inline | Stack::AfXdp => self.last(),
        };
        let mut program = start_on(cpu, name, host, &words)?;
        let asking = self.lab.host(ASKING)?;
        program.wait_until(&format!("answer at {address}"), PATIENCE, |_| {
            self.interrupt.came() || asking.wait_connect(address.into(), Duration::ZERO).is_ok()
        })?;
        self.interrupt.check()?;
        Ok(Server {
            program,
            engine,
            address,
        })
    }

    fn engine(&self, host: &Host, flags: &[&str]) -> anyhow::Result<Program> {
        let mut words: Vec<OsString> = vec![
            own_binary().into(),
            "engine".into(),
            "--nic".into(),
            INTERFACE.into(),
            "--address".into(),
            host.spec().engine_address.to_string().into(),
            "--cpu".into(),
            self.last().to_string().into(),
        ];
        words.extend(flags.iter().map(OsString::from));
        let mut engine = start_on(self.last(), "shunt engine", host, &words)?;
        engine.wait_bound(hostif::DEFAULT_ENGINE_NAME, PATIENCE, || {
            self.interrupt.came()
        })?;
        Ok(engine)
    }

    /// Lets clients ask for a while.
    pub fn ask(
        &self,
        server: &Server,
        work: Work,
        connections: usize,
        time: Duration,
    ) -> anyhow::Result<Seen> {
        let mut words = load("ask", server.address);
        words.extend([
            format!("--request-bytes={}", work.request_bytes).into(),
            format!("--response-bytes={}", work.response_bytes).into(),
            format!("--connections={connections}").into(),
            format!("--milliseconds={}", time.as_millis()).into(),
        ]);
        let text = self.client("the clients", &words, time)?;
        serde_json::from_str(&text).context("reading what the clients saw")
    }

    /// Runs a client program to its end; what it wrote to standard output.
    pub fn client(&self, name: &str, words: &[OsString], time: Duration) -> anyhow::Result<String> {
        let client = start_on(self.first(), name, self.lab.host(ASKING)?, words)?;
        let interrupt = self.interrupt.clone();
        let finished = client.finish(time + PATIENCE, move || interrupt.came());
        self.interrupt.check()?;
        Ok(finished?.success()?.stdout)
    }

    /// Runs something with this server and says what part of one processor others than the server, its engine and
    /// clients that ended meanwhile used: whoever they are, they disturb it.
    pub fn with_others<T>(
        &self,
        server: &Server,
        run: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, f64)> {
        let own_s = || {
            let engine = server.engine_pid().map_or(0.0, processor_s);
            sys::processor_s_of_ended_children() + processor_s(server.pid()) + engine
        };
        let machine_s = || machine_s().map_or(0.0, |(busy_s, _)| busy_s);
        let (began, own_before, machine_before) = (Instant::now(), own_s(), machine_s());
        let result = run()?;
        let others_s = (machine_s() - machine_before) - (own_s() - own_before);
        Ok((result, (others_s / began.elapsed().as_secs_f64()).max(0.0)))
    }

    fn first(&self) -> usize {
        self.processors.first().copied().unwrap_or(0)
    }

    fn last(&self) -> usize {
        self.processors.last().copied().unwrap_or(0)
    }
}

impl Server {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// The engine beside it.
    pub fn engine_pid(&self) -> Option<u32> {
        self.engine.as_ref().map(Program::serving_pid)
    }
}

/// The command line of the trials' own server.
fn own_server(work: Work) -> impl FnOnce(SocketAddrV4) -> Vec<OsString> {
    move |address| {
        let mut words = load("serve", address);
        words.extend([
            format!("--request-bytes={}", work.request_bytes).into(),
            format!("--response-bytes={}", work.response_bytes).into(),
            format!("--compute-ns={}", work.compute_ns).into(),
        ]);
        words.extend(work.together.then(|| "--together".into()));
        words
    }
}

/// The beginning of the command line of one of a trial's ends.
fn load(end: &str, address: SocketAddrV4) -> Vec<OsString> {
    let mut line = vec![own_binary().into(), "load".into(), end.into()];
    line.push(format!("--address={address}").into());
    line
}

/// Starts a program on one processor: it inherits where this thread may run.
fn start_on(cpu: usize, name: &str, host: &Host, words: &[OsString]) -> anyhow::Result<Program> {
    let command = host.command_line(words, false)?;
    let before = sched_getaffinity(None).context("reading this thread's processors")?;
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).with_context(|| format!("moving to processor {cpu}"))?;
    let started = Program::start(name, command);
    sched_setaffinity(None, &before).context("moving back")?;
    Ok(started?)
}

/// Says what is done, on standard error.
#[derive(Debug, Clone, Copy)]
pub struct Say(Instant);

impl Say {
    /// Counts from now.
    pub fn from_now() -> Self {
        Self(Instant::now())
    }

    /// Says it.
    pub fn say(&self, text: &str) {
        note!("[{:>4} s] {text}", self.0.elapsed().as_secs());
    }
}
