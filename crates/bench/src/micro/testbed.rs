//! Where setups run: a lab of two hosts, and programs on its kernels, on engines and with engines inside.
//!
//! A program with an engine inside gets an address that nobody had before: what the one before left behind
//! (TIME-WAIT, for a minute) serves its address on.

use std::{
    ffi::OsString,
    fs,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use lab::{Finished, FreshAddresses, Host, INTERFACE, Lab, LabSpec, Program, own_binary};
use load::interrupt::Interrupt;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ends::whole_line;
pub use super::ends::{LOAD, On, Placement, SHUNT, Stack};
use crate::{cores, tools};

/// How long a server or an engine may take to be ready.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// How long a client may take, whatever it measures.
const CLIENT_PATIENCE: Duration = Duration::from_secs(30);

/// A program that serves. Dropping it ends the program.
#[derive(Debug)]
pub struct Server {
    program: Program,
}

/// Sizes of one invocation.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Length of a measurement where the program takes any.
    pub seconds: f64,
}

/// The lab and what all setups share.
#[derive(Debug)]
pub struct Testbed {
    pub lab: Lab,
    pub interrupt: Interrupt,
    begun: Instant,
    pub scale: Scale,
    addresses: FreshAddresses,
}

impl Testbed {
    /// Builds the lab, whose cable passes packets of `segment_bytes` in one piece.
    pub fn create(scale: Scale, segment_bytes: u32, interrupt: Interrupt) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let name = format!("bench-{}-{}", std::process::id(), segment_bytes / 1024);
        let spec = LabSpec {
            segment_bytes,
            ..LabSpec::default()
        };
        let lab = Lab::temporary(&name, &spec)?;
        for host in lab.hosts() {
            // Who asks an idle host every few milliseconds wants an answer each time.
            host.set_parameter("net.ipv4.icmp_ratelimit", "0")?;
        }
        Ok(Self {
            lab,
            interrupt,
            begun,
            scale,
            addresses: FreshAddresses::new(),
        })
    }

    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Progress, on standard error.
    pub fn say(&self, text: &str) {
        note!("[{:>4} s] {text}", self.begun.elapsed().as_secs());
    }

    pub fn host(&self, on: On) -> anyhow::Result<&Host> {
        Ok(self.lab.host(on.name())?)
    }

    /// A place for a program.
    pub fn placement(&self, on: On, stack: Stack) -> anyhow::Result<Placement> {
        let spec = self.host(on)?.spec();
        let address = match stack {
            Stack::Kernel | Stack::Left => spec.address.address,
            Stack::Engine(_) | Stack::Placed(_) => spec.engine_address.address,
            Stack::Loopback => Ipv4Addr::LOCALHOST,
            Stack::Inline(..) => self.fresh_address(on)?,
        };
        Ok(Placement {
            on,
            stack,
            address,
            port: 0,
            as_user: false,
        })
    }

    /// An address that nobody had before.
    pub fn fresh_address(&self, on: On) -> anyhow::Result<Ipv4Addr> {
        Ok(self.addresses.next(self.host(on)?.spec()))
    }

    /// Starts the engines that programs on these stacks need, one for each host.
    pub fn engines<const N: usize>(&self, ends: [(On, Stack); N]) -> anyhow::Result<Vec<Program>> {
        let needs = |on: &On| ends.iter().any(|end| end.0 == *on && end.1.needs_engine());
        let hosts = [On::A, On::B].into_iter().filter(needs);
        hosts.map(|on| self.start_engine(on, &[])).collect()
    }

    /// Starts an engine with a process of its own; `extra` are flags beyond its interface and address.
    pub fn start_engine(&self, on: On, extra: &[&str]) -> anyhow::Result<Program> {
        self.start_engine_on(on, extra, cores::for_engine())
    }

    /// As `start_engine`, on this processor. One with another name than the usual has it in its flags.
    pub fn start_engine_on(
        &self,
        on: On,
        extra: &[&str],
        cpu: Option<usize>,
    ) -> anyhow::Result<Program> {
        let named = extra.iter().skip_while(|flag| **flag != "--name").nth(1);
        let name = *named.unwrap_or(&hostif::DEFAULT_ENGINE_NAME);
        let host = self.host(on)?;
        let mut command = host.command(own_binary())?;
        // Whether processors may idle deeply is decided here, for both sides of a row.
        command.args(["engine", "--allow-deep-idle"]);
        if !extra.contains(&"--nic") {
            let address = host.spec().engine_address.to_string();
            command.args(["--nic", INTERFACE, "--address", &address]);
        }
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        if engine::CongestionControl::from_name(self.lab.congestion()).is_some() {
            command.args(["--congestion", self.lab.congestion()]);
        }
        command.args(extra);
        let mut engine = Program::start("shunt engine", command)?;
        engine.wait_bound(name, START_PATIENCE, || self.interrupt.came())?;
        self.interrupt.check()?;
        Ok(engine)
    }

    /// Starts a server and waits until it says so.
    pub fn serve(&self, placement: Placement, says: &str, line: &[&str]) -> anyhow::Result<Server> {
        let mut program = self.start(placement, line)?;
        let what = format!("word of {says:?}");
        program.wait_until(&what, START_PATIENCE, |program| {
            self.interrupt.came() || program.stdout().contains(says)
        })?;
        self.interrupt.check()?;
        self.check_driver(placement)?;
        Ok(Server { program })
    }

    /// An engine inside a program that cannot have its driver takes another one and says so.
    fn check_driver(&self, placement: Placement) -> anyhow::Result<()> {
        let Stack::Inline(driver, _) = placement.stack else {
            return Ok(());
        };
        let name = format!("@shunt/run/{}", placement.address);
        let status = self.status(placement.on, &name)?;
        if status["driver"] == driver {
            return Ok(());
        }
        let why = format!("{INTERFACE} cannot be used with driver {driver} here");
        Err(Unavailable(why).into())
    }

    /// Starts a server and waits until the other host can connect to it.
    pub fn serve_answering(
        &self,
        placement: Placement,
        port: u16,
        line: &[&str],
    ) -> anyhow::Result<Server> {
        let mut program = self.start(placement, line)?;
        let address = placement.at(port);
        // From its own host an engine's address cannot be reached.
        let asking = self.host(match placement.on {
            on if placement.stack == Stack::Loopback => on,
            On::A => On::B,
            On::B => On::A,
        })?;
        program.wait_until(&format!("answer at {address}"), START_PATIENCE, |_| {
            self.interrupt.came() || asking.wait_connect(address.into(), Duration::ZERO).is_ok()
        })?;
        self.interrupt.check()?;
        Ok(Server { program })
    }

    /// Runs a client to its end.
    pub fn run(&self, placement: Placement, line: &[&str]) -> anyhow::Result<Finished> {
        let interrupt = self.interrupt.clone();
        let program = self.start(placement, line)?;
        Ok(program
            .finish(CLIENT_PATIENCE, move || interrupt.came())?
            .success()?)
    }

    /// Runs a client that prints a line of JSON.
    pub fn ask<T: DeserializeOwned>(
        &self,
        placement: Placement,
        line: &[&str],
    ) -> anyhow::Result<T> {
        parse(line, &self.run(placement, line)?)
    }

    /// Runs clients at the same time, each of which prints a line of JSON.
    pub fn ask_together<T: DeserializeOwned>(
        &self,
        placement: Placement,
        lines: &[Vec<String>],
    ) -> anyhow::Result<Vec<T>> {
        let words = lines.iter().map(|line| line.iter().map(String::as_str));
        let words: Vec<Vec<&str>> = words.map(Iterator::collect).collect();
        let begun = words.iter().map(|line| self.start(placement, line));
        let begun: Vec<Program> = begun.collect::<anyhow::Result<_>>()?;
        let ended = begun.into_iter().zip(&words).map(|(program, line)| {
            let interrupt = self.interrupt.clone();
            let ended = program.finish(CLIENT_PATIENCE, move || interrupt.came())?;
            parse(line, &ended.success()?)
        });
        ended.collect()
    }

    /// Runs a system's own tool on a host to its end.
    pub fn administer(&self, on: On, tool: &str, words: &[&str]) -> anyhow::Result<()> {
        let mut command = self.host(on)?.command(tools::find(tool)?)?;
        command.args(words);
        let interrupt = self.interrupt.clone();
        Program::start(tool, command)?
            .finish(START_PATIENCE, move || interrupt.came())?
            .success()?;
        Ok(())
    }

    /// A figure of an engine, as `shunt status --json` has it.
    pub fn status(&self, on: On, engine: &str) -> anyhow::Result<Value> {
        let mut command = self.host(on)?.command(own_binary())?;
        command.args(["status", "--json", "--engine", engine]);
        let interrupt = self.interrupt.clone();
        let finished = Program::start("shunt status", command)?
            .finish(START_PATIENCE, move || interrupt.came())?
            .success()?;
        serde_json::from_str(&finished.stdout).context("reading the status")
    }

    /// Runs a client to its end, and hashes what it writes to standard output: with a line as sha256sum(1) prints it.
    pub fn run_hashed(&self, placement: Placement, line: &[&str]) -> anyhow::Result<Finished> {
        let hashed = ["sh", "-c", "\"$@\" | sha256sum", "sh"].map(OsString::from);
        let whole = [hashed.to_vec(), whole_line(placement, line)?].concat();
        let interrupt = self.interrupt.clone();
        let program = self.start_line(placement, line.first().unwrap_or(&""), &whole)?;
        Ok(program
            .finish(CLIENT_PATIENCE, move || interrupt.came())?
            .success()?)
    }

    fn start(&self, placement: Placement, line: &[&str]) -> anyhow::Result<Program> {
        let name = line.first().unwrap_or(&"");
        self.start_line(placement, name, &whole_line(placement, line)?)
    }

    fn start_line(
        &self,
        placement: Placement,
        name: &str,
        whole: &[OsString],
    ) -> anyhow::Result<Program> {
        let host = self.host(placement.on)?;
        Ok(Program::start(
            name,
            host.command_line(whole, placement.as_user)?,
        )?)
    }
}

