//! Two hosts of this machine, for measurements that name none: an echo on one, this meter on the other, each over the
//! kernel, an engine of its own, or with an engine inside.

use std::{
    ffi::OsString,
    net::Ipv4Addr,
    path::Path,
    process::ExitStatus,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use hostif::stages::STAGES_VARIABLE;
use lab::{FreshAddresses, Host, INTERFACE, Lab, LabSpec, Program, own_binary};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::{
    ping::DEFAULT_PORT,
    probe::{Kind, link::FrameDriver},
    report::Report,
    stages::timeline::{ANSWER, ASK},
};

/// Whose stack a program uses, or how its frames leave and come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[value(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The kernel's; with --raw a packet socket
    Kernel,
    /// Shunt's, in a process beside the program
    Engine,
    /// Shunt's, inside the program
    Inline,
    /// With --raw: Shunt's driver over a ring of a packet socket
    AfPacket,
    /// With --raw: Shunt's driver over AF_XDP
    AfXdp,
}

impl Mode {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Engine => "engine",
            Self::Inline => "inline",
            Self::AfPacket => FrameDriver::AfPacket.name(),
            Self::AfXdp => FrameDriver::AfXdp.name(),
        }
    }

    /// Whose stack, or driver, that is, for people.
    pub fn title(self, kind: Kind) -> &'static str {
        match self {
            Self::Kernel if kind == Kind::Raw => "a packet socket of the kernel",
            Self::Kernel => "the kernel",
            Self::Engine => "Shunt, an engine beside the program",
            Self::Inline => "Shunt, an engine inside the program",
            Self::AfPacket => "Shunt's driver over a ring of a packet socket",
            Self::AfXdp => "Shunt's driver over AF_XDP",
        }
    }

    pub fn frame_driver(self) -> Option<FrameDriver> {
        match self {
            Self::Kernel | Self::Engine | Self::Inline => None,
            Self::AfPacket => Some(FrameDriver::AfPacket),
            Self::AfXdp => Some(FrameDriver::AfXdp),
        }
    }
}

/// The kernel's side of a comparison may idle deeply too.
pub const IDLE: &str = "--allow-deep-idle";
/// How long a server or an engine may take to be ready.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// How long a measurement may take; whoever asks for a longer one ends it himself.
const PATIENCE: Duration = Duration::from_secs(31 * 86_400);
/// How often it is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Two hosts on a cable. Dropping it removes them.
pub struct Testbed<'a> {
    lab: Lab,
    addresses: FreshAddresses,
    stop: &'a AtomicBool,
}

/// An echo that runs, with its engine if it has one. Dropping it ends both.
struct Echo {
    /// Ended before its engine.
    program: Program,
    _engine: Option<Program>,
    /// Where it is asked: an IP address, or with frames an Ethernet address.
    address: String,
}

impl<'a> Testbed<'a> {
    /// Builds the hosts.
    pub fn create(stop: &'a AtomicBool) -> anyhow::Result<Self> {
        let name = format!("ping-{}", std::process::id());
        let lab = Lab::temporary(&name, &LabSpec::default())?;
        for host in lab.hosts() {
            // A host answers a few of our unreachable ports a second otherwise, see icmp(7).
            host.set_parameter("net.ipv4.icmp_ratelimit", "0")?;
        }
        Ok(Self {
            lab,
            addresses: FreshAddresses::new(),
            stop,
        })
    }

    /// Runs an echo and this meter with these words, both in this mode; the echo is told to spin where `spin` says so. Both
    /// note stages in that folder if one is given.
    pub fn measure(
        &self,
        mode: Mode,
        kind: Kind,
        words: &[String],
        spin: bool,
        noted_in: Option<&Path>,
    ) -> anyhow::Result<Report> {
        let [ask, answer] = [ASK, ANSWER].map(|end| noted_in.map(|folder| folder.join(end)));
        let mut echo = self.echo(mode, kind, spin, answer.as_deref())?;
        let host = self.lab.host("b")?;
        // No socket of the meter is ICMP's but the kernel's: the stack that answers is the one compared.
        let client = match kind {
            Kind::Icmp => Mode::Kernel,
            Kind::Udp | Kind::Tcp | Kind::Connect | Kind::Raw => mode,
        };
        let _engine = self.engine_for(client, host, ask.as_deref())?;
        let mut line = self.prefix(client, self.address(client, host))?;
        line.extend(["ping", &echo.address].map(OsString::from));
        line.extend(words.iter().map(OsString::from));
        line.extend(client.frame_driver().map(driver_word));
        let report = self.client(host, &line, ask.as_deref())?;
        if let Some(status) = echo.program.try_wait()? {
            bail!("the echo ended with {status}: {}", echo.program.stderr());
        }
        Ok(report)
    }

    /// Runs an echo on one host, over the kernel or by a driver for frames, and this meter with these words on the other one; what
    /// it prints goes where this process prints.
    pub fn hand_over(
        &self,
        kind: Kind,
        mode: Mode,
        words: &[OsString],
        spin: bool,
    ) -> anyhow::Result<ExitStatus> {
        let echo = self.echo(mode, kind, spin, None)?;
        let mut command = self.lab.host("b")?.command(own_binary())?;
        command.arg("ping").arg(&echo.address).args(words);
        if kind == Kind::Raw {
            command.args(["--nic", INTERFACE]);
        }
        let mut child = command.spawn().context("starting the measuring program")?;
        let mut is_asked = false;
        loop {
            if let Some(status) = child
                .try_wait()
                .context("waiting for the measuring program")?
            {
                return Ok(status);
            }
            // A terminal has asked it as well: it prints what it has, and a second time does no harm.
            if self.stop.load(Ordering::Relaxed) && !is_asked {
                is_asked = true;
                let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                let pid = pid.context("invariant: a child has a number above zero")?;
                kill_process(pid, Signal::TERM).context("ending the measuring program")?;
            }
            thread::park_timeout(LOOK);
        }
    }

