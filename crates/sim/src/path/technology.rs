//! Network technologies beside each other: Table 1 of the `datacenter-latency` paper.

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

#[derive(Debug, Deserialize)]
struct File {
    technology: Vec<Technology>,
}

static TECHNOLOGIES: LazyLock<Vec<Technology>> = LazyLock::new(|| {
    let file: File = toml::from_str(include_str!("../../papers/technologies.toml"))
        .expect("invariant: the table parses, a test reads it");
    file.technology
});

/// The paper's technologies.
pub fn technologies() -> &'static [Technology] {
    &TECHNOLOGIES
}
