//! `shunt explain PID`: which stack each socket of a process is on, why, and what would change that.
//!
//! Every accelerated socket is backed by a kernel socket of the same descriptor (DESIGN: the descriptor is a
//! real kernel file), so the inode of a descriptor in /proc/PID/fd names it on both sides, see proc(5).

mod port;
pub mod process;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use hostif::control::QueryKind;
use serde::Serialize;
use serde_json::Value;

use crate::{
    engines::{Found, answer::ask_each, names_of},
    ss,
};
use output::{Table, print, print_json};
use process::{Open, Process};
use switch::reason::{self, KernelsView};

/// Say for each socket of a process which stack it is on, why, and what would change that.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt explain $(pidof redis-server)
  shunt explain --port 6379                           who has it: \"address already in use\"
  shunt lab exec a -- shunt explain 1234 --json

Exit status: 0 where the process could be looked at, 2 otherwise.")]
pub struct Arguments {
    /// Number of the process.
    #[arg(required_unless_present = "port", conflicts_with = "port")]
    pid: Option<u32>,
    /// Instead of a process: who hears on this port, on the kernel's stack and on each engine.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One descriptor.
#[derive(Debug, Serialize)]
struct Line {
    fd: u32,
    protocol: &'static str,
    /// `kernel`, or the engine's control socket; of one that hears on several stacks all of them.
    stack: String,
    /// The engine that has it; of several the first.
    engine: Option<String>,
    /// Its row in `shunt ss`, where an engine has it.
    connection: Option<Value>,
    local: Option<String>,
    remote: Option<String>,
    why: String,
    change: Option<&'static str>,
}

impl Line {
    /// Of a descriptor of which nothing more is known.
    fn of_kernel(fd: u32) -> Self {
        Self {
            fd,
            protocol: "other",
            stack: "kernel".to_owned(),
            engine: None,
            connection: None,
            local: None,
            remote: None,
            why: String::new(),
            change: None,
        }
    }
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Some(pid) = arguments.pid else {
        let port = arguments.port.context("give a process or --port")?;
        port::explain(port, arguments.json)?;
        return Ok(ExitCode::SUCCESS);
    };
    let process = Process::open(pid)?;
    let mut sockets = process.sockets()?;
    // What a supervised program sees is an end of a pair; engine and kernel know the socket behind it.
    let replaced = process.replaced();
    for open in &mut sockets {
        open.inode = replaced.get(&open.inode).copied().unwrap_or(open.inode);
    }
    let engines = engines_of(&process, &sockets)?;
    let lines = sockets.iter().map(|open| line(&process, &engines, open));
    let lines: Vec<Line> = lines
        .chain(process.rings()?.into_iter().map(ring))
        .collect();
    if arguments.json {
        print_json(&lines)?;
        return Ok(ExitCode::SUCCESS);
    }
    if lines.is_empty() {
        print(&format!("process {pid} has no sockets\n"))?;
    } else {
        print(&text(&lines))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// For people: descriptors of one socket in one row, and each reason once.
fn text(lines: &[Line]) -> String {
    let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "*".to_owned());
    let cells = |line: &Line| {
        let connection = line.connection.as_ref();
        let state = connection.and_then(|row| row["state"].as_str());
        [
            line.protocol.to_owned(),
            line.stack.clone(),
            state.unwrap_or("*").to_owned(),
            word(&line.local),
            word(&line.remote),
        ]
    };
    let mut table = Table::new("fd | protocol | stack | state | local | remote");
    for (fds, cells) in grouped(lines, cells) {
        let [protocol, stack, state, local, remote] = cells;
        table.row([ranges(&fds), protocol, stack, state, local, remote]);
    }
    let why = |line: &Line| match line.change {
        Some(change) => format!("{}; {change}", line.why),
        None => line.why.clone(),
    };
    let reasons = grouped(lines, why).into_iter();
    let reasons = reasons.map(|(fds, why)| format!("{}: {why}\n", ranges(&fds)));
    format!("{}\n{}", table.render(), reasons.collect::<String>())
}

/// Descriptors of which the same is to be said, in the order of the first of each.
fn grouped<K: PartialEq>(lines: &[Line], key: impl Fn(&Line) -> K) -> Vec<(Vec<u32>, K)> {
    let mut groups: Vec<(Vec<u32>, K)> = Vec::new();
    for line in lines {
        let of = key(line);
        match groups.iter_mut().find(|(_, known)| *known == of) {
            Some((fds, _)) => fds.push(line.fd),
            None => groups.push((vec![line.fd], of)),
        }
    }
    groups
}

/// Numbers as `3, 6-8`.
fn ranges(fds: &[u32]) -> String {
    let runs = fds.chunk_by(|one, next| one.checked_add(1) == Some(*next));
    let run = |run: &[u32]| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run.iter().map(u32::to_string).collect(),
    };
    runs.map(run).collect::<Vec<_>>().join(", ")
}

/// The engines that the process was told to use, and every other one that has one of its sockets: some programs write
/// over their environment, where the names stand.
fn engines_of(process: &Process, sockets: &[Open]) -> anyhow::Result<Vec<Engine>> {
    let told = process.engine_names();
    let namespace = process.namespace()?;
    let mut names = told.clone();
    let others = names_of(process.pid());
    names.extend(others.into_iter().filter(|name| !told.contains(name)));
    let found = names.into_iter().map(|name| Found {
        name,
        namespace: namespace.clone(),
    });
    let answers = ask_each(found.collect(), |channels| {
        let rows = ss::sockets(channels)?;
        let first = channels.first().context("no core")?;
        Ok((rows, first.query(QueryKind::Interfaces)?))
    });
    let mut engines = Vec::new();
    let mut unanswered = Vec::new();
    for (found, answer) in answers {
        let is_told = told.contains(&found.name);
        let engine = match answer {
            Ok((rows, interfaces)) => Engine::new(found.name, rows, &interfaces),
            Err(silent) => {
                let line = silent.line(&found);
                if is_told || silent.pid == Some(process.pid()) {
                    unanswered.push(line.clone());
                }
                Engine {
                    name: found.name,
                    sockets: None,
                    silent: silent.pid.map(|_| line),
                    addresses: Vec::new(),
                }
            }
        };
        let has_one = sockets.iter().any(|open| engine.row(open.inode).is_some());
        if is_told || has_one {
            engines.push(engine);
        }
    }
    let has_socket = |engine: &Engine| sockets.iter().any(|open| engine.row(open.inode).is_some());
    // Where the process names no engine the default one is a guess, wrong where another one has its sockets.
    if process.names_engines() || !engines.iter().any(has_socket) {
        for line in unanswered {
            note!("{line}");
        }
    }
    Ok(engines)
}

/// An engine that the process attaches to, and what it says of sockets.
struct Engine {
    /// Its control socket.
    name: String,
    /// Rows of `ss`; None where no engine answers.
    sockets: Option<Vec<Value>>,
    /// Why one that is there does not answer.
    silent: Option<String>,
    /// Addresses that it owns.
    addresses: Vec<String>,
}

impl Engine {
    fn new(name: String, rows: Value, interfaces: &Value) -> Self {
        let all = interfaces.as_array().into_iter().flatten();
        let all = all.filter_map(|one| one["addresses"].as_array()).flatten();
        let address = |text: &Value| Some(text.as_str()?.split('/').next()?.to_owned());
        Self {
            name,
            sockets: Some(match rows {
                Value::Array(rows) => rows,
                _ => Vec::new(),
            }),
            silent: None,
            addresses: all.filter_map(address).collect(),
        }
    }

