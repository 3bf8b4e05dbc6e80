//! `shunt lab`: two hosts on this machine.
//!
//! The work is done by crate `lab`; here are its command line and its words.

mod cable;
mod down;
mod exec;
mod impairments;
mod list;
mod up;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;

/// Build, enter and remove two hosts on this machine, with or without root.
///
/// Each host is a network namespace; a cable joins them. The kernel of host a owns 10.77.0.1, that
/// of host b 10.77.0.2; 10.77.0.11 and 10.77.0.12 are left for an engine on each.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt lab up                                  two hosts, a and b
  shunt lab exec b -- ping -c 3 10.77.0.1       run a program on one of them
  shunt lab exec a -- shunt run -- nginx        programs of host a on Shunt
  shunt lab list --json
  shunt lab up --cable tap --impair loss=1%,delay=20ms      a cable that loses and delays
  shunt lab down                                remove them with everything that runs there")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Up(up::Arguments),
    Exec(exec::Arguments),
    Down(down::Arguments),
    List(list::Arguments),
    Cable(cable::Arguments),
    #[command(hide = true)]
    Carry(cable::Carry),
}

/// Which lab is meant; shared by all actions.
#[derive(Debug, Args)]
struct Name {
    /// Name of the lab.
    #[arg(long, default_value = "lab")]
    name: String,
}

pub fn execute(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.action {
        Action::Up(arguments) => up::execute(&arguments),
        Action::Exec(arguments) => exec::execute(arguments),
        Action::Down(arguments) => down::execute(&arguments),
        Action::List(arguments) => list::execute(&arguments),
        Action::Cable(arguments) => cable::execute(&arguments),
        Action::Carry(arguments) => cable::carry(&arguments),
    }
}

/// What `up` and `list` print about a lab.
#[derive(Debug, Serialize)]
struct Description {
    name: String,
    alive: bool,
    rootless: bool,
    cable: String,
    mtu: u32,
    segment_bytes: u32,
    congestion_control: String,
    hosts: Vec<HostDescription>,
}

#[derive(Debug, Serialize)]
struct HostDescription {
    name: String,
    interface: &'static str,
    address: String,
    engine_address: String,
    holder_pid: u32,
}

impl Description {
    fn of(lab: &lab::Lab) -> Self {
        let host = |host: &lab::Host| HostDescription {
            name: host.spec().name.clone(),
            interface: lab::INTERFACE,
            address: host.spec().address.to_string(),
            engine_address: host.spec().engine_address.to_string(),
            holder_pid: host.holder_pid(),
        };
        Self {
            name: lab.name().to_owned(),
            alive: lab.alive(),
            rootless: lab.rootless(),
            cable: lab.cable().to_string(),
            mtu: lab.mtu(),
            segment_bytes: lab.segment_bytes(),
            congestion_control: lab.congestion().to_owned(),
            hosts: lab.hosts().iter().map(host).collect(),
        }
    }

    fn text(&self) -> String {
        let state = if self.alive {
            "up".to_owned()
        } else {
            format!("dead, remove it with `shunt lab down --name {}`", self.name)
        };
        let privilege = if self.rootless {
            "user namespace"
        } else {
            "root"
        };
        let mut text = format!(
            "lab {}: {state} ({privilege}, cable {}, MTU {}, segments of up to {} KiB, congestion control {} on both kernels)\n",
            self.name,
            self.cable,
            self.mtu,
            self.segment_bytes / 1024,
            self.congestion_control
        );
        for host in &self.hosts {
            text += &format!(
                "  host {}: {} {}, free for an engine {}\n",
                host.name, host.interface, host.address, host.engine_address
            );
        }
        text
    }
}
