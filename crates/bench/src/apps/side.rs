//! The two stacks that are compared, and how a program is started on each.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

/// Whose TCP the program under test uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The kernel's.
    Kernel,
    /// Shunt's.
    Shunt,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Shunt => "Shunt",
        })
    }
}