    fn row(&self, inode: u64) -> Option<&Value> {
        let rows = self.sockets.as_ref()?;
        rows.iter().find(|row| row["inode"].as_u64() == Some(inode))
    }
}

fn ring(fd: u32) -> Line {
    let (why, change) = reason::RING;
    Line {
        protocol: "io_uring",
        why: why.to_owned(),
        change: Some(change),
        ..Line::of_kernel(fd)
    }
}

fn line(process: &Process, engines: &[Engine], open: &Open) -> Line {
    let kernels = process.kernels_view(open.inode);
    let served: Vec<(&str, &Value)> = engines
        .iter()
        .filter_map(|engine| Some((engine.name.as_str(), engine.row(open.inode)?)))
        .collect();
    if let Some((name, row)) = served.first() {
        let word = |field: &str| row[field].as_str().map(str::to_owned);
        let (local, state) = (word("local"), word("state"));
        let hears_all = matches!(state.as_deref(), Some("LISTEN" | "UNCONN"))
            && kernels
                .as_ref()
                .is_some_and(|view| view.local.ip().is_unspecified());
        let mut stacks: Vec<&str> = served.iter().map(|(name, _)| *name).collect();
        if hears_all {
            stacks.insert(0, "kernel");
        }
        return Line {
            fd: open.fd,
            protocol: kernels.as_ref().map_or("tcp", |view| view.protocol),
            stack: stacks.join(" + "),
            engine: Some((*name).to_owned()),
            connection: Some((*row).clone()),
            why: match engines {
                [_] => reason::of_engine(local.as_deref(), state.as_deref()),
                _ => reason::of_one_of_many(name, local.as_deref(), hears_all),
            },
            local,
            remote: word("remote"),
            change: Some("`shunt run --policy kernel-only` keeps every socket with the kernel"),
        };
    }
    if let Some(line) = unknown(process, engines, open, kernels.as_ref()) {
        return line;
    }
    let own: Vec<String> = engines
        .iter()
        .flat_map(|engine| engine.addresses.iter().cloned())
        .collect();
    let facts = reason::Facts {
        is_preloaded: process.is_preloaded(),
        was_led_to: process.was_led_to(),
        is_supervised: process.is_supervised(),
        policy: process.policy(),
        engine_answers: engines.iter().any(|engine| engine.sockets.is_some()),
        own: &own,
        kernels: kernels.as_ref(),
    };
    let (why, change) = facts.explain();
    Line {
        protocol: kernels.as_ref().map_or("other", |view| view.protocol),
        local: kernels.as_ref().map(|view| view.local.to_string()),
        remote: kernels
            .and_then(|view| view.remote)
            .map(|remote| remote.to_string()),
        why,
        change,
        ..Line::of_kernel(open.fd)
    }
}

/// Of a descriptor that no engine says to have, where more cannot be known, or need not.
fn unknown(
    process: &Process,
    engines: &[Engine],
    open: &Open,
    kernels: Option<&KernelsView>,
) -> Option<Line> {
    if process.is_unix(open.inode) {
        return Some(Line {
            protocol: "unix",
            why: "a Unix socket, of the program or of Shunt's library in it".to_owned(),
            ..Line::of_kernel(open.fd)
        });
    }
    // An engine that may well have it cannot be asked.
    let mut silent = engines.iter().filter_map(|one| one.silent.as_ref());
    let why = silent.next().filter(|_| process.is_served())?;
    Some(Line {
        protocol: kernels.map_or("other", |view| view.protocol),
        stack: "not known".to_owned(),
        local: kernels.map(|view| view.local.to_string()),
        why: why.clone(),
        change: Some(
            "a stopped process goes on with `kill -CONT PID`; one that hangs has to be ended",
        ),
        ..Line::of_kernel(open.fd)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_of_one_socket_share_a_row_and_the_same_reason_is_told_once() {
        let line = |fd, remote: &str| Line {
            protocol: "tcp",
            stack: "@shunt/e".to_owned(),
            local: Some("10.0.0.1:80".to_owned()),
            remote: Some(remote.to_owned()),
            why: "the engine has its address".to_owned(),
            change: Some("stay away"),
            ..Line::of_kernel(fd)
        };
        let (one, other) = ("10.0.0.2:5000", "10.0.0.2:6000");
        let mut lines: Vec<Line> = [(6, one), (7, other), (8, other), (513, one)]
            .map(|(fd, remote)| line(fd, remote))
            .into();
        lines.push(Line {
            why: "no socket of TCP".to_owned(),
            ..Line::of_kernel(9)
        });
        let said = text(&lines);
        let rows: Vec<&str> = said.lines().collect();
        assert!(
            rows[1].starts_with("6, 513") && rows[1].ends_with(one),
            "{said}"
        );
        assert!(
            rows[2].starts_with("7-8") && rows[2].ends_with(other),
            "{said}"
        );
        assert!(rows[3].starts_with("9 "), "{said}");
        assert_eq!(
            rows[5..],
            [
                "6-8, 513: the engine has its address; stay away",
                "9: no socket of TCP"
            ]
        );
    }
}
