//! What a simulation is about: one TOML file per scenario, with a default for every key and the
//! unit at the end of every name. docs/simulator.md explains the keys to users.
//!
//! The defaults are the `nic-net` paper's machine: every extension is off.

#[macro_use]
pub(crate) mod check;

mod axis;
mod bus;
mod cost;
mod host;
mod network;
mod nic;
mod parse;
mod runs;
mod stack;
mod workload;

use serde::{Deserialize, Serialize};

pub use axis::{Axis, AxisError, PointsError, points};
pub use bus::{Bus, Transfer};
pub use cost::Cost;
pub use host::{Host, Placement, Wake};
pub use network::{Loss, Network, Repeat, Transmission};
pub use nic::{Dispatch, Distribution, Interrupts, Mode, Nic};
pub use parse::{FileError, parse, with_settings};
pub(crate) use parse::{line_of, place};
pub use runs::Runs;
pub use stack::{BottomHalf, Kind, Profile, Receive, Stack};
pub use workload::{Arrivals, Phase, Workload};

/// A scenario.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// What the reader of a report should know of it.
    pub title: String,
    /// The machine that runs the application.
    pub host: Host,
    /// Where the protocol stack runs, and how.
    pub stack: Stack,
    /// The NIC's own processor; used by `stack.kind = "nic"`.
    pub nic: Nic,
    /// When the host is told.
    pub interrupts: Interrupts,
    /// How bytes come over the bus.
    pub bus: Bus,
    /// Links between client and server.
    pub network: Network,
    /// What is lost, and who repeats it.
    pub loss: Loss,
    /// What clients ask.
    pub workload: Workload,
    /// What each step costs.
    pub cost: Cost,
    /// How often the scenario is run, and what is reported.
    pub runs: Runs,
    /// Axes of a sweep, for `shunt sim sweep` without `--axis`.
    pub sweep: Vec<SweepAxis>,
}

/// One axis of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepAxis {
    /// The key that changes, for example `workload.clients`.
    pub key: String,
    /// Its values: `1..9`, `0..1:0.25` or `50,100,200`.
    pub values: String,
}
