//! One way of running programs, and a set of such ways with the rows that compare them.

use super::{bed::Bed, row::Row, samples::Values};

/// Whether idle processors may sleep deeply while a setup is measured: the same for both sides of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// As the machine is set.
    Untouched,
    /// `/dev/cpu_dma_latency` is held at 0, where that is allowed.
    Held,
}

/// Programs on stacks, and what is read from them.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Names it in rows.
    pub key: &'static str,
    /// What happens, in a few words.
    pub title: &'static str,
    /// See there.
    pub idle: Idle,
    /// Programs that must be installed.
    pub tools: &'static [&'static str],
    /// Measures once.
    pub measure: fn(&Bed) -> anyhow::Result<Values>,
}

/// What one of the commands measures.
#[derive(Debug, Clone)]
pub struct Plan {
    /// In the order of measurement.
    pub setups: Vec<Setup>,
    /// In the order of the table.
    pub rows: Vec<Row>,
    /// What a reader must know beyond the conditions that all commands share.
    pub notes: Vec<&'static str>,
}

/// Why a setup cannot be measured on this machine or with this binary: no failure.
#[derive(Debug)]
pub struct Unavailable(pub String);

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}