fn parse<T: DeserializeOwned>(line: &[&str], finished: &Finished) -> anyhow::Result<T> {
    serde_json::from_str(&finished.stdout)
        .with_context(|| format!("{} printed {:?}", line.join(" "), finished.stdout))
}

impl Server {
    /// Processor time that the server has used so far, its engine inside included.
    pub fn cpu_seconds(&self) -> anyhow::Result<f64> {
        cpu_seconds(&self.program)
    }

    /// What it has printed.
    pub fn said(&self) -> String {
        self.program.stdout()
    }

    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        match self.program.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the server ended with {status}: {}", self.program.stderr()),
        }
    }
}

/// Processor time of all threads of a program so far, see proc(5) on schedstat: in nanoseconds, where
/// stat counts ticks of ten milliseconds.
pub fn cpu_seconds(program: &Program) -> anyhow::Result<f64> {
    let tasks = format!("/proc/{}/task", program.pid());
    let mut ns = 0_u64;
    for task in fs::read_dir(&tasks).with_context(|| tasks.clone())? {
        // A thread that has ended meanwhile is none.
        let text = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        let first = text.split_ascii_whitespace().next();
        ns += first.and_then(|word| word.parse().ok()).unwrap_or(0_u64);
    }
    Ok(Duration::from_nanos(ns).as_secs_f64())
}

/// Why a setup cannot be measured on this machine or with this binary: no failure.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);
