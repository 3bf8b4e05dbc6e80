//! The NIC's own processors and memory, its receive queues, and when the host is told.

use serde::{Deserialize, Serialize};

/// How the NIC hands segments to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Every completed segment interrupts.
    Push,
    /// Only a waiting read is interrupted; other segments stay in the NIC's memory.
    Sync,
    /// As `sync`, but above `nic.memory_high` stored segments are pushed until `nic.memory_low`.
    Urgent,
}

/// How work is given to the NIC's processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dispatch {
    /// One queue for all.
    Shared,
    /// A queue each; a connection always goes to the same one.
    Flow,
    /// Each does one layer: link, network, transport in turn.
    Pipeline,
}

/// A length that is fixed or random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Always the same.
    Fixed,
    /// Exponential with that mean.
    Exponential,
    /// As samples are distributed; only where samples can be given.
    Empirical,
}

/// The NIC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nic {
    /// Clock of its processors.
    pub clock_mhz: f64,
    /// Processors.
    pub cores: usize,
    /// How work is given to them.
    pub dispatch: Dispatch,
    /// Whether the length of their work is fixed or random.
    pub service: Distribution,
    /// How segments are handed to the host.
    pub mode: Mode,
    /// Received packets go before responses.
    pub receive_first: bool,
    /// Memory for packets and segments; 0 is no limit, and packets beyond it are dropped.
    pub memory_kib: f64,
    /// Share of the memory from which `mode = "urgent"` pushes.
    pub memory_high: f64,
    /// Share of the memory down to which it does.
    pub memory_low: f64,
    /// Checking a command before accepting it, at the reference clock.
    pub check_us: f64,
}

impl Default for Nic {
    fn default() -> Self {
        Self {
            clock_mhz: 1000.0,
            cores: 1,
            dispatch: Dispatch::Shared,
            service: Distribution::Fixed,
            mode: Mode::Push,
            receive_first: false,
            memory_kib: 0.0,
            memory_high: 0.75,
            memory_low: 0.5,
            check_us: 0.0,
        }
    }
}

/// Receive queues and when they interrupt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Interrupts {
    /// Interrupt when this many frames wait; 1 is at once, 0 leaves it to the timer.
    pub frames: usize,
    /// Interrupt this long after the first frame; 0 is no timer.
    pub after_us: f64,
    /// Frames a queue holds; those beyond are dropped. 0 is no limit.
    pub ring_frames: usize,
    /// Receive queues; a connection's is chosen by a Toeplitz hash of its addresses and ports.
    pub queues: usize,
    /// Share of the driver's cost that an interrupt costs once, however many frames it announces;
    /// the rest is paid per frame.
    pub fixed_share: f64,
}

impl Default for Interrupts {
    fn default() -> Self {
        Self {
            frames: 1,
            after_us: 0.0,
            ring_frames: 0,
            queues: 1,
            fixed_share: 1.0,
        }
    }
}