    fn client(
        &self,
        host: &Host,
        line: &[OsString],
        noted_in: Option<&Path>,
    ) -> anyhow::Result<Report> {
        let program = start(host, "shunt ping", line, noted_in)?;
        let finished = program.finish(PATIENCE, || self.stop.load(Ordering::Relaxed))?;
        parse(&finished.stdout, &finished.stderr)
    }

    fn echo(
        &self,
        mode: Mode,
        kind: Kind,
        spin: bool,
        noted_in: Option<&Path>,
    ) -> anyhow::Result<Echo> {
        let host = self.lab.host("a")?;
        let address = self.address(mode, host);
        let engine = self.engine_for(mode, host, noted_in)?;
        let mut line = self.prefix(mode, address)?;
        line.push("echo".into());
        match kind {
            Kind::Raw => line.extend(["--raw", INTERFACE].map(OsString::from)),
            _ => line.push(format!("--listen={address}:{DEFAULT_PORT}").into()),
        }
        line.extend(spin.then(|| "--spin".into()));
        line.extend(mode.frame_driver().map(driver_word));
        let mut program = start(host, "shunt echo", &line, noted_in)?;
        program.wait_until("word that it serves", START_PATIENCE, |program| {
            self.stop.load(Ordering::Relaxed) || program.stdout().contains("serving")
        })?;
        let said = program.stdout();
        let address = match kind {
            Kind::Raw => said
                .trim()
                .rsplit(' ')
                .next()
                .unwrap_or_default()
                .to_owned(),
            _ => address.to_string(),
        };
        Ok(Echo {
            program,
            _engine: engine,
            address,
        })
    }

    /// The address of a program of a host.
    fn address(&self, mode: Mode, host: &Host) -> Ipv4Addr {
        match mode {
            Mode::Kernel | Mode::AfPacket | Mode::AfXdp => host.spec().address.address,
            Mode::Engine => host.spec().engine_address.address,
            Mode::Inline => self.addresses.next(host.spec()),
        }
    }

    fn engine_for(
        &self,
        mode: Mode,
        host: &Host,
        noted_in: Option<&Path>,
    ) -> anyhow::Result<Option<Program>> {
        if mode != Mode::Engine {
            return Ok(None);
        }
        let address = host.spec().engine_address.to_string();
        let words = ["engine", IDLE, "--nic", INTERFACE, "--address", &address];
        let mut line = vec![own_binary().into()];
        line.extend(words.map(OsString::from));
        let mut engine = start(host, "shunt engine", &line, noted_in)?;
        engine.wait_bound(hostif::DEFAULT_ENGINE_NAME, START_PATIENCE, || {
            self.stop.load(Ordering::Relaxed)
        })?;
        Ok(Some(engine))
    }

    /// A command line up to the command of this binary.
    fn prefix(&self, mode: Mode, address: Ipv4Addr) -> anyhow::Result<Vec<OsString>> {
        match mode {
            Mode::Kernel | Mode::Engine | Mode::AfPacket | Mode::AfXdp => prefix(mode, ""),
            Mode::Inline => prefix(
                mode,
                &format!("{IDLE} --nic {INTERFACE} --address {address}/24"),
            ),
        }
    }
}

/// A command line up to the command of this binary; `run_flags` are for `shunt run`.
pub fn prefix(mode: Mode, run_flags: &str) -> anyhow::Result<Vec<OsString>> {
    let own = own_binary().into_os_string();
    let mut line = vec![own.clone()];
    if !matches!(mode, Mode::Engine | Mode::Inline) {
        return Ok(line);
    }
    // Nothing shall be measured that went to the kernel after all.
    line.extend(["run", "--policy", "engine-only"].map(OsString::from));
    line.extend((mode == Mode::Inline).then(|| "--engine-mode=inline".into()));
    line.extend(run_flags.split_ascii_whitespace().map(OsString::from));
    line.extend(["--".into(), own]);
    Ok(line)
}

/// Has `shunt ping` and `shunt echo` use a driver for frames.
pub fn driver_word(driver: FrameDriver) -> OsString {
    format!("--driver={}", driver.name()).into()
}

/// What a child of this binary has printed with --json.
pub fn parse(stdout: &str, stderr: &str) -> anyhow::Result<Report> {
    let said = stderr.trim();
    // What it says itself is the reason, and no parser has more to say of nothing.
    ensure!(!stdout.trim().is_empty() || said.is_empty(), "{said}");
    serde_json::from_str(stdout).with_context(|| match said {
        "" => "the measuring program printed no result".to_owned(),
        said => format!("the measuring program printed no result: {said}"),
    })
}

fn start(
    host: &Host,
    name: &str,
    line: &[OsString],
    noted_in: Option<&Path>,
) -> anyhow::Result<Program> {
    let mut command = host.command_line(line, false)?;
    command.envs(noted_in.map(|folder| (STAGES_VARIABLE, folder)));
    Ok(Program::start(name, command)?)
}
