//! `shunt engine`: the engine as a service, in the foreground or in the background.

mod background;
pub mod checks;
mod dpdk;
pub mod drivers;
pub mod offloads;
mod share;

use std::{net::IpAddr, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{Args, ValueEnum};
use engine::{
    Address, Config, CongestionControl, EcnMode, Engine, FastOpenModes, Protocols, SynCookies,
};
use hostif::Steering;
use nic::af_xdp::Mode;
use rustix::fd::{AsFd as _, OwnedFd};

use super::doctor::measured::{self, Profile};
use crate::{control, sys};
use checks::Claims;

/// Largest number of connections that can be asked for.
const MAX_CONNECTIONS: u64 = 4_000_000;
/// Largest window that can be asked for: what a window scale of 10 expresses.
const MAX_WINDOW_KIB: u32 = 65_536;

/// Longest time without work for which an engine keeps its processor busy: one second.
const MAX_SPIN_US: u64 = 1_000_000;

/// Longest patience of --until-idle: a day.
const MAX_IDLE_S: u64 = 86_400;

/// Run the engine: TCP/IP on an interface, for the programs that `shunt run` starts.
///
/// It stays in the foreground and ends with SIGINT or SIGTERM; its programs' connections end then.
/// Whoever may connect to its control socket may use its addresses. SHUNT_LOG sets what it logs
/// (info by default; warn, debug).
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  shunt engine --nic eth0                                        (shares the kernel's addresses)
  shunt engine --nic eth0 --address 10.0.0.5/24 --gateway 10.0.0.1
  shunt engine --nic shunt0 --driver tap --address 10.9.0.2/24   (creates the TAP interface shunt0)
  shunt engine --nic eth0 --driver af_xdp --address 10.0.0.5/24
  shunt engine --nic 0000:03:00.0 --driver dpdk --cores 4 --address 10.0.0.5/24       (see docs/dpdk.md)
  shunt engine --nic eth0 --address 10.0.0.5/24,2001:db8::5/64 --gateway 10.0.0.1,fe80::1
  shunt engine --nic eth0 --address 10.0.0.5/24 --capture engine.pcapng
  shunt engine --nic eth0 --address 10.0.0.5/24 --protocols tcp,icmp   (no IPv6, no UDP)
  shunt engine --nic eth0 --address 10.0.0.5/24 --background
  shunt lab exec a -- shunt engine --background                  (a lab names interface and address)

Exit status: 0 where it was told to end or, with --until-idle, nobody needs it any more; 2 where it
could not start or its device failed.")]
pub struct Arguments {
    /// Interface to use; with --driver tap, the one to create; with --driver dpdk a PCI address, or a virtual
    /// device with its options: net_tap0,iface=shunt0.
    #[arg(long, value_name = "IFACE", env = lab::NIC_VARIABLE)]
    nic: String,
    /// How to reach the interface [default: what `shunt doctor --measure` found best for --profile, or af_packet].
    #[arg(long, value_enum)]
    driver: Option<DriverName>,
    /// What the driver is chosen for, where none is named and the interface was measured.
    #[arg(long, value_enum, default_value_t, conflicts_with = "driver")]
    profile: Profile,
    /// With --driver af_xdp: where frames are taken [generic works on every interface; native and zero-copy need
    /// its driver].
    #[arg(
        long,
        value_name = "MODE",
        requires = "driver",
        default_value = Mode::default().name(),
        value_parser = parse_mode
    )]
    xdp_mode: Mode,
    /// With --driver dpdk: further options for DPDK (its EAL parameters), separated by blanks: --dpdk-args='-m 1024'.
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    dpdk_args: Option<String>,
    /// IPv4 or IPv6 address that the engine owns, with its prefix length; the kernel must not have it.
    /// Repeatable. Without one the engine shares the kernel's addresses.
    #[arg(long, value_name = "ADDRESS/PREFIX", env = lab::ADDRESS_VARIABLE, value_delimiter = ',')]
    address: Vec<Address>,
    /// Share the interface's addresses with the kernel although the environment names others (a lab's does).
    /// The engine gets its programs' ports and connections, the kernel everything else. Needs CAP_NET_RAW,
    /// CAP_NET_ADMIN and CAP_BPF. Not with --driver tap.
    #[arg(long)]
    share: bool,
    /// Share although rules of the firewall could drop what the engine sends or receives: its packets pass them by.
    #[arg(long)]
    ignore_firewall: bool,
    /// Router for destinations outside the addresses' networks; one for IPv4 and one for IPv6.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    gateway: Vec<IpAddr>,
    /// Take IPv6 addresses and a router from what the link's routers announce (RFC 4862).
    #[arg(long)]
    autoconfigure: bool,
    /// Protocols to speak beside IPv4: any of ipv6, tcp, udp and icmp. Sockets of one that is left out stay with
    /// the kernel, packets of it are refused as unknown. ARP belongs to IPv4, neighbour discovery to ipv6,
    /// multicast to udp.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "ipv6,tcp,udp,icmp", value_parser = parse_protocol)]
    protocols: Vec<Protocols>,
    /// Name of the control socket: @NAME (abstract, one per network namespace) or a path.
    #[arg(long, default_value = hostif::DEFAULT_ENGINE_NAME)]
    name: String,
    /// Engine cores: threads that share nothing, over which connections are spread. Not with --driver tap.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(hostif::CORES_MAX)))]
    cores: u16,
    /// Processor to run on, one for each core: 2 or 2,3; the scheduler's choice otherwise.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cpu: Vec<usize>,
    /// How long an idle engine looks for work before it sleeps, in microseconds.
    #[arg(long, value_name = "US", default_value_t = 50, value_parser = clap::value_parser!(u64).range(..=MAX_SPIN_US))]
    spin_us: u64,
    /// Connections at most.
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u64).range(1..=MAX_CONNECTIONS))]
    max_connections: u64,
    /// Send and receive window of each connection, in KiB; a power of two. Paths with a larger product of
    /// rate and delay need more. Only pages in use cost memory.
    #[arg(long, value_name = "KIB", default_value_t = 2048, value_parser = parse_window)]
    window_kib: u32,
    /// Memory of all windows of a core, in MiB, above which the receive windows that peers are offered stop
    /// growing and new ones are small.
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    window_memory_mib: u64,
    /// Congestion control of connections whose program sets none: reno, cubic, bbr or dctcp.
    #[arg(long, value_name = "NAME", default_value = CongestionControl::default().name(), value_parser = parse_congestion)]
    congestion: CongestionControl,
    /// Explicit congestion notification, numbered as the kernel's net.ipv4.tcp_ecn: 0 off, 1 ask and grant,
    /// 2 grant, 3 ask for accurate ECN and grant either, 4 ask for the older one and grant either, 5 grant either.
    /// [default: that setting]
    #[arg(long, value_name = "MODE", value_parser = clap::value_parser!(u8).range(..=5))]
    ecn: Option<u8>,
    /// TCP Fast Open, numbered as the kernel's net.ipv4.tcp_fastopen, a sum: 1 programs that connect, 2 listeners
    /// with TCP_FASTOPEN, 4 data goes without a cookie, 512 is taken without one, 1024 listeners without the option.
    /// [default: that setting]
    #[arg(long, value_name = "MODES", value_parser = parse_fast_open)]
    fastopen: Option<u32>,
    /// Answer SYNs with cookies, numbered as the kernel's net.ipv4.tcp_syncookies: 0 never, 1 while the queue of
    /// handshakes is full, 2 always.
    /// [default: that setting]
    #[arg(long, value_name = "MODE", value_parser = clap::value_parser!(u8).range(..=2))]
    syncookies: Option<u8>,
    #[command(flatten)]
    offloads: offloads::Offloads,
    /// Let processors sleep deeply even while programs are attached.
    #[arg(long)]
    allow_deep_idle: bool,
    /// Write every frame to this file, in pcapng form.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// End by itself: after SECONDS in which none of the programs that came here lives and no
    /// connection of theirs is left to be closed.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=MAX_IDLE_S))]
    until_idle: Option<u64>,
    /// Start in the background and return once programs can attach.
    #[arg(long)]
    background: bool,
    /// Where an engine in the background writes its messages; a file of the last start is replaced
    /// [default: named after the control socket, beside the state of this user's labs].
    #[arg(long, value_name = "FILE", requires = "background")]
    log: Option<PathBuf>,
}

