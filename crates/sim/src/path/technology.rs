//! Network technologies beside each other: Table 1 of the `datacenter-latency` paper, and the results that it compares.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// A network technology.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Technology {
    /// Its name.
    pub name: String,
    /// Bandwidth.
    pub bandwidth_gbps: f64,
    /// Least and most latency; a single value is a lower bound.
    pub latency_ns: Vec<f64>,
    /// Nodes that it can join, about.
    pub nodes_about: u64,
    /// What the paper's other pages say.
    pub note: String,
}

/// What somebody has measured one way, for 64 bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownResult {
    /// By what it was reached.
    pub name: String,
    /// Latency.
    pub latency_ns: f64,
    /// Whose it is.
    pub note: String,
}

#[derive(Debug, Deserialize)]
struct File {
    technology: Vec<Technology>,
    result: Vec<KnownResult>,
}

static FILE: LazyLock<File> = LazyLock::new(|| {
    toml::from_str(include_str!("../../papers/technologies.toml"))
        .expect("invariant: the table parses, a test reads it")
});

/// The paper's technologies.
pub fn technologies() -> &'static [Technology] {
    &FILE.technology
}

/// The paper's result, and those of others that it sets beside it.
pub fn results() -> &'static [KnownResult] {
    &FILE.result
}
