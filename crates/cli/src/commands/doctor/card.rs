//! `shunt doctor IFACE`: what is behind an interface, how an engine would reach it and why, and the commands for more.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use hostif::Steering;
use netlink::ethtool;
use netlink::xdp::{self, XdpFeatures};
use serde::Serialize;

use super::interfaces::{self, InterfaceReport};
use super::measured::way_for;
use crate::commands::engine::arguments::Profile;
use crate::commands::engine::card as engine_card;

/// What was found of an interface.
#[derive(Debug, Serialize)]
struct CardReport {
    #[serde(flatten)]
    interface: InterfaceReport,
    /// A cable, and somebody at its other end.
    carrier: bool,
    /// Mbit/s; None where the link does not say.
    speed_mbit_s: Option<u32>,
    /// The device's firmware.
    firmware: String,
    /// Where the device is.
    bus: String,
    /// Processors that are near it; None where all are.
    near_processors: Option<String>,
    /// Its interrupts, and the processors on which each may come.
    interrupts: Vec<Interrupt>,
    /// Modes of AF_XDP, as its driver says; None before Linux 6.3.
    xdp: Option<Xdp>,
    /// Its clock; None where it has none.
    clock: Option<Clock>,
    /// How it spreads received frames, and what an engine of several cores makes of that; None where it has one queue.
    spread: Option<String>,
    /// How an engine reaches it where no flag says so, and why.
    used: String,
    reason: String,
    /// What to type.
    commands: Vec<Command>,
    /// What is not as it should be.
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Clock {
    device: String,
    name: String,
    stamps_sent: bool,
    stamps_received: bool,
}

#[derive(Debug, Serialize)]
struct Interrupt {
    number: u32,
    processors: String,
}

#[derive(Debug, Serialize)]
struct Xdp {
    native: bool,
    pieces: bool,
    zero_copy: bool,
    zero_copy_pieces: u32,
}

impl From<XdpFeatures> for Xdp {
    fn from(features: XdpFeatures) -> Self {
        let XdpFeatures {
            native,
            pieces,
            zero_copy,
            zero_copy_pieces,
        } = features;
        Self {
            native,
            pieces,
            zero_copy,
            zero_copy_pieces,
        }
    }
}

#[derive(Debug, Serialize)]
struct Command {
    command: String,
    what: &'static str,
}

/// Whether a word of the command line is the name of an interface, and not of a file in a folder.
pub fn is_interface(name: &str) -> bool {
    !name.contains('/') && netlink::interface::hardware_address(name).is_ok()
}

/// Prints the report.
pub fn execute(name: &str, is_json: bool) -> anyhow::Result<ExitCode> {
    let report = look(name)?;
    output::print_result(is_json, &report, || text(&report))?;
    Ok(ExitCode::SUCCESS)
}

fn look(name: &str) -> anyhow::Result<CardReport> {
    let all = interfaces::all()?;
    let interface = all.into_iter().find(|one| one.name == name);
    let interface = interface.with_context(|| format!("interface {name} has just gone"))?;
    let control = netlink::interface::control_socket().context("asking the kernel")?;
    let carrier = netlink::interface::has_carrier(rustix::fd::AsFd::as_fd(&control), name);
    let info = ethtool::driver_info(name);
    let link = netlink::interface::read(name);
    let is_ethernet = link.as_ref().is_ok_and(|link| link.is_ethernet) && !interface.loopback;
    let xdp = link.and_then(|link| xdp::features(link.index));
    let (used, reason) = if is_ethernet {
        way(name)
    } else {
        ("none".to_owned(), NO_ETHERNET.to_owned())
    };
    let mut report = CardReport {
        carrier: carrier.unwrap_or(false),
        speed_mbit_s: setting(name, "speed").and_then(|speed| speed.parse().ok()),
        firmware: info
            .as_ref()
            .map_or_else(String::new, |info| info.firmware.clone()),
        bus: info.map_or_else(String::new, |info| info.bus),
        near_processors: interface
            .numa_node
            .and_then(|node| read(format!("/sys/devices/system/node/node{node}/cpulist"))),
        interrupts: interrupts(name),
        xdp: xdp.ok().map(Xdp::from),
        clock: clock(name),
        spread: interface
            .queues
            .filter(|(receiving, _)| *receiving > 1)
            .map(|_| spread(name)),
        used,
        reason,
        commands: Vec::new(),
        warnings: Vec::new(),
        interface,
    };
    if is_ethernet {
        report.commands = commands(&report);
    }
    report.warnings = warnings(&report);
    Ok(report)
}

const NO_ETHERNET: &str = "an engine needs an Ethernet interface; programs of one host meet on Shunt by `shunt run --loopback`";

/// How an engine reaches an Ethernet interface where no flag says so, and why.
fn way(name: &str) -> (String, String) {
    let default =
        "the default, which works on every interface; this one was not measured on this kernel";
    way_for(name, Profile::default(), 1).map_or_else(
        || ("af_packet".to_owned(), default.to_owned()),
        |(way, why)| (way.name().to_owned(), why),
    )
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

fn setting(name: &str, file: &str) -> Option<String> {
    read(format!("/sys/class/net/{name}/{file}"))
}

/// The interrupts of the card behind an interface: of a virtio card they are its parent's.
fn interrupts(name: &str) -> Vec<Interrupt> {
    let device = format!("/sys/class/net/{name}/device");
    let folders = [
        format!("{device}/msi_irqs"),
        format!("{device}/../msi_irqs"),
    ];
    let numbers = folders.iter().find_map(|folder| fs::read_dir(folder).ok());
    let mut numbers: Vec<u32> = numbers
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let of = |number: u32| {
        // One that nobody has asked for has no folder.
        let processors = read(format!("/proc/irq/{number}/effective_affinity_list"))?;
        (!processors.is_empty()).then_some(Interrupt { number, processors })
    };
    numbers.into_iter().filter_map(of).collect()
}

fn clock(name: &str) -> Option<Clock> {
    let clock = ethtool::clock(name)?;
    let number = clock.number;
    Some(Clock {
        device: format!("/dev/ptp{number}"),
        name: read(format!("/sys/class/ptp/ptp{number}/clock_name")).unwrap_or_default(),
        stamps_sent: clock.stamps_sent,
        stamps_received: clock.stamps_received,
    })
}

/// As an engine of two cores would find it.
fn spread(name: &str) -> String {
    match engine_card::plan_for(name, Steering::of_card(2, 0)) {
        Ok((_, told, _)) => format!(
            "table of {} entries, key of {} bytes: with --cores an engine sets both while it lives",
            told.table.len(),
            told.key.len()
        ),
        Err(why) => format!("by a hash of its own: {why:#}"),
    }
}

fn commands(report: &CardReport) -> Vec<Command> {
    let name = &report.interface.name;
    let mut commands = vec![Command {
        command: format!("shunt doctor --measure {name} --peer ADDRESS"),
        what: "tries and measures every way; engines then use what serves best",
    }];
    let queues = report.interface.queues.map_or(1, |(rx, _)| rx);
    let engine = |flags: &str| format!("shunt engine --nic {name}{flags} --address ADDRESS/PREFIX");
    let modes = report.xdp.as_ref();
    if modes.is_some_and(|xdp| xdp.zero_copy) {
        commands.push(Command {
            command: engine(" --driver af_xdp --xdp-mode zero-copy"),
            what: "the card writes into the engine's memory",
        });
    } else if modes.is_some_and(|xdp| xdp.native) {
        commands.push(Command {
            command: engine(" --driver af_xdp --xdp-mode native"),
            what: "frames are taken in the card's driver, by a copy",
        });
    }
    if queues > 1 {
        commands.push(Command {
            command: engine(" --cores 2"),
            what: "two engine cores, over which connections are spread",
        });
    }
    commands.push(Command {
        command: format!("shunt run --nic {name} --address ADDRESS/PREFIX -- PROGRAM"),
        what: "a program with an engine of its own",
    });
    commands
}

fn warnings(report: &CardReport) -> Vec<String> {
    let name = &report.interface.name;
    let mut warnings = Vec::new();
    if !report.interface.up {
        warnings.push(format!("{name} is down: ip link set {name} up"));
    } else if !report.carrier {
        warnings.push(format!(
            "{name} has no carrier: look at the cable and at the device at its other end"
        ));
    }
    if report.interface.default_route {
        warnings.push(format!(
            "the default route leaves by {name}: native and zero-copy modes take its link away for a moment when they are switched on"
        ));
    }
    if report.interface.leaves_checksums() {
        warnings.push(format!(
            "{name} is virtual and has tx-checksum on: what this host's kernel sends by it has checksums that nobody fills. Shunt's drivers and the \
             kernel know that; whoever takes such frames as they are, as DPDK's virtual devices do, finds each of them damaged: ethtool -K {name} tx off"
        ));
    }
    let of_one = |interrupt: &Interrupt| interrupt.processors == report.interrupts[0].processors;
    if report.interrupts.len() > 2 && report.interrupts.iter().all(of_one) {
        let processor = &report.interrupts[0].processors;
        warnings.push(format!(
            "all interrupts of {name} come on processor {processor}: start irqbalance, or write other processors to /proc/irq/NUMBER/smp_affinity_list"
        ));
    }
    warnings
}

fn text(report: &CardReport) -> String {
    let interface = &report.interface;
    let mut head = vec![
        interface
            .driver
            .clone()
            .unwrap_or_else(|| "a driver without a name".to_owned()),
    ];
    let said = |what: &str, value: &str| (!value.is_empty()).then(|| format!("{what} {value}"));
    head.extend(said("firmware", &report.firmware));
    head.extend(said("at", &report.bus));
    let mut text = format!("{}: {}\n", interface.name, head.join(", "));
    let mut line = |what: &str, found: String| text += &format!("  {what:<12}{found}\n");
    let state = match (interface.up, report.carrier) {
        (false, _) => "down",
        (true, false) => "up, no carrier",
        (true, true) => "up",
    };
    let speed = report.speed_mbit_s.map(|speed| format!(", {speed} Mbit/s"));
    let mtu = interface.mtu.map(|mtu| format!(", MTU {mtu}"));
    line(
        "link",
        format!(
            "{state}{}{}",
            speed.unwrap_or_default(),
            mtu.unwrap_or_default()
        ),
    );
    if let Some((rx, tx)) = interface.queues {
        line("queues", format!("{rx} to receive, {tx} to send"));
    }
    if let Some(spread) = &report.spread {
        line("spread", spread.clone());
    }
    line("offloads", interface.offloads.words().join(", "));
    line("XDP", xdp_words(report.xdp.as_ref()));
    if !report.interrupts.is_empty() {
        let on = report.interrupts.iter();
        let on: Vec<String> = on
            .map(|one| format!("{} on {}", one.number, one.processors))
            .collect();
        line(
            "interrupts",
            format!("{} (number on processor)", on.join(", ")),
        );
    }
    if let Some(clock) = &report.clock {
        line("clock", clock_words(clock));
    }
    if let Some(node) = interface.numa_node {
        let near = report.near_processors.as_deref().unwrap_or("unknown");
        line(
            "NUMA",
            format!("node {node}, processors {near}: run engine cores there (--cpu)"),
        );
    }
    line("used", format!("{}: {}", report.used, report.reason));
    if !report.commands.is_empty() {
        text += "\ncommands\n";
    }
    for Command { command, what } in &report.commands {
        text += &format!("  {command}\n      {what}\n");
    }
    for warning in &report.warnings {
        text += &format!("\nwarning: {warning}\n");
    }
    text
}

fn clock_words(clock: &Clock) -> String {
    let Clock { device, name, .. } = clock;
    let name = if name.is_empty() {
        String::new()
    } else {
        format!(" ({name})")
    };
    let stamped = match (clock.stamps_sent, clock.stamps_received) {
        (true, true) => "frames that leave and that arrive",
        (true, false) => "frames that leave; of those that arrive PTP's at most",
        (false, true) => "frames that arrive",
        (false, false) => "PTP's frames at most",
    };
    format!("{device}{name} stamps {stamped}")
}

fn xdp_words(xdp: Option<&Xdp>) -> String {
    let Some(xdp) = xdp else {
        return "generic; this kernel does not say which modes the driver has".to_owned();
    };
    let mut modes = vec!["generic".to_owned()];
    if xdp.native {
        modes.push("native".to_owned());
    }
    if xdp.zero_copy {
        modes.push(match xdp.zero_copy_pieces {
            0 | 1 => "zero-copy (a frame is one piece of 4 KiB)".to_owned(),
            pieces => format!("zero-copy (a frame is up to {pieces} pieces of 4 KiB)"),
        });
    }
    format!("{}, as its driver says", modes.join(", "))
}
