//! `shunt status` and `shunt ss`: what an engine says about itself, all its cores together.

mod merge;

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use hostif::control::QueryKind;
use serde::Serialize;
use serde_json::{Value, json};

use crate::commands::explain::process::Process;
use crate::control::Channel;
use crate::engines;
use bench::observe;
use output::{Table, print, print_json};

/// Show a running engine: its device, its programs, its counters.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt status
  shunt status --json | jq .stack_counters")]
pub struct Status {
    #[command(flatten)]
    engine: EngineName,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// List the engine's sockets, as ss(8) lists the kernel's.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt ss
  shunt ss --listening
  shunt ss --udp
  shunt ss --json | jq '.[] | select(.state == \"ESTAB\")'")]
pub struct Ss {
    #[command(flatten)]
    engine: EngineName,
    /// Only sockets that listen, and UDP sockets without a peer.
    #[arg(long, short)]
    listening: bool,
    /// Only UDP sockets.
    #[arg(long, short)]
    udp: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct EngineName {
    /// Control socket of the engine: @NAME or a path [default: @shunt/engine, or where no engine answers there the
    /// only other one of this network namespace, such as `shunt run` starts].
    #[arg(long, value_name = "ADDRESS", env = hostif::ENGINE_VARIABLE)]
    engine: Option<String>,
}

impl EngineName {
    /// A channel to each core; at least one.
    fn channels(&self) -> anyhow::Result<Vec<Channel>> {
        let Some(asked) = &self.engine else {
            return usual_engine()?.all_cores();
        };
        // Beneath a `shunt run` with several engines: the first.
        let mut names = asked.split(hostif::ENGINE_SEPARATOR);
        match Channel::open(names.next().unwrap_or_default())? {
            Some(channel) => channel.all_cores(),
            None => bail!("{}", nobody_at(asked)),
        }
    }
}

/// The engine at the usual name; where none answers there, the only one that this network namespace has.
fn usual_engine() -> anyhow::Result<Channel> {
    let usual = hostif::DEFAULT_ENGINE_NAME;
    let mut others = engines::names();
    others.retain(|name| name != usual);
    if let Some(channel) = Channel::open(usual)? {
        if !others.is_empty() {
            note!("also here: {}; see --engine", others.join(", "));
        }
        return Ok(channel);
    }
    match others.as_slice() {
        [] => bail!("{}", nobody_at(usual)),
        [only] => Channel::open(only)?.with_context(|| nobody_at(only)),
        several => bail!(
            "several engines run in this network namespace: choose one with --engine {}",
            several.join(" or --engine ")
        ),
    }
}

fn nobody_at(name: &str) -> String {
    format!(
        "no engine answers at {name} in this network namespace: start one with `shunt engine`, name another with --engine, or ask inside a lab with `shunt lab exec HOST -- shunt status`"
    )
}

/// Runs `shunt status`.
pub fn status(arguments: &Status) -> anyhow::Result<ExitCode> {
    let channels = arguments.engine.channels()?;
    let ask = |kind| -> anyhow::Result<Vec<Value>> {
        channels.iter().map(|channel| channel.query(kind)).collect()
    };
    let programs = merge::programs(&ask(QueryKind::Sessions)?);
    let status = merge::status(&ask(QueryKind::Status)?, &programs);
    let interfaces = channels[0].query(QueryKind::Interfaces)?;
    let outside = outside(status["name"].as_str().unwrap_or_default());
    if arguments.json {
        let mut all = status;
        all["interfaces"] = interfaces;
        all["attached"] = programs;
        all["outside"] = json!(outside);
        print_json(&all)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = status_text(&status, &interfaces, &programs);
    for one in outside {
        text += &format!(
            "not on Shunt, though `shunt run` led to it: {} (process {}); its sockets are the kernel's\n",
            one.program, one.pid
        );
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// A process that `shunt run` was to put on an engine, and that is not there.
#[derive(Serialize)]
struct Outside {
    pid: u32,
    program: String,
}

/// Those of an engine's network that may be looked at.
fn outside(engine: &str) -> Vec<Outside> {
    let is_outside = |pid: &u32| {
        Process::open(*pid).is_ok_and(|process| {
            process.is_outside(engine) && process.is_in_our_network().is_ok_and(|is_ours| is_ours)
        })
    };
    let pids = observe::process::all().into_iter().filter(is_outside);
    let described = |pid| Outside {
        pid,
        program: observe::process::name(pid).unwrap_or_default(),
    };
    pids.map(described).collect()
}

fn status_text(status: &Value, interfaces: &Value, programs: &Value) -> String {
    let word = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let words = |list: &Value| -> Vec<String> {
        let list = list.as_array().into_iter().flatten();
        list.map(word).collect()
    };
    let mut text = format!(
        "engine {} (process {}): programs {}, connections {}, listeners {}, in TIME-WAIT {}, UDP sockets {}\n",
        word(&status["name"]),
        status["pid"],
        status["programs"],
        status["connections"],
        status["listeners"],
        status["time_waits"],
        status["datagram_sockets"],
    );
    text += &place(status);
    text += &format!(
        "memory {} KiB ({} KiB of it windows and state), {} bytes a connection beside its windows\n",
        status["memory_kib"]["total"],
        status["memory_kib"]["shared"],
        status["bytes_per_connection"],
    );
    let copies = &status["copies"];
    let each = |name: &str| copies[name].as_f64().map(|each| format!("{each:.2}"));
    let parts = [
        each("per_sent_byte").map(|each| format!("{each} per byte sent")),
        each("per_received_byte").map(|each| format!("{each} per byte received")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        text += &format!("copies {}\n", parts.join(", "));
    }
    if status["cores"].as_u64().unwrap_or(1) > 1 {
        let shares = status["by_core"].as_array().into_iter().flatten();
        let shares: Vec<String> = shares.map(|core| core["connections"].to_string()).collect();
        text += &format!(
            "{} cores, with {} connections\n",
            status["cores"],
            shares.join(", ")
        );
    }
    for interface in interfaces.as_array().into_iter().flatten() {
        let addresses = words(&interface["addresses"]);
        text += &format!(
            "{} by {}{}, {}, MTU {}, congestion control {}, protocols ipv4 {}: {}\n",
            word(&interface["interface"]),
            word(&interface["driver"]),
            interface["driver_mode"]
                .as_str()
                .map_or(String::new(), |mode| format!(" ({mode})")),
            word(&interface["hardware_address"]),
            interface["mtu_bytes"],
            word(&status["congestion_control"]),
            words(&status["protocols"]).join(" "),
            addresses.join(", ")
        );
    }
    text + &warnings(status) + &tables(status, programs)
}

/// Where the engine runs, and why; nothing of one that was started as a service.
fn place(status: &Value) -> String {
    let because = status["because"].as_str();
    because.map_or_else(String::new, |because| {
        let mode = status["mode"].as_str().unwrap_or_default();
        format!("engine mode {mode} ({because}); choose with `shunt run --engine-mode`\n")
    })
}

fn warnings(status: &Value) -> String {
    let complaints = status["complaints"].as_array().into_iter().flatten();
    let complaints = complaints.filter_map(Value::as_str);
    let mut text: String = complaints.map(|one| format!("warning: {one}\n")).collect();
    let lost = status["lost_log_lines"].as_u64().unwrap_or(0);
    if lost > 0 {
        text += &format!(
            "warning: {lost} lines of the engine's log were lost: nobody read them, or there was no room\n"
        );
    }
    let conflicts = status["stack_counters"]["ShuntArpConflicts"]
        .as_u64()
        .unwrap_or(0);
    if conflicts > 0 {
        text += &format!(
            "warning: another machine on the link claimed an address of this engine, {conflicts} times (RFC 5227); give it another --address\n"
        );
    }
    text
}

fn tables(status: &Value, programs: &Value) -> String {
    let mut text = String::new();
    let mut table = Table::new(["program", "user", "connections", "listeners"]);
    for program in programs.as_array().into_iter().flatten() {
        let cell = |name: &str| program[name].to_string();
        table.row([
            cell("pid"),
            cell("uid"),
            cell("connections"),
            cell("listeners"),
        ]);
    }
    if programs.as_array().is_some_and(|list| !list.is_empty()) {
        text += "\n";
        text += &table.render();
    }
    text += "\n";
    let mut counters = Table::new(["counter", "value"]);
    for group in ["driver_counters", "stack_counters"] {
        for (name, value) in status[group].as_object().into_iter().flatten() {
            if value != &json!(0) {
                counters.row([name.clone(), value.to_string()]);
            }
        }
    }
    text + &counters.render()
}

/// Runs `shunt ss`.
pub fn ss(arguments: &Ss) -> anyhow::Result<ExitCode> {
    let channels = arguments.engine.channels()?;
    let asked: anyhow::Result<Vec<Value>> = channels
        .iter()
        .map(|channel| channel.query(QueryKind::Sockets))
        .collect();
    let sockets = merge::sockets(&asked?);
    let rows: Vec<&Value> = sockets
        .as_array()
        .into_iter()
        .flatten()
        .filter(|row| !arguments.listening || row["state"] == "LISTEN" || row["state"] == "UNCONN")
        .filter(|row| !arguments.udp || row["protocol"] == "udp")
        .collect();
    if arguments.json {
        print_json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new([
        "protocol", "state", "recv-q", "send-q", "local", "peer", "pid", "core", "control",
    ]);
    for row in rows {
        let word = |name: &str| row[name].as_str().unwrap_or("*").to_owned();
        let pids: Vec<String> = row["pids"]
            .as_array()
            .into_iter()
            .flatten()
            .map(Value::to_string)
            .collect();
        table.row([
            word("protocol"),
            word("state"),
            row["receive_queue"].to_string(),
            row["send_queue"].to_string(),
            word("local"),
            word("remote"),
            pids.join(","),
            row["core"].to_string(),
            word("congestion_control"),
        ]);
    }
    print(&table.render())?;
    Ok(ExitCode::SUCCESS)
}
