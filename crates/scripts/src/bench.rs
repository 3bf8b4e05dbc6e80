//! Where a script runs: a host under test and a cable to the scripted peer, which is a packet socket.
//! A bench serves one script at a time and many after each other; each gets a peer with an address of its
//! own, so that nothing the host remembers about one peer reaches the next.

mod agent;
mod sys;
mod workers;

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use lab::{Cidr, Host, HostSpec, INTERFACE, Lab, LabSpec, Program};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

pub use agent::{Agent, Done};

use crate::agent::Addresses;
use crate::frame::{Link, Mac};
use crate::script::{Family, Side};

/// How long an engine may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// The scripted peer's Ethernet address: no kernel has it, so none answers for the peer.
const PEER_MAC: Mac = [2, 0x5c, 0x41, 0, 0, 1];
/// Network that both ends are in.
const PREFIX_LEN: u8 = 16;
/// The engine's flag for what scripts about windows rely upon.
const CONGESTION_FLAG: &str = "--congestion";
const HOST: &str = "a";
const PEER: &str = "b";

/// Programs that a bench needs.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The program with the agent in it: this one.
    pub agent: PathBuf,
    /// `shunt`; without it only the kernel's side can run.
    pub shunt: Option<PathBuf>,
    /// Whether its engine takes an IPv6 address.
    pub serves_ip6: bool,
    /// Flags that its engine knows.
    pub engine_flags: Vec<String>,
}

impl Tools {
    /// Asks `shunt` what it can do.
    pub fn new(agent: PathBuf, shunt: Option<PathBuf>) -> anyhow::Result<Self> {
        let mut tools = Self {
            agent,
            shunt: None,
            serves_ip6: false,
            engine_flags: Vec::new(),
        };
        let Some(shunt) = shunt else { return Ok(tools) };
        let ask = |arguments: &[&str]| {
            let output = Command::new(&shunt).args(arguments).output();
            output.with_context(|| format!("starting {}", shunt.display()))
        };
        let help = ask(&["engine", "--help"])?;
        let words = String::from_utf8_lossy(&help.stdout);
        let flags = words
            .split_whitespace()
            .filter(|word| word.starts_with("--"));
        tools.engine_flags = flags
            .map(|flag| flag.trim_end_matches([',', '.', ')']).to_owned())
            .collect();
        // There is no such interface: only the address is looked at.
        let tried = ask(&["engine", "--nic", "shunt-none", "--address", "fd77::1/64"])?;
        tools.serves_ip6 = !String::from_utf8_lossy(&tried.stderr).contains("invalid value");
        tools.shunt = Some(shunt);
        tools.serves_ip6 = tools.serves_ip6 && tools.binds_ip6().unwrap_or(false);
        Ok(tools)
    }

    /// Whether a program can bind an engine's IPv6 address: the preload library has to serve it too.
    fn binds_ip6(&self) -> anyhow::Result<bool> {
        let setting = Setting {
            side: Side::Shunt,
            engine: Vec::new(),
            mtu: 1_500,
            settings: Vec::new(),
        };
        let mut bench = Bench::build(setting, self)?;
        let mut run = bench.next_run(Family::Ip6)?;
        run.agent.ask_for(Some("s"), "socket", "-", &[])?;
        Ok(run.agent.ask("bind", "s", &[])? == "0")
    }
}

/// What two scripts must agree on to run on one bench.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// The stack.
    pub side: Side,
    /// Flags of the engine.
    pub engine: Vec<String>,
    /// MTU of the cable.
    pub mtu: u32,
    /// Sysctls of the host that the kernel and an engine obey.
    pub settings: Vec<(String, String)>,
}

/// A host under test with its cable.
#[derive(Debug)]
pub struct Bench {
    setting: Setting,
    tools: Tools,
    engine: Option<Program>,
    workers: workers::Workers,
    /// LD_PRELOAD for the agents on Shunt.
    library: Option<String>,
    /// An agent on the kernel, for sysctls.
    steward: Agent,
    socket: OwnedFd,
    host_mac: Mac,
    runs: u16,
    lab: Lab,
}

/// The addresses of this bench's host.
fn host_address(side: Side, family: Family) -> IpAddr {
    let last = match side {
        Side::Kernel => 1,
        Side::Shunt => 11,
    };
    match family {
        Family::Ip4 => Ipv4Addr::new(10, 77, 0, last).into(),
        Family::Ip6 => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last.into()).into(),
    }
}