/// Reads `--xdp-mode`.
pub fn parse_mode(text: &str) -> Result<Mode, String> {
    let named = Mode::ALL.into_iter().find(|mode| mode.name() == text);
    named.ok_or_else(|| format!("give one of {}", Mode::ALL.map(Mode::name).join(", ")))
}

impl Arguments {
    /// How the interface is reached.
    fn driver(&self) -> DriverName {
        self.driver.unwrap_or(DriverName::AfPacket)
    }

    /// With the driver that was found best, where none was named; and why that one.
    fn with_driver(&self) -> (Self, Option<String>) {
        let mut chosen = self.clone();
        if self.driver.is_some() {
            return (chosen, None);
        }
        let found = measured::way_for(&self.nic, self.profile, self.cores);
        if let Some((way, _)) = &found {
            chosen.driver = Some(way.driver());
            chosen.xdp_mode = way.mode().unwrap_or(self.xdp_mode);
        }
        (chosen, found.map(|(_, why)| why))
    }

    /// Whether the addresses are the kernel's too.
    fn is_shared(&self) -> bool {
        self.share || self.address.is_empty()
    }

    /// Addresses that are the engine's alone.
    fn own_addresses(&self) -> &[Address] {
        if self.is_shared() { &[] } else { &self.address }
    }
}

