//! Finding the engine that a program shall use, or starting one for it.
//!
//! An engine that is started here runs in the background under a name made from its address, so that
//! programs with the same address share it, and ends some seconds after the last of them.

use std::{
    env,
    ffi::{OsStr, OsString},
    net::IpAddr,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Args;
use client::engines::succession::{Succession, take_over};
use engine::Address;
use hostif::control::QueryKind;
use inspect::control::Channel;
use nic::af_packet::AfPacket;
use nic::af_xdp::Mode;

use crate::commands::{
    doctor::{
        interfaces::default_route_interface,
        measured::{self, DriverChoice},
    },
    engine::{
        arguments::{DriverName, Profile, parse_mode},
        checks,
        offloads::Offloads,
    },
};

/// How long an engine that was started here stays without programs, seconds: programs that follow
/// each other then share it.
const UNTIL_IDLE_S: u64 = 5;

/// How long another `shunt run` with the same address may take to get its engine going.
const START_PATIENCE: Duration = Duration::from_secs(1);

/// The engine to start where none runs.
#[derive(Debug, Args)]
pub struct Wanted {
    /// Interface of an engine for this program; with --driver tap, the one to create [default: that of the
    /// default route].
    #[arg(long, value_name = "IFACE", conflicts_with = "engine")]
    nic: Option<String>,
    /// IPv4 or IPv6 address that this engine owns, with its prefix length; the kernel must not have it.
    /// Repeatable. Without one the engine shares the kernel's addresses.
    #[arg(
        long,
        value_name = "ADDRESS/PREFIX",
        conflicts_with = "engine",
        value_delimiter = ','
    )]
    address: Vec<Address>,
    /// Its router for destinations outside the address's network; one for IPv4 and one for IPv6.
    #[arg(
        long,
        value_name = "ADDRESS",
        requires = "address",
        value_delimiter = ','
    )]
    gateway: Vec<IpAddr>,
    /// Share the kernel's addresses although rules of the firewall could drop what the engine sends or receives.
    #[arg(long, conflicts_with = "engine")]
    ignore_firewall: bool,
    /// How it reaches the interface [default: what `shunt doctor --measure` found best for --profile, or af_packet].
    #[arg(long, value_enum, conflicts_with = "engine")]
    driver: Option<DriverName>,
    /// With --driver af_xdp: where frames are taken [default: generic].
    #[arg(long, value_name = "MODE", requires = "driver", value_parser = parse_mode)]
    xdp_mode: Option<Mode>,
    /// What the driver is chosen for, where none is named and the interface was measured [default: auto].
    #[arg(long, value_enum, conflicts_with_all = ["driver", "engine"])]
    profile: Option<Profile>,
    #[command(flatten)]
    offloads: Offloads,
    /// Let processors sleep deeply even while the engine has programs.
    #[arg(long)]
    allow_deep_idle: bool,
}

impl Wanted {
    /// Whether the command line says which engine.
    fn is_described(&self) -> bool {
        self.is_placed() || self.driver.is_some()
    }

    /// Whether the command line says where it is.
    fn is_placed(&self) -> bool {
        self.nic.is_some() || !self.address.is_empty()
    }

    /// The driver that was asked for.
    pub fn driver(&self) -> Option<DriverName> {
        self.driver
    }

    /// Where an engine was inside the program that has become this one, it ended with it: one like that is wanted.
    pub fn inherit(&mut self) -> anyhow::Result<()> {
        let settings = env::var(hostif::INLINE_VARIABLE).unwrap_or_default();
        let (Some(names), false) = (inherited(), settings.is_empty() || self.is_placed()) else {
            return Ok(());
        };
        let mut nic = None;
        let mut address = Vec::new();
        for word in settings.split_ascii_whitespace() {
            match word.split_once('=') {
                Some(("nic", name)) => nic = Some(name.to_owned()),
                Some(("address", list)) => {
                    let parsed = list.split(',').map(str::parse).collect::<Result<_, _>>();
                    address = parsed.map_err(anyhow::Error::msg)?;
                }
                Some(("gateway", list)) if self.gateway.is_empty() => {
                    let parsed = list.split(',').map(str::parse).collect::<Result<_, _>>();
                    self.gateway = parsed.context(hostif::INLINE_VARIABLE)?;
                }
                _ => {}
            }
        }
        if names.iter().all(|name| is_free(name)) {
            (self.nic, self.address) = (nic, address);
        }
        Ok(())
    }

