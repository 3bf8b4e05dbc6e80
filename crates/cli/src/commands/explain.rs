//! `shunt explain PID`: which stack each socket of a process is on, why, and what would change that.
//!
//! Every accelerated socket is backed by a kernel socket of the same descriptor (DESIGN: the descriptor is a
//! real kernel file), so the inode of a descriptor in /proc/PID/fd names it on both sides, see proc(5).

mod process;
mod reason;

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use hostif::control::QueryKind;
use serde::Serialize;
use serde_json::Value;

use crate::{
    control::Channel,
    output::{Table, print, print_json},
};
use process::{Open, Process};

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
    /// `kernel`, or the engine's control socket.
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
    let engine = Engine::of(&process)?;
    let lines: Vec<Line> = process
        .sockets()?
        .iter()
        .map(|open| line(&process, &engine, open))
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

/// The engine that the process attaches to, and what it says of sockets.
struct Engine {
    /// None where the process asks for none.
    name: Option<String>,
    /// Rows of `ss`; None where no engine answers.
    sockets: Option<Vec<Value>>,
    /// Addresses that it owns.
    addresses: Vec<String>,
}

impl Engine {
    fn of(process: &Process) -> anyhow::Result<Self> {
        let mut engine = Self {
            name: process.engine_name(),
            sockets: None,
            addresses: Vec::new(),
        };
        let Some(name) = &engine.name else {
            return Ok(engine);
        };
        let Some(channel) = Channel::open(name)? else {
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

fn line(process: &Process, engine: &Engine, open: &Open) -> Line {
    let kernels = process.kernels_view(open.inode);
    if let (Some(row), Some(name)) = (engine.row(open.inode), &engine.name) {
        let word = |field: &str| row[field].as_str().map(str::to_owned);
        let local = word("local");
        return Line {
            fd: open.fd,
            protocol: kernels.as_ref().map_or("tcp", |view| view.protocol),
            stack: name.clone(),
            why: reason::of_engine(local.as_deref(), word("state").as_deref()),
            local,
            remote: word("remote"),
            change: Some("`shunt run --policy kernel-only` keeps every socket with the kernel"),
        };
    }
    let facts = reason::Facts {
        is_preloaded: process.is_preloaded(),
        policy: process.policy(),
        engine_answers: engine.sockets.is_some(),
        own: &engine.addresses,
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
