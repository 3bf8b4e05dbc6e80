//! `shunt explain PID`: which stack each socket of a process is on, why, and what would change that.
//!
//! Every accelerated socket is backed by a kernel socket of the same descriptor (DESIGN: the descriptor is a
//! real kernel file), so the inode of a descriptor in /proc/PID/fd names it on both sides, see proc(5).

pub mod process;

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use hostif::control::QueryKind;
use serde::Serialize;
use serde_json::Value;

use crate::{control::Channel, engines};
use output::{Table, print, print_json};
use process::{Open, Process};
use switch::reason;

/// Say for each socket of a process which stack it is on, why, and what would change that.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt explain $(pidof redis-server)
  shunt lab exec a -- shunt explain 1234 --json

Exit status: 0 where the process could be looked at, 2 otherwise.")]
pub struct Arguments {
    /// Number of the process.
    pid: u32,
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
    local: Option<String>,
    remote: Option<String>,
    why: String,
    change: Option<&'static str>,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let process = Process::open(arguments.pid)?;
    if !process.is_in_our_network()? {
        bail!(
            "process {0} is in another network namespace, where its engine cannot be asked from here: `shunt lab exec HOST -- shunt explain {0}`, or nsenter --net --target {0}",
            arguments.pid
        );
    }
    let sockets = process.sockets()?;
    let engines = engines_of(&process, &sockets)?;
    let lines = sockets.iter().map(|open| line(&process, &engines, open));
    let lines: Vec<Line> = lines
        .chain(process.rings()?.into_iter().map(ring))
        .collect();
    if arguments.json {
        print_json(&lines)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["fd", "protocol", "stack", "local", "remote"]);
    let mut reasons = String::new();
    for line in &lines {
        let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "*".to_owned());
        table.row([
            line.fd.to_string(),
            line.protocol.to_owned(),
            line.stack.clone(),
            word(&line.local),
            word(&line.remote),
        ]);
        reasons += &format!("{}: {}", line.fd, line.why);
        if let Some(change) = line.change {
            reasons += &format!("; {change}");
        }
        reasons.push('\n');
    }
    if lines.is_empty() {
        print(&format!("process {} has no sockets\n", arguments.pid))?;
    } else {
        print(&format!("{}\n{reasons}", table.render()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The engines that the process was told to use, and every other one that has one of its sockets: some programs write
/// over their environment, where the names stand.
fn engines_of(process: &Process, sockets: &[Open]) -> anyhow::Result<Vec<Engine>> {
    let mut told = process.engine_names();
    let others: Vec<String> = engines::names()
        .into_iter()
        .filter(|name| !told.contains(name))
        .collect();
    let mut found: Vec<Engine> = told
        .drain(..)
        .map(Engine::of)
        .collect::<anyhow::Result<_>>()?;
    for name in others {
        // Nobody named it: one that does not answer is nobody's concern here.
        let engine = Engine::of(name).ok();
        found.extend(engine.filter(|engine| {
            let mut inodes = sockets.iter().map(|open| open.inode);
            inodes.any(|inode| engine.row(inode).is_some())
        }));
    }
    Ok(found)
}

/// An engine that the process attaches to, and what it says of sockets.
struct Engine {
    /// Its control socket.
    name: String,
    /// Rows of `ss`; None where no engine answers.
    sockets: Option<Vec<Value>>,
    /// Addresses that it owns.
    addresses: Vec<String>,
}

impl Engine {
    fn of(name: String) -> anyhow::Result<Self> {
        let mut engine = Self {
            name,
            sockets: None,
            addresses: Vec::new(),
        };
        let Some(channel) = Channel::open(&engine.name)? else {
            return Ok(engine);
        };
        let mut sockets = Vec::new();
        for (core, channel) in channel.all_cores()?.iter().enumerate() {
            if let Value::Array(rows) = channel.query(QueryKind::Sockets)? {
                sockets.extend(rows);
            }
            if core == 0 {
                let interfaces = channel.query(QueryKind::Interfaces)?;
                let all = interfaces.as_array().into_iter().flatten();
                let all = all.filter_map(|one| one["addresses"].as_array()).flatten();
                let address = |text: &Value| Some(text.as_str()?.split('/').next()?.to_owned());
                engine.addresses = all.filter_map(address).collect();
            }
        }
        engine.sockets = Some(sockets);
        Ok(engine)
    }

    fn row(&self, inode: u64) -> Option<&Value> {
        let rows = self.sockets.as_ref()?;
        rows.iter().find(|row| row["inode"].as_u64() == Some(inode))
    }
}

fn ring(fd: u32) -> Line {
    let (why, change) = reason::RING;
    Line {
        fd,
        protocol: "io_uring",
        stack: "kernel".to_owned(),
        local: None,
        remote: None,
        why: why.to_owned(),
        change: Some(change),
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
            why: match engines {
                [_] => reason::of_engine(local.as_deref(), state.as_deref()),
                _ => reason::of_one_of_many(name, local.as_deref(), hears_all),
            },
            local,
            remote: word("remote"),
            change: Some("`shunt run --policy kernel-only` keeps every socket with the kernel"),
        };
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
        fd: open.fd,
        protocol: kernels.as_ref().map_or("other", |view| view.protocol),
        stack: "kernel".to_owned(),
        local: kernels.as_ref().map(|view| view.local.to_string()),
        remote: kernels
            .and_then(|view| view.remote)
            .map(|remote| remote.to_string()),
        why,
        change,
    }
}