    /// Flags that are passed on as they are.
    fn flags(&self) -> impl Iterator<Item = &'static str> {
        let deep_idle = self.allow_deep_idle.then_some("--allow-deep-idle");
        self.offloads.flags().chain(deep_idle)
    }
}

/// The control sockets of reachable engines: those asked for, or the usual one. Where the usual
/// one does not answer, or flags ask for another, an engine is started.
pub fn find(asked: &[OsString], wanted: &Wanted, because: &str) -> anyhow::Result<Vec<String>> {
    let is_described = wanted.is_described();
    let named = if !asked.is_empty() {
        let mut names = Vec::new();
        for name in asked {
            let name = utf8(name)?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Some((names, "--engine"))
    } else if is_described {
        None
    } else {
        inherited().map(|names| (names, hostif::ENGINE_VARIABLE))
    };
    let Some((names, origin)) = named else {
        let usual = hostif::DEFAULT_ENGINE_NAME.to_owned();
        if !is_described && answers(&usual)? {
            return Ok(vec![usual]);
        }
        return Ok(vec![start(wanted, because)?]);
    };
    if names.len() > hostif::ENGINES_MAX {
        bail!("{origin}: {} engines at most", hostif::ENGINES_MAX);
    }
    for name in &names {
        if name.contains(hostif::ENGINE_SEPARATOR) {
            bail!("{origin}: {name} holds a comma, which separates engines in the environment");
        }
        if !answers(name)? {
            bail!(
                "no engine answers at {name} (from {origin}): start it with `shunt engine`, or leave {origin} out"
            );
        }
    }
    Ok(names)
}

/// The engines that an outer `shunt run`, or the user, has named.
fn inherited() -> Option<Vec<String>> {
    let text = env::var(hostif::ENGINE_VARIABLE).ok()?;
    let names = text.split(hostif::ENGINE_SEPARATOR);
    let names: Vec<String> = names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    (!names.is_empty()).then_some(names)
}

fn utf8(name: &OsStr) -> anyhow::Result<String> {
    let text = name.to_str();
    let text = text.with_context(|| format!("engine address {}: not UTF-8", name.display()))?;
    Ok(text.to_owned())
}

/// Whether a program finds an engine.
#[derive(Debug, PartialEq, Eq)]
pub enum Existing {
    /// One of that name serves it.
    Serves(String),
    /// None, and one that is started for it shares the kernel's addresses.
    Shares,
    /// None, and one that is started for it has addresses of its own.
    None,
}

/// Looks for an engine that serves a program without `--engine`. Where the program is about to start, one that was left
/// behind at its own address ends.
pub fn existing(wanted: &Wanted, is_about_to_start: bool) -> anyhow::Result<Existing> {
    if !wanted.is_described() {
        if let Some(names) = inherited() {
            return Ok(Existing::Serves(names.join(", ")));
        }
        let usual = hostif::DEFAULT_ENGINE_NAME;
        if answers(usual)? {
            return Ok(Existing::Serves(usual.to_owned()));
        }
    }
    let (nic, addresses) = interface(wanted)?;
    if addresses.is_empty() {
        return Ok(Existing::Shares);
    }
    let name = name_for(&nic, &addresses);
    let is_free = if is_about_to_start {
        is_free(&name)
    } else {
        would_be_free(&name)?
    };
    Ok(if is_free {
        Existing::None
    } else {
        Existing::Serves(name)
    })
}

/// Whether no engine serves at that name but one that an ended program left behind.
fn would_be_free(name: &str) -> anyhow::Result<bool> {
    let Some(channel) = Channel::open(name)? else {
        return Ok(true);
    };
    let status = channel.query(QueryKind::Status)?;
    Ok(status["left_behind"] == true)
}

/// Whether no engine serves at that name; one that an ended program left behind gives way.
fn is_free(name: &str) -> bool {
    take_over(name) == Succession::Free
}

/// An engine inside the program: the name at which it answers, and what the preload library starts it with.
#[derive(Debug)]
pub struct Inside {
    /// Its control socket.
    pub name: String,
    /// See `hostif::INLINE_VARIABLE`.
    pub settings: String,
}

/// What the preload library needs to start an engine inside the program. What cannot work is refused here,
/// where it can be said best.
pub fn inside(wanted: &Wanted, because: &str) -> anyhow::Result<Inside> {
    if matches!(wanted.driver, Some(DriverName::Tap | DriverName::Dpdk)) {
        bail!(
            "--engine-mode inline needs --driver {} or {}",
            DriverName::AfPacket.name(),
            DriverName::AfXdp.name()
        );
    }
    let (nic, addresses) = interface(wanted)?;
    if addresses.is_empty() {
        bail!(
            "--engine-mode inline needs --address ADDRESS/PREFIX: only an engine of its own shares the kernel's addresses"
        );
    }
    let name = name_for(&nic, &addresses);
    // Another program with this address: its engine serves this one too, as an engine of its own would.
    if is_free(&name) {
        AfPacket::check(&nic)
            .with_context(|| format!("an engine inside the program, --nic {nic}"))?;
        checks::check_is_up(&nic)?;
        checks::check_addresses(&addresses, &wanted.gateway)?;
        drop(checks::Claims::take(&addresses)?);
    } else {
        tell_of_process(&name);
    }
    let list = |words: Vec<String>| words.join(",");
    let own = addresses.iter();
    let own = own.map(|own| format!("{}/{}", own.address, own.prefix_len));
    let mut settings = format!("nic={nic} address={}", list(own.collect()));
    if !wanted.gateway.is_empty() {
        let gateways = wanted.gateway.iter().map(IpAddr::to_string);
        settings += &format!(" gateway={}", list(gateways.collect()));
    }
    let profile = wanted.profile.unwrap_or_default();
    let found = match wanted.driver {
        Some(_) => None,
        None => measured::way_for(&nic, profile, 1).map(|(way, _)| way),
    };
    if let Some(driver) = wanted.driver.or(found.map(DriverChoice::driver)) {
        settings += &format!(" driver={}", driver.name());
    }
    if let Some(mode) = wanted.xdp_mode.or(found.and_then(DriverChoice::mode)) {
        settings += &format!(" mode={}", mode.name());
    }
    for flag in wanted.flags() {
        let flag = flag.trim_start_matches('-');
        let is_switch = !flag.contains('=');
        settings += &format!(" {flag}{}", if is_switch { "=yes" } else { "" });
    }
    // To the end of the text.
    settings += &format!(" because={because}");
    Ok(Inside { name, settings })
}

/// Says that the engine at this name is no engine inside a program, where it is not.
fn tell_of_process(name: &str) {
    let channel = Channel::open(name).ok().flatten();
    let status = channel.and_then(|channel| channel.query(QueryKind::Status).ok());
    if status.is_some_and(|status| status["mode"] == "process") {
        note!(
            "--engine-mode inline: engine {name} serves that address already and serves this program too, from a process of its own"
        );
    }
}

/// Programs with the same address, or the same interface whose addresses are shared, use an engine of this name.
fn name_for(nic: &str, addresses: &[Address]) -> String {
    match addresses.first() {
        Some(own) => format!("@shunt/run/{}", own.address),
        None => format!("@shunt/run/{nic}"),
    }
}

/// The interface and the addresses that flags, or the lab around us, name. Without addresses those of the
/// kernel are shared, without an interface on that of the default route.
fn interface(wanted: &Wanted) -> anyhow::Result<(String, Vec<Address>)> {
    let variable = |name| env::var(name).ok().filter(|text| !text.is_empty());
    let nic = wanted.nic.clone().or_else(|| variable(lab::NIC_VARIABLE));
    let addresses = match variable(lab::ADDRESS_VARIABLE) {
        Some(text) if wanted.address.is_empty() => {
            let parse = |one: &str| one.parse::<Address>().map_err(anyhow::Error::msg);
            let addresses = text.split(',').map(parse).collect::<Result<Vec<_>, _>>();
            addresses.context(lab::ADDRESS_VARIABLE)?
        }
        _ => wanted.address.clone(),
    };
    let shares = addresses.is_empty() && wanted.driver != Some(DriverName::Tap);
    let nic = nic.or_else(|| default_route_interface().filter(|_| shares));
    match nic {
        Some(nic) if shares || !addresses.is_empty() => Ok((nic, addresses)),
        _ => bail!("{}", missing(wanted)),
    }
}

/// An engine of this program's own, or one that another program with the same address has started.
fn start(wanted: &Wanted, because: &str) -> anyhow::Result<String> {
    let (nic, addresses) = interface(wanted)?;
    let name = name_for(&nic, &addresses);
    if !is_free(&name) && answers(&name)? {
        return Ok(name);
    }
    let mut command = Command::new(own_file());
    command.args(["engine", "--background", "--name", &name]);
    command.args(["--until-idle", &UNTIL_IDLE_S.to_string()]);
    command.args(["--nic", &nic, &format!("--because={because}")]);
    if addresses.is_empty() {
        command.arg("--share");
        if wanted.ignore_firewall {
            command.arg("--ignore-firewall");
        }
    }
    for own in &addresses {
        let own = format!("{}/{}", own.address, own.prefix_len);
        command.args(["--address", &own]);
    }
    for gateway in &wanted.gateway {
        command.args(["--gateway", &gateway.to_string()]);
    }
    if let Some(driver) = wanted.driver {
        command.args(["--driver", driver.name()]);
    }
    if let Some(mode) = wanted.xdp_mode {
        command.args(["--xdp-mode", mode.name()]);
    }
    if let Some(profile) = wanted.profile {
        command.args(["--profile", profile.name()]);
    }
    command.args(wanted.flags());
    crate::sys::without_library(&mut command).stdin(Stdio::null());
    // Bounded: the command gives its engine a deadline, and ends.
    let output = command.output().context("starting an engine")?;
    // Where another `shunt run` was quicker, ours was refused and that one's answers soon. Asked
    // also after success, because the engine counts those who asked as its guests.
    let deadline = Instant::now() + START_PATIENCE;
    while !answers(&name)? {
        if Instant::now() >= deadline {
            let words = String::from_utf8_lossy(&output.stderr);
            let words = words.trim();
            bail!(
                "starting an engine for this program: {}",
                words.strip_prefix("shunt: ").unwrap_or(words)
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if output.status.success() {
        // What is not as was asked for.
        for line in String::from_utf8_lossy(&output.stderr).lines() {
            note!("{line}");
        }
    }
    Ok(name)
}

/// This binary, by the name that a library in this process knows it by: no second supervisor is started for it then.
fn own_file() -> PathBuf {
    let named = env::current_exe().ok().filter(|file| file.exists());
    named.unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// Which flags are missing, and why they are needed.
fn missing(wanted: &Wanted) -> String {
    let flags = match (&wanted.nic, wanted.address.first()) {
        (None, None) => "--nic IFACE (or --nic IFACE --address ADDRESS/PREFIX)",
        (Some(_), None) => "--address ADDRESS/PREFIX",
        (None, Some(_)) | (Some(_), Some(_)) => "--nic IFACE",
    };
    format!(
        "no engine answers at {} in this network namespace, and to start one for this program {flags} is \
         missing: there is no default route whose interface could be shared with the kernel, so name one \
         (with --address only, an engine owns addresses that the kernel does not have). `shunt doctor` lists \
         interfaces; `shunt lab up` makes two hosts where neither flags nor privileges are needed (`shunt lab exec a -- shunt run -- CMD`); --policy kernel-only \
         stays on the kernel",
        hostif::DEFAULT_ENGINE_NAME
    )
}

/// Whether an engine serves at that address.
fn answers(name: &str) -> anyhow::Result<bool> {
    match Channel::open(name)? {
        Some(channel) => channel.is_served(),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests;