fn parse_protocol(text: &str) -> Result<Protocols, String> {
    Protocols::named(text).ok_or_else(|| {
        let names = Protocols::NAMES.map(|(_, name)| name);
        format!("give any of {}; IPv4 is always there", names.join(", "))
    })
}

fn parse_congestion(text: &str) -> Result<CongestionControl, String> {
    CongestionControl::from_name(text).ok_or_else(|| {
        let names = CongestionControl::ALL.map(CongestionControl::name);
        format!("give one of {}", names.join(", "))
    })
}

fn parse_fast_open(text: &str) -> Result<u32, String> {
    let modes = text.parse().ok().and_then(FastOpenModes::from_bits);
    modes
        .map(|modes| modes.bits())
        .ok_or_else(|| "give a sum of 1, 2, 4, 512 and 1024".to_owned())
}

fn parse_window(text: &str) -> Result<u32, String> {
    let kib: u32 = text.parse().map_err(|_| "not a number".to_owned())?;
    if kib.is_power_of_two() && (4..=MAX_WINDOW_KIB).contains(&kib) {
        Ok(kib)
    } else {
        Err(format!("give a power of two from 4 to {MAX_WINDOW_KIB}"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum DriverName {
    /// Any interface, through a packet socket; needs CAP_NET_RAW.
    AfPacket,
    /// Any interface, by AF_XDP; on virtual ones no faster than af_packet yet; needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF. Where it cannot be
    /// had, af_packet serves instead and says so.
    AfXdp,
    /// A new TAP interface towards this host's own kernel; needs CAP_NET_ADMIN.
    Tap,
    /// A network card that the kernel has given up, or one of DPDK's virtual devices. Only in a shunt that was built
    /// with the cargo feature dpdk.
    Dpdk,
}

impl DriverName {
    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
            Self::Tap => "tap",
            Self::Dpdk => "dpdk",
        }
    }
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    control::check_name(&arguments.name).context("--name")?;
    if arguments.background {
        let started = background::start(&arguments.name, arguments.log.as_deref())?;
        for complaint in &started.complaints {
            note!("shunt: {complaint}");
        }
        output::print(&format!(
            "engine at {} (process {}), messages in {}\n",
            arguments.name,
            started.pid,
            started.log.display()
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let stop = catch_signals()?;
    // A limit on the size of the log, a terminal that belongs to others: errors of one write, no ends or stops.
    sys::ignore_signals(&[signal_hook::consts::SIGXFSZ, signal_hook::consts::SIGTTOU])?;
    log_to_stderr()?;
    let (arguments, why) = &arguments.with_driver();
    if let Some(why) = why {
        tracing::info!("{why}");
    }
    dpdk::check(arguments)?;
    checks::check_cores(arguments.cores, arguments.driver(), &arguments.cpu)?;
    if !matches!(arguments.driver(), DriverName::Tap | DriverName::Dpdk) {
        checks::check_is_up(&arguments.nic)?;
    }
    checks::check_protocols(arguments)?;
    let sharing = share::begin(arguments)?;
    checks::check_addresses(arguments.own_addresses(), &arguments.gateway)?;
    let _claims = Claims::take(arguments.own_addresses())?;
    let steering = choose_steering(arguments.cores)?;
    let opened = drivers::open(arguments, steering, sharing.as_ref())?;
    control::remove_stale(&arguments.name)
        .with_context(|| format!("removing the old --name {}", arguments.name))?;
    let mut config = config(arguments)?;
    config.sharing = sharing.map(share::Shared::for_engine);
    if let Some(instead) = opened.instead {
        tracing::warn!("{instead}");
        config.driver = DriverName::AfPacket.name().to_owned();
        config.driver_note = Some(instead);
    }
    let driver = opened.queues[0].mode().map_or_else(
        || config.driver.clone(),
        |mode| format!("{} {mode}", config.driver),
    );
    let engine = Engine::start(config, steering, opened.queues)
        .with_context(|| format!("--name {}", arguments.name))?;
    announce(arguments, &driver);
    let result = engine.run(stop.as_fd());
    control::remove_stale(&arguments.name)?;
    result?;
    Ok(ExitCode::SUCCESS)
}

fn log_to_stderr() -> anyhow::Result<()> {
    output::log::start()?;
    let log = tracing_subscriber::EnvFilter::try_from_env("SHUNT_LOG");
    tracing_subscriber::fmt()
        .with_env_filter(log.unwrap_or_else(|_| "info".into()))
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(|| output::log::Lines)
        .init();
    Ok(())
}

/// A descriptor that becomes readable when somebody asks this process to end.
fn catch_signals() -> anyhow::Result<OwnedFd> {
    let (stop, waker) = rustix::pipe::pipe_with(
        rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK,
    )?;
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        let waker = rustix::io::fcntl_dupfd_cloexec(&waker, 0)?;
        signal_hook::low_level::pipe::register(signal, waker).context("catching signals")?;
    }
    Ok(stop)
}

fn config(arguments: &Arguments) -> anyhow::Result<Config> {
    let mut config = Config::new(
        &arguments.nic,
        arguments.driver().name(),
        arguments.own_addresses().to_vec(),
    );
    config.name.clone_from(&arguments.name);
    config.gateways.clone_from(&arguments.gateway);
    config.router_discovery = arguments.autoconfigure;
    config.protocols = arguments.protocols.iter().copied().collect();
    // DPDK's devices have no number; link-local addresses need one (RFC 4007 §6), and 1 is always there.
    config.interface_index = sys::interface_index(&arguments.nic).max(1);
    config.cpus.clone_from(&arguments.cpu);
    config.socket_options.congestion = arguments.congestion;
    config.sysctls = engine::sysctl::names().collect();
    let mut override_sysctl = |name| config.sysctls.retain(|followed| *followed != name);
    if let Some(mode) = arguments.ecn.and_then(EcnMode::from_number) {
        override_sysctl("tcp_ecn");
        config.socket_options.ecn = mode;
    }
    if let Some(modes) = arguments.fastopen {
        override_sysctl("tcp_fastopen");
        config.fast_open = FastOpenModes::from_bits_truncate(modes);
    }
    if let Some(mode) = arguments.syncookies.and_then(SynCookies::from_number) {
        override_sysctl("tcp_syncookies");
        config.syn_cookies = mode;
    }
    config.spin_us = arguments.spin_us;
    config.limits.connections = usize::try_from(arguments.max_connections)?;
    let window_bytes = arguments.window_kib * 1024;
    config.limits.region.send_window_bytes = window_bytes;
    config.limits.region.receive_window_bytes = window_bytes;
    config.limits.window_memory_bytes = arguments.window_memory_mib << 20;
    config.hold_idle_latency = !arguments.allow_deep_idle;
    config.until_idle_s = arguments.until_idle;
    config.lost_log_lines = output::log::lost_lines();
    Ok(config)
}

fn announce(arguments: &Arguments, driver: &str) {
    let own = arguments.own_addresses().iter();
    let addresses: Vec<String> = own.map(|own| own.address.to_string()).collect();
    let addresses = if arguments.is_shared() {
        "the kernel's addresses".to_owned()
    } else {
        addresses.join(", ")
    };
    let cores = match arguments.cores {
        1 => String::new(),
        cores => format!(", {cores} cores"),
    };
    tracing::info!(
        "serving {addresses} on {} ({driver}{cores}), control socket {}",
        arguments.nic,
        arguments.name,
    );
}

/// The key keeps strangers from choosing addresses and ports that all lead to one core.
fn choose_steering(cores: u16) -> anyhow::Result<Steering> {
    let mut key = [0; 4];
    rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())
        .context("getting random numbers")?;
    let key = u32::from_ne_bytes(key);
    Ok(Steering { cores, key })
}
