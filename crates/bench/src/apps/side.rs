//! What is compared: the kernel's stack and Shunt's, whose engine runs where `shunt run` chooses or where it is told.

use std::{ffi::OsString, fmt};

use anyhow::Context as _;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Whose TCP the program under test uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The kernel's.
    Kernel,
    /// Shunt's, with the engine where `shunt run` chooses.
    Shunt,
    /// Shunt's, with the engine inside the program.
    Inline,
    /// Shunt's, with an engine process.
    Process,
}

/// Where an engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Inside the program.
    Inline,
    /// In a process of its own.
    Process,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inline => "inline",
            Self::Process => "process",
        })
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Shunt => "Shunt",
            Self::Inline => "Shunt, inline",
            Self::Process => "Shunt, process",
        })
    }
}

/// Puts `shunt run` before a command line, where it is Shunt's. The policy makes sure that no TCP is measured that went to
/// the kernel after all.
pub fn on_side(side: Side, line: Vec<OsString>) -> anyhow::Result<Vec<OsString>> {
    let mode = match side {
        Side::Kernel => return Ok(line),
        Side::Shunt => "auto",
        Side::Inline => "inline",
        Side::Process => "process",
    };
    let own = std::env::current_exe().context("finding this binary")?;
    let mut whole = vec![own.into_os_string()];
    let flags = [
        "run",
        "--policy",
        "engine-only",
        "--engine-mode",
        mode,
        "--",
    ];
    whole.extend(flags.map(OsString::from));
    whole.extend(line);
    Ok(whole)
}
