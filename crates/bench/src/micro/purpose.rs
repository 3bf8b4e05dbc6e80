//! What Shunt is for: the rows of the other commands that show it, in one short table below that of the programs.

use super::{bulk, cpu, latency, rate, setup::Plan};

/// The rows, by words of their names; what is indented below them comes along.
const LATENCY: [&str; 4] = [
    "inline both ends (AF_PACKET)",
    "sockperf inline, kernel sleeping, idle latency held",
    "sockperf, same host, both inline",
    "sockperf, same host, --loopback",
];
const RATE: [&str; 3] = [
    "64-byte messages",
    "redis GET, 50 connections, same host, both inline",
    "redis GET, 50 connections, same host, --loopback",
];
const BULK: [&str; 2] = [
    "same host, both inline, against loopback",
    "same host, --loopback, against loopback",
];
const CPU: [&str; 2] = [
    "program's CPU per send(2) of 1 KiB, engine",
    "program's CPU per recv(2) of 1 KiB, engine",
];

pub fn plan() -> anyhow::Result<Plan> {
    let parts = latency::plan().only(&LATENCY)?;
    let parts = parts.and(rate::plan().only(&RATE)?);
    let parts = parts.and(bulk::plan().only(&BULK)?);
    let mut whole = parts.and(cpu::plan().only(&CPU)?);
    whole.notes = vec![
        "inline: the engine is in the program, at an address of its own; --loopback: one engine process between both programs",
        "a whole round trip; both ends of the kernel's side are on the kernel, and spin where Shunt's do unless sockperf is named",
        "CPU of the program per call, not of the engine",
    ];
    // Of the tail the table of `shunt bench latency` tells more.
    whole.rows.retain(|row| row.what.trim() != "p99.9");
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_there_and_its_setups_are_told_apart() {
        let plan = plan().unwrap();
        let count = LATENCY.len() + RATE.len() + BULK.len() + CPU.len();
        let whole = plan.rows.iter().filter(|row| !row.what.starts_with(' '));
        assert_eq!(whole.count(), count);
        let mut keys: Vec<_> = plan.setups.iter().map(|setup| setup.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), plan.setups.len());
    }
}
