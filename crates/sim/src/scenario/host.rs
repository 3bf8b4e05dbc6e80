//! The machine that runs the application: its processors, its scheduler, and what competes with the server.

use serde::{Deserialize, Serialize};

use super::check::MOST_UNITS;

table! {
    /// The host.
    Host in "host." {
        /// Clock of its processors.
        clock_mhz: f64 = 500.0, above_zero;
        /// Processors; each has a server process of its own.
        cores: usize = 1, count(1, MOST_UNITS);
        /// Time slice of the round robin.
        quantum_ms: f64 = 200.0, above_zero;
        /// Endless computations on each processor, which compete with the server.
        background: usize = 1, count(0, MOST_UNITS);
        /// How much of the first background slice is over at the start; without it the runs divide the
        /// slice evenly among them.
        background_phase_ms: Option<f64> = None, not_negative_if_any;
        /// What happens to a process that is woken.
        wake: Wake = Wake::Tail;
        /// Which processor serves a connection.
        placement: Placement = Placement::Spread;
        /// Cost of interrupting another processor, where a packet's queue and its server differ.
        handover_us: f64 = 0.0, not_negative;
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
