//! `shunt engine`: the engine as a service in the foreground.

use std::{net::Ipv4Addr, path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use engine::{Address, Config, Engine};
use nic::{Driver, af_packet::AfPacket, pcap::Recorder, tap::Tap};
use rustix::fd::AsFd as _;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Largest number of connections that can be asked for.
const MAX_CONNECTIONS: u64 = 4_000_000;

/// Run the engine: TCP/IP on an interface, for the programs that `shunt run` starts.
///
/// It stays in the foreground and ends with SIGINT or SIGTERM; its programs' connections end then.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt engine --nic eth0 --address 10.0.0.5/24 --gateway 10.0.0.1
  shunt engine --nic shunt0 --driver tap --address 10.9.0.2/24   (creates the TAP interface shunt0)
  shunt engine --nic eth0 --address 10.0.0.5/24 --capture engine.pcapng")]
pub struct Arguments {
    /// Interface to use; with --driver tap, the one to create.
    #[arg(long, value_name = "IFACE")]
    nic: String,
    /// How to reach the interface.
    #[arg(long, value_enum, default_value_t = DriverName::AfPacket)]
    driver: DriverName,
    /// Address that the engine owns, with its prefix length; the kernel must not have it. Repeatable.
    #[arg(long, value_name = "ADDRESS/PREFIX", required = true)]
    address: Vec<Address>,
    /// Router for destinations outside the addresses' networks.
    #[arg(long, value_name = "ADDRESS")]
    gateway: Option<Ipv4Addr>,
    /// Name of the control socket: @NAME (abstract, one per network namespace) or a path.
    #[arg(long, default_value = hostif::DEFAULT_ENGINE_NAME)]
    name: String,
    /// Processor to run on; the scheduler's choice otherwise.
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// How long an idle engine looks for work before it sleeps, in microseconds.
    #[arg(long, default_value_t = 50)]
    spin_us: u64,
    /// Connections at most.
    #[arg(long, default_value_t = 65_536, value_parser = clap::value_parser!(u64).range(1..=MAX_CONNECTIONS))]
    max_connections: u64,
    /// Let processors sleep deeply even while programs are attached.
    #[arg(long)]
    allow_deep_idle: bool,
    /// Write every frame to this file, in pcapng form.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum DriverName {
    /// Any interface, through a packet socket; needs CAP_NET_RAW.
    AfPacket,
    /// A new TAP interface towards this host's own kernel; needs CAP_NET_ADMIN.
    Tap,
}

impl DriverName {
    const fn name(self) -> &'static str {
        match self {
            Self::AfPacket => "af_packet",
            Self::Tap => "tap",
        }
    }
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let log = tracing_subscriber::EnvFilter::try_from_env("SHUNT_LOG");
    tracing_subscriber::fmt()
        .with_env_filter(log.unwrap_or_else(|_| "info".into()))
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr)
        .init();
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
    if let Some(cpu) = arguments.cpu {
        pin(cpu)?;
    }
    let mut driver = open_driver(arguments)?;
    if let Some(path) = &arguments.capture {
        let recorder = Recorder::create(driver, path, &arguments.nic);
        driver = Box::new(
            recorder
                .with_context(|| format!("creating the file of --capture, {}", path.display()))?,
        );
    }
    let mut config = Config::new(
        &arguments.nic,
        arguments.driver.name(),
        arguments.address.clone(),
    );
    config.name.clone_from(&arguments.name);
    config.gateway = arguments.gateway;
    config.spin_us = arguments.spin_us;
    config.limits.connections = usize::try_from(arguments.max_connections)?;
    config.hold_idle_latency = !arguments.allow_deep_idle;
    check_gateway(&config)?;
    let engine = Engine::start(config, driver)?;
    tracing::info!(
        "serving {} on {} ({}), control socket {}",
        arguments
            .address
            .iter()
            .map(|own| own.address.to_string())
            .collect::<Vec<_>>()
            .join(", "),
        arguments.nic,
        arguments.driver.name(),
        arguments.name,
    );
    engine.run(stop.as_fd())?;
    Ok(ExitCode::SUCCESS)
}

fn pin(cpu: usize) -> anyhow::Result<()> {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cpu >= CpuSet::MAX_CPU {
        bail!("--cpu {cpu}: no such processor, this machine has {count}");
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| {
        format!("--cpu {cpu}: cannot run there (this machine has {count} processors)")
    })
}

fn open_driver(arguments: &Arguments) -> anyhow::Result<Box<dyn Driver>> {
    let context = || {
        format!(
            "--nic {} with --driver {}",
            arguments.nic,
            arguments.driver.name()
        )
    };
    Ok(match arguments.driver {
        DriverName::AfPacket => {
            let addresses = arguments.address.iter().map(|own| own.address).collect();
            let config = nic::af_packet::Config {
                addresses: Some(addresses),
                ..nic::af_packet::Config::new(&arguments.nic)
            };
            Box::new(AfPacket::open(&config).with_context(context)?)
        }
        DriverName::Tap => {
            let config = nic::tap::Config {
                name: Some(arguments.nic.clone()),
                up: true,
                ..nic::tap::Config::default()
            };
            Box::new(Tap::create(&config).with_context(context)?)
        }
    })
}

fn check_gateway(config: &Config) -> anyhow::Result<()> {
    let Some(gateway) = config.gateway else {
        return Ok(());
    };
    let is_on_link = config.addresses.iter().any(|own| {
        let mask = u32::MAX
            .checked_shl(32 - u32::from(own.prefix_len))
            .unwrap_or(0);
        (own.address.to_bits() ^ gateway.to_bits()) & mask == 0
    });
    if !is_on_link {
        bail!("--gateway {gateway} is in none of the networks given with --address");
    }
    Ok(())
}
