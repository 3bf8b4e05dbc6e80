//! What is compared: the kernel's stack and Shunt's, whose engine runs where `shunt run` chooses or where it is told.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::micro::testbed::Stack;

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

impl Side {
    /// Whose TCP a program of this side uses.
    pub fn stack(self) -> Stack {
        match self {
            Self::Kernel => Stack::Kernel,
            Self::Shunt => Stack::Placed("auto"),
            Self::Inline => Stack::Placed("inline"),
            Self::Process => Stack::Placed("process"),
        }
    }
}
