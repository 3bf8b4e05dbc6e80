//! What each way receives, where a peer can be made to send: its kernel sends nothing by itself, so that takes a
//! program there. Where the interface is one end of a veth pair, another pair is made, in namespaces of its
//! own, on which nobody else depends; elsewhere the reason is said.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context, bail};
use lab::{INTERFACE, Lab, LabSpec, Program};
use load::calls::Outcome;

use crate::commands::doctor::measured::DriverChoice;

const PORT: u16 = 9100;
/// The address of the program that receives, beside those of the pair's ends.
const RECEIVER: &str = "10.77.0.100";
/// How long each way receives.
const SECONDS: &str = "0.4";
/// Bytes of each recv(2).
const RECV_BYTES: &str = "65535";
/// How long a program may take to start, or to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// How a program with an engine inside says that it has another driver than it was told to take.
const INSTEAD: &str = "serves instead of";

/// Why nothing can be said of receiving over this interface.
pub fn lacks(interface: &str) -> Option<String> {
    match netlink::ethtool::driver(interface) {
        Some(driver) if driver == "veth" => None,
        driver => Some(format!(
            "{interface} is no veth ({}): receiving at full rate takes a program on the peer that sends",
            driver.unwrap_or_else(|| "its driver has no name".to_owned())
        )),
    }
}

/// Gigabits a second that one stream of the peer's kernel brings to a program with an engine inside.
pub fn rate(way: DriverChoice) -> anyhow::Result<f64> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("doctor-{}-{number}", std::process::id());
    // A new one each time: an engine that was inside a program may stay on its interface for a minute.
    let lab = Lab::temporary(&name, &LabSpec::default()).context("making a veth pair")?;
    let shunt = lab::own_binary();
    let sender = lab.host("b")?;
    let listen = format!("{}:{PORT}", sender.spec().address.address);
    let mut command = sender.command(&shunt)?;
    command.args(["load", "stream", "--listen", &listen, "--peer", "recv"]);
    let mut sending = Program::start("the sender", command)?;
    sending.wait_until("the sender", PATIENCE, |one| {
        one.stdout().contains("listening")
    })?;
    let mut command = lab.host("a")?.command(&shunt)?;
    let address = format!("{RECEIVER}/24");
    command.args(["run", "--engine-mode=inline", "--policy", "engine-only"]);
    command.args(["--nic", INTERFACE, "--address", &address]);
    command.args(["--driver", way.driver().name()]);
    if let Some(mode) = way.mode() {
        command.args(["--xdp-mode", mode.name()]);
    }
    command.arg("--").arg(&shunt).args(["load", "calls"]);
    command.args(["--connect", &listen, "--call", "recv"]);
    command.args(["--size", RECV_BYTES, "--seconds", SECONDS]);
    let finished = Program::start("the receiver", command)?
        .finish(PATIENCE, || false)?
        .success()?;
    if let Some(line) = finished.stderr.lines().find(|line| line.contains(INSTEAD)) {
        bail!("{line}");
    }
    let outcome: Outcome = serde_json::from_str(&finished.stdout)
        .with_context(|| format!("the receiver printed {:?}", finished.stdout))?;
    Ok(outcome.bytes as f64 * 8.0 / outcome.seconds / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_an_interface_that_is_no_veth_it_is_said_by_name_why_not() {
        let reason = lacks("lo").unwrap();
        assert!(reason.contains("lo is no veth") && reason.contains("program on the peer"));
    }
}
