//! `shunt engine`: the engine as a service, in the foreground or in the background.

pub mod arguments;
mod background;
pub mod card;
pub mod checks;
mod confined;
mod dpdk;
pub mod drivers;
mod guard;
pub mod keeper;
pub mod offloads;
mod pci;
mod share;

use std::process::ExitCode;

use anyhow::Context;
use engine::{Config, EcnMode, Engine, FastOpenModes, SynCookies};
use inspect::control;
use rustix::fd::{AsFd as _, OwnedFd};
use tracing_subscriber::fmt::{
    format::Writer,
    time::{FormatTime as _, SystemTime},
};

use super::doctor::measured;
use crate::sys;
use arguments::{Arguments, DriverName, LogFormat};
use checks::Claims;

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    control::check_name(&arguments.name).context("--name")?;
    if arguments.guard {
        return guard::run(arguments);
    }
    if let Some(tended) = arguments.tend_card {
        return card::tend(arguments, tended);
    }
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
    let (mut chosen, why) = with_driver(arguments);
    if chosen.take_card && !chosen.check_state {
        chosen.nic = card::take_for_dpdk(&chosen)?;
    }
    if arguments.check_state {
        return keeper::check_state(config(&chosen)?, &chosen);
    }
    if !keeper::is_for(&chosen) {
        return serve(&chosen, why, None);
    }
    checks::check_cores(chosen.cores, chosen.driver(), &chosen.cpu)?;
    check_is_up(&chosen)?;
    checks::check_protocols(&chosen)?;
    match keeper::begin(&chosen)? {
        keeper::Role::Keeper(status) => Ok(status),
        keeper::Role::Engine(child) => serve(&chosen, why, Some(child)),
    }
}

/// The engine itself, until it ends.
fn serve(
    arguments: &Arguments,
    why: Option<String>,
    child: Option<keeper::Child>,
) -> anyhow::Result<ExitCode> {
    let stop = catch_signals()?;
    // A limit on the size of the log, a terminal that belongs to others: errors of one write, no ends or stops.
    sys::ignore_signals(&[signal_hook::consts::SIGXFSZ, signal_hook::consts::SIGTTOU])?;
    log_to_stderr(arguments.log_format)?;
    hostif::stages::begin("engine").context("noting stages")?;
    if let Some(why) = why {
        tracing::info!("{why}");
    }
    if let Some(why) = child.as_ref().and_then(|child| child.why.as_ref()) {
        tracing::warn!("{why}");
    }
    dpdk::check(arguments)?;
    checks::check_cores(arguments.cores, arguments.driver(), &arguments.cpu)?;
    check_is_up(arguments)?;
    checks::check_protocols(arguments)?;
    let sharing = share::begin(arguments)?;
    let _claims = match &child {
        // The keeper has checked and claimed them.
        Some(_) => None,
        None => {
            checks::check_addresses(arguments.own_addresses(), &arguments.gateway)?;
            Some(Claims::take(arguments.own_addresses())?)
        }
    };
    let mut config = config(arguments)?;
    config.kept = child.as_ref().map(|child| child.kept.clone());
    let left = engine::left_behind(&config, arguments.cores);
    let kept = config.kept.as_ref();
    let lives = kept.map_or_else(std::process::id, |kept| kept.keeper);
    let steering = card::choose_steering(arguments, left.as_ref(), lives)?;
    let left = left.map_or(Vec::new(), |left| left.queues);
    if let Some(near) = card::go_near(&arguments.nic) {
        tracing::info!("{near}");
    }
    let opened = match &mut config.kept {
        Some(kept) => {
            let (opened, device) = drivers::open_kept(arguments, steering, sharing.as_ref(), left)?;
            kept.device = device;
            opened
        }
        None => drivers::open(arguments, steering, sharing.as_ref())?,
    };
    card::tell_again(&arguments.nic, steering);
    if config.kept.is_none() {
        control::remove_stale(&arguments.name)
            .with_context(|| format!("removing the old --name {}", arguments.name))?;
    }
    config.sharing = sharing.map(share::Shared::for_engine);
    if let Some(instead) = opened.instead {
        tracing::warn!("{instead}");
        config.driver = DriverName::AfPacket.name().to_owned();
        config.driver_note = Some(instead);
    }
    if let Some(far) = card::far_processors(&arguments.nic, &arguments.cpu) {
        tracing::warn!("{far}");
        config.driver_note.get_or_insert(far);
    }
    let mode = opened.queues[0].mode();
    let mode = mode.map_or(String::new(), |mode| format!(" {mode}"));
    let driver = format!("{}{mode}", config.driver);
    let engine = Engine::start(config, steering, opened.queues)
        .with_context(|| format!("--name {}", arguments.name))?;
    confined::begin(arguments);
    announce(arguments, &driver);
    if let Some(child) = child {
        child.has_begun();
    }
    let result = engine.run(stop.as_fd());
    confine::log_refused();
    control::remove_stale(&arguments.name)?;
    result?;
    Ok(ExitCode::SUCCESS)
}

/// An interface that is not made by its driver has to be up.
fn check_is_up(arguments: &Arguments) -> anyhow::Result<()> {
    match arguments.driver() {
        DriverName::Tap | DriverName::Dpdk => Ok(()),
        DriverName::AfPacket | DriverName::AfXdp => checks::check_is_up(&arguments.nic),
    }
}

/// The arguments with the driver that was found best, where none was named; and why that one.
fn with_driver(arguments: &Arguments) -> (Arguments, Option<String>) {
    let mut chosen = arguments.clone();
    if arguments.driver.is_some() {
        return (chosen, None);
    }
    let found = measured::way_for(&arguments.nic, arguments.profile, arguments.cores);
    if let Some((way, _)) = &found {
        chosen.driver = Some(way.driver());
        chosen.xdp_mode = way.mode().unwrap_or(arguments.xdp_mode);
    }
    (chosen, found.map(|(_, why)| why))
}

fn log_to_stderr(format: LogFormat) -> anyhow::Result<()> {
    let form = match format {
        LogFormat::Text => None,
        LogFormat::Json => Some(json_line as output::log::Form),
    };
    output::log::start(form, confine::restrict_writer)?;
    let log = tracing_subscriber::EnvFilter::try_from_env("SHUNT_LOG");
    let log = tracing_subscriber::fmt()
        .with_env_filter(log.unwrap_or_else(|_| "info".into()))
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(|| output::log::Lines);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().with_ansi(false).init(),
    }
    Ok(())
}

/// A sentence as `tracing_subscriber` writes events in JSON.
fn json_line(text: &str) -> String {
    let mut time = String::new();
    // A string takes everything.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    serde_json::json!({
        "timestamp": time, "level": "INFO", "fields": { "message": text }, "target": "shunt",
    })
    .to_string()
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
    config.access = checks::socket_access(arguments)?;
    config.user_share_percent = arguments.user_share;
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
    if let Some(mib) = arguments.program_memory_mib {
        config.limits.program_memory_bytes = mib << 20;
    }
    config.hold_idle_latency = !arguments.allow_deep_idle;
    config.until_idle_s = arguments.until_idle;
    config.because.clone_from(&arguments.because);
    config.lost_log_lines = output::log::lost_lines();
    config.process = confined::hooks();
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
