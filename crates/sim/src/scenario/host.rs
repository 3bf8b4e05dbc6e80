//! The machine that runs the application: its processors, its scheduler, and what competes with the server.

use serde::{Deserialize, Serialize};

/// The host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Host {
    /// Clock of its processors.
    pub clock_mhz: f64,
    /// Processors; each has a server process of its own.
    pub cores: usize,
    /// Time slice of the round robin.
    pub quantum_ms: f64,
    /// Endless computations on each processor, which compete with the server.
    pub background: usize,
    /// How much of the first background slice is over at the start; without it the runs divide the
    /// slice evenly among them.
    pub background_phase_ms: Option<f64>,
    /// What happens to a process that is woken.
    pub wake: Wake,
    /// Which processor serves a connection.
    pub placement: Placement,
    /// Cost of interrupting another processor, where a packet's queue and its server differ.
    pub handover_us: f64,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            clock_mhz: 500.0,
            cores: 1,
            quantum_ms: 200.0,
            background: 1,
            background_phase_ms: None,
            wake: Wake::Tail,
            placement: Placement::Spread,
            handover_us: 0.0,
        }
    }
}

/// What happens to a process that is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wake {
    /// It joins the end of the run queue.
    Tail,
    /// It runs as soon as the running process can be interrupted.
    Preempt,
}

/// Which processor serves a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Connections go round the processors.
    Spread,
    /// The one that its receive queue interrupts.
    Affine,
}