impl Bench {
    /// Builds one.
    pub fn build(setting: Setting, tools: &Tools) -> anyhow::Result<Self> {
        let cidr = |a, b| Cidr {
            address: Ipv4Addr::new(10, 77, a, b),
            prefix_len: PREFIX_LEN,
        };
        let host = |name: &str, kernel, engine| HostSpec {
            name: name.to_owned(),
            address: kernel,
            engine_address: engine,
        };
        let spec = LabSpec {
            hosts: vec![
                host(HOST, cidr(0, 1), cidr(0, 11)),
                host(PEER, cidr(255, 1), cidr(255, 11)),
            ],
            mtu: setting.mtu,
            congestion: vec!["reno".to_owned()],
            ..LabSpec::default()
        };
        let lab = Lab::temporary("scripts", &spec)?;
        let (host, peer) = (lab.host(HOST)?, lab.host(PEER)?);
        let nowhere = Addresses {
            host: host_address(Side::Kernel, Family::Ip4),
            port: 0,
            peer: host_address(Side::Kernel, Family::Ip4),
        };
        let mut steward = Agent::start(agent_command(host, tools, nowhere)?)?;
        let host_mac = prepare(&mut steward)?;
        for (name, value) in &setting.settings {
            set_sysctl(&mut steward, name, value)?;
        }
        let socket = packet_socket(peer, tools)?;
        let (engine, library) = match setting.side {
            Side::Kernel => (None, None),
            Side::Shunt => {
                let shunt = tools
                    .shunt
                    .as_deref()
                    .context("no shunt binary was given")?;
                let engine = start_engine(host, shunt, &setting, tools)?;
                (Some(engine), Some(library(host, shunt)?))
            }
        };
        Ok(Self {
            setting,
            tools: tools.clone(),
            workers: workers::Workers::new(engine.as_ref().map(Program::pid)),
            engine,
            library,
            steward,
            socket,
            host_mac,
            runs: 0,
            lab,
        })
    }

    /// What it was built for.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// Starts an agent on the stack under test, for the next script.
    pub fn next_run(&mut self, family: Family) -> anyhow::Result<Run<'_>> {
        self.runs += 1;
        let [high, low] = self.runs.to_be_bytes();
        let peer = match family {
            Family::Ip4 => Ipv4Addr::new(10, 77, 1 + high, low).into(),
            Family::Ip6 => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 1, self.runs).into(),
        };
        let addresses = Addresses {
            host: host_address(self.setting.side, family),
            port: 1_024 + self.runs,
            peer,
        };
        let mut command = agent_command(self.lab.host(HOST)?, &self.tools, addresses)?;
        if let Some(library) = &self.library {
            command
                .env("LD_PRELOAD", library)
                .env("SHUNT_POLICY", "engine-only")
                .env("SHUNT_REQUIRE", "1");
        }
        let agent = Agent::start(command)?;
        let link = Link {
            host_mac: self.host_mac,
            peer_mac: PEER_MAC,
            host: addresses.host,
            peer,
        };
        Ok(Run {
            agent,
            link,
            port: addresses.port,
            socket: self.socket.as_fd(),
            workers: &self.workers,
        })
    }

    /// Sets a sysctl of the host's network namespace; returns what it was before.
    pub fn set_sysctl(&mut self, name: &str, value: &str) -> anyhow::Result<String> {
        set_sysctl(&mut self.steward, name, value)
    }

    /// What the engine has written, where it has ended.
    pub fn engine_death(&mut self) -> Option<String> {
        let engine = self.engine.as_mut()?;
        let status = engine.try_wait().ok()??;
        Some(format!(
            "the engine ended with {status}: {}",
            engine.stderr().trim()
        ))
    }

    /// Whether it has served nearly as many scripts as it has addresses for.
    pub fn is_worn(&self) -> bool {
        self.runs > 20_000
    }
}

/// One script's share of a bench.
#[derive(Debug)]
pub struct Run<'b> {
    /// Makes the socket calls.
    pub agent: Agent,
    /// Who speaks to whom.
    pub link: Link,
    /// Port of the host's listeners.
    pub port: u16,
    socket: BorrowedFd<'b>,
    workers: &'b workers::Workers,
}

impl Run<'_> {
    /// Sends a frame to the host.
    pub fn inject(&self, frame: &[u8]) -> anyhow::Result<()> {
        rustix::net::send(self.socket, frame, SendFlags::empty()).context("sending a frame")?;
        Ok(())
    }

    /// The next frame of the host, with its time in ns since the epoch.
    pub fn capture(&self, buffer: &mut [u8]) -> anyhow::Result<Option<(usize, i64)>> {
        sys::receive(self.socket, buffer).context("receiving a frame")
    }

    /// How long those who work for the host and its peer have waited for a processor, in ns.
    pub fn waited_ns(&self) -> i64 {
        self.workers.waited_ns(self.agent.pid())
    }

    /// What becomes readable when the host has sent something.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket
    }
}

fn set_sysctl(steward: &mut Agent, name: &str, value: &str) -> anyhow::Result<String> {
    // A value may be a list, as those of tcp_rmem; words are separated by blanks on the channel.
    let arguments = [name.to_owned(), value.replace(' ', ",")];
    let answer = steward.ask("sysctl", "-", &arguments)?;
    match answer.strip_prefix('=') {
        Some(before) => Ok(before.to_owned()),
        None => bail!("sysctl {name}={value}: {answer}"),
    }
}

