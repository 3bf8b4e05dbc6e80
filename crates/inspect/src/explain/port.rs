//! `shunt explain --port`: who hears on a port, on the kernel's stack and on each engine.

use std::{collections::HashMap, fs, net::SocketAddr};

use observe::process as observed;
use output::{Table, print, print_json};
use serde::Serialize;
use serde_json::Value;

use super::process::table_row;
use crate::{
    engines::{answer::ask_each, here},
    ss,
};

/// A socket that hears on the port.
#[derive(Debug, Serialize)]
struct Holder {
    /// `kernel`, or the engine's control socket.
    stack: String,
    protocol: String,
    local: String,
    /// None where this user may not see whose it is.
    pid: Option<u32>,
    program: Option<String>,
}

/// Prints all of them.
pub fn explain(port: u16, is_json: bool) -> anyhow::Result<()> {
    let (mut holders, backings) = of_engines(port);
    holders.extend(of_kernel(port, &backings));
    if is_json {
        return print_json(&holders);
    }
    if holders.is_empty() {
        return print(&format!(
            "nobody hears on port {port} in this network namespace; a socket that is bound and does not listen yet is not seen\n"
        ));
    }
    let mut table = Table::new("protocol | stack | local | pid | program");
    for one in holders {
        table.row([
            one.protocol,
            one.stack,
            one.local,
            one.pid.map_or("?".to_owned(), |pid| pid.to_string()),
            one.program.unwrap_or_else(|| "?".to_owned()),
        ]);
    }
    print(&table.render())
}

/// Sockets of engines, and the inodes of the kernel's sockets behind them, which are no holders of their own.
fn of_engines(port: u16) -> (Vec<Holder>, Vec<u64>) {
    let (mut holders, mut backings) = (Vec::new(), Vec::new());
    for (found, answer) in ask_each(here(), ss::sockets) {
        let rows = match answer {
            Ok(Value::Array(rows)) => rows,
            Ok(_) => continue,
            Err(silent) => {
                note!("{}", silent.line(&found));
                continue;
            }
        };
        for row in rows {
            let local = row["local"].as_str().unwrap_or_default();
            let is_there = local
                .parse()
                .is_ok_and(|own: SocketAddr| own.port() == port);
            if !is_there || row["remote"].is_string() {
                continue;
            }
            backings.extend(row["inode"].as_u64());
            let pid = row["pids"][0]
                .as_u64()
                .and_then(|pid| u32::try_from(pid).ok());
            holders.push(Holder {
                stack: found.name.clone(),
                protocol: row["protocol"].as_str().unwrap_or_default().to_owned(),
                local: local.to_owned(),
                pid,
                program: pid.and_then(observed::name),
            });
        }
    }
    (holders, backings)
}

/// Sockets of the kernel that listen, and of UDP those without a peer.
fn of_kernel(port: u16, backings: &[u64]) -> Vec<Holder> {
    let mut found: Vec<(u64, Holder)> = Vec::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let text = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        for row in text.lines().skip(1).filter_map(table_row) {
            let hears = row.remote.port() == 0 && (row.is_listening || table.starts_with("udp"));
            // The kernel reads its table in parts, and shows a socket twice where others come and go in between.
            let is_known = found.iter().any(|(inode, _)| *inode == row.inode);
            if row.local.port() == port && hears && !is_known && !backings.contains(&row.inode) {
                let holder = Holder {
                    stack: "kernel".to_owned(),
                    protocol: table.trim_end_matches('6').to_owned(),
                    local: row.local.to_string(),
                    pid: None,
                    program: None,
                };
                found.push((row.inode, holder));
            }
        }
    }
    let owners = owners(found.iter().map(|(inode, _)| *inode).collect());
    let named = found.into_iter().map(|(inode, mut holder)| {
        holder.pid = owners.get(&inode).copied();
        holder.program = holder.pid.and_then(observed::name);
        holder
    });
    named.collect()
}

/// A process that has each of these sockets open, as far as this user may look.
fn owners(inodes: Vec<u64>) -> HashMap<u64, u32> {
    let mut owners = HashMap::new();
    if inodes.is_empty() {
        return owners;
    }
    for pid in observed::all() {
        for inode in observed::socket_inodes(&[pid]) {
            let inode = u64::from(inode);
            if inodes.contains(&inode) {
                owners.entry(inode).or_insert(pid);
            }
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_listener_is_named_with_its_process_unless_an_engine_is_in_front() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let holders = of_kernel(port, &[]);
        assert_eq!(holders.len(), 1, "{holders:?}");
        assert_eq!(holders[0].pid, Some(std::process::id()));
        let inode = rustix::fs::fstat(&socket).unwrap().st_ino;
        assert!(of_kernel(port, &[inode]).is_empty());
    }
}
