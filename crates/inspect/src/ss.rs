//! `shunt ss`: the sockets of each engine.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use hostif::control::QueryKind;
use serde_json::Value;

use crate::{
    control::Channel,
    engines::{
        Which,
        answer::{ask_each, namespace_of},
    },
    status::merge,
};
use output::{Table, print_result};

/// List the sockets of the engines, as ss(8) lists the kernel's.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt ss
  shunt ss --listening
  shunt ss --udp
  shunt ss --all
  shunt ss --json | jq '.[] | select(.state == \"ESTAB\")'

Exit status: 0 where an engine answered, 2 otherwise.")]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
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

/// Every socket of an engine.
pub fn sockets(channels: &[Channel]) -> anyhow::Result<Value> {
    let asked = channels
        .iter()
        .map(|channel| channel.query(QueryKind::Sockets));
    Ok(merge::sockets(&asked.collect::<anyhow::Result<Vec<_>>>()?))
}

/// Runs `shunt ss`.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut rows = Vec::new();
    let mut answered = false;
    for (found, answer) in ask_each(arguments.which.find()?, sockets) {
        match answer {
            Ok(Value::Array(of_engine)) => {
                answered = true;
                rows.extend(of_engine.into_iter().map(|mut row| {
                    row["engine"] = found.name.as_str().into();
                    row["namespace"] = namespace_of(&found).into();
                    row
                }));
            }
            Ok(_) => {}
            Err(silent) => note!("{}", silent.line(&found)),
        }
    }
    if !answered {
        bail!("{}", arguments.which.nobody());
    }
    rows.retain(|row| {
        let is_open_to_all = row["state"] == "LISTEN" || row["state"] == "UNCONN";
        (!arguments.listening || is_open_to_all) && (!arguments.udp || row["protocol"] == "udp")
    });
    print_result(arguments.json, &rows, || table(&rows))?;
    Ok(ExitCode::SUCCESS)
}

fn table(rows: &[Value]) -> String {
    let mut table = Table::new(
        "protocol | state | recv-q | send-q | local | peer | pid | engine | core | control",
    );
    for row in rows {
        let word = |name: &str| row[name].as_str().unwrap_or("*").to_owned();
        let pids = row["pids"].as_array().into_iter().flatten();
        let pids: Vec<String> = pids.map(Value::to_string).collect();
        table.row([
            word("protocol"),
            word("state"),
            row["receive_queue"].to_string(),
            row["send_queue"].to_string(),
            word("local"),
            word("remote"),
            pids.join(","),
            word("engine"),
            row["core"].to_string(),
            word("congestion_control"),
        ]);
    }
    table.render()
}