fn agent_command(host: &Host, tools: &Tools, addresses: Addresses) -> anyhow::Result<Command> {
    let mut command = host.command(&tools.agent)?;
    command.args(["agent", "--host", &addresses.host.to_string()]);
    command.args(["--port", &addresses.port.to_string()]);
    command.args(["--peer", &addresses.peer.to_string()]);
    Ok(command)
}

/// Makes the host's side of the cable ready, and returns its Ethernet address.
fn prepare(steward: &mut Agent) -> anyhow::Result<Mac> {
    let mut set = |name: &str, value: &str| {
        let done = steward.ask("sysctl", "-", &[name.to_owned(), value.to_owned()])?;
        if done.starts_with('=') {
            Ok(())
        } else {
            bail!("sysctl {name}: {done}")
        }
    };
    // Nothing learned from one script may change the next.
    set("tcp_no_metrics_save", "1")?;
    // A kernel that saves up for a large segment sends nothing where one segment would do.
    set("tcp_min_tso_segs", "1")?;
    set("tcp_tso_rtt_log", "0")?;
    // An address that is checked for duplicates cannot be used for a second.
    let has_ip6 = set(&format!("ipv6.conf.{INTERFACE}.accept_dad"), "0").is_ok();
    let done = steward.ask("quiet", INTERFACE, &[])?;
    if done != "0" {
        bail!("switching segmentation off on {INTERFACE}: {done}");
    }
    if has_ip6 {
        let address = host_address(Side::Kernel, Family::Ip6).to_string();
        let done = steward.ask("address6", INTERFACE, &[address])?;
        if done != "0" {
            bail!("adding an IPv6 address to {INTERFACE}: {done}");
        }
    }
    let text = steward.ask("mac", INTERFACE, &[])?;
    let bytes: Result<Vec<u8>, _> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16))
        .collect();
    let bytes = bytes.with_context(|| format!("{INTERFACE} has no Ethernet address: {text}"))?;
    bytes
        .try_into()
        .map_err(|_| anyhow::anyhow!("{text} is no Ethernet address"))
}

/// The peer's packet socket, made on its host by a process there and handed over.
fn packet_socket(peer: &Host, tools: &Tools) -> anyhow::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = peer.command(&tools.agent)?;
    command
        .arg("packet-socket")
        .stdin(Stdio::from(OwnedFd::from(theirs)));
    let mut child = command
        .spawn()
        .context("starting the process that opens a packet socket")?;
    drop(command);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut spans = [IoSliceMut::new(&mut byte)];
    let received = rustix::net::recvmsg(&ours, &mut spans, &mut ancillary, RecvFlags::CMSG_CLOEXEC);
    let status = child.wait()?;
    received?;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    descriptor.with_context(|| format!("no packet socket on the peer's host: {status}"))
}

/// On the peer's host: opens the packet socket and sends it through `channel`.
pub fn hand_over_packet_socket(channel: BorrowedFd<'_>) -> anyhow::Result<()> {
    let socket = sys::packet_socket(INTERFACE).context("opening a packet socket")?;
    let descriptors = [socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    rustix::net::sendmsg(
        channel,
        &[IoSlice::new(b"s")],
        &mut ancillary,
        SendFlags::empty(),
    )?;
    Ok(())
}

fn start_engine(
    host: &Host,
    shunt: &Path,
    setting: &Setting,
    tools: &Tools,
) -> anyhow::Result<Program> {
    let mut command = host.command(shunt)?;
    // Dozens of engines share few processors here: none may spin.
    command.args(["engine", "--spin-us", "0", "--allow-deep-idle"]);
    command.args(["--max-connections", "4096"]);
    let address = host_address(Side::Shunt, Family::Ip4);
    command.args(["--address", &format!("{address}/{PREFIX_LEN}")]);
    // The kernel's side has reno too.
    let is_chosen = setting
        .engine
        .iter()
        .any(|flag| flag.starts_with(CONGESTION_FLAG));
    if !is_chosen
        && tools
            .engine_flags
            .iter()
            .any(|flag| flag == CONGESTION_FLAG)
    {
        command.args([CONGESTION_FLAG, "reno"]);
    }
    if tools.serves_ip6 {
        let address = host_address(Side::Shunt, Family::Ip6);
        command.args(["--address", &format!("{address}/64")]);
    }
    command.args(&setting.engine);
    command.env_remove(lab::ADDRESS_VARIABLE);
    let mut engine = Program::start("engine", command)?;
    engine.wait_until("engine", PATIENCE, |engine| {
        engine.stderr().contains("serving")
    })?;
    Ok(engine)
}

/// The preload library, as `shunt run` would name it.
fn library(host: &Host, shunt: &Path) -> anyhow::Result<String> {
    let mut command = host.command(shunt)?;
    command.args([
        "run",
        "--policy",
        "kernel-only",
        "--",
        "printenv",
        "LD_PRELOAD",
    ]);
    let done = Program::start("shunt run", command)?
        .finish(PATIENCE, || false)?
        .success()?;
    Ok(done.stdout.trim().to_owned())
}
