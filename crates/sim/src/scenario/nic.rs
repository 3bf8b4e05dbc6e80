//! The NIC's own processors and memory, its receive queues, and when the host is told.

use serde::{Deserialize, Serialize};

use super::check::MOST_UNITS;

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

table! {
    /// The NIC.
    Nic in "nic." {
        /// Clock of its processors.
        clock_mhz: f64 = 1000.0, above_zero;
        /// Processors.
        cores: usize = 1, count(1, MOST_UNITS);
        /// How work is given to them.
        dispatch: Dispatch = Dispatch::Shared;
        /// Whether the length of their work is fixed or random.
        service: Distribution = Distribution::Fixed;
        /// How segments are handed to the host.
        mode: Mode = Mode::Push;
        /// Received packets go before responses.
        receive_first: bool = false;
        /// Memory for packets and segments; 0 is no limit, and packets beyond it are dropped.
        memory_kib: f64 = 0.0, not_negative;
        /// Share of the memory from which `mode = "urgent"` pushes.
        memory_high: f64 = 0.75, share;
        /// Share of the memory down to which it does.
        memory_low: f64 = 0.5, share;
        /// Checking a command before accepting it, at the reference clock.
        check_us: f64 = 0.0, not_negative;
    }
}

table! {
    /// Receive queues and when they interrupt.
    Interrupts in "interrupts." {
        /// Interrupt when this many frames wait; 1 is at once, 0 leaves it to the timer.
        frames: usize = 1;
        /// Interrupt this long after the first frame; 0 is no timer.
        after_us: f64 = 0.0, not_negative;
        /// Frames a queue holds; those beyond are dropped. 0 is no limit.
        ring_frames: usize = 0;
        /// Receive queues; a connection's is chosen by a Toeplitz hash of its addresses and ports.
        queues: usize = 1, count(1, MOST_UNITS);
        /// Share of the driver's cost that an interrupt costs once, however many frames it announces;
        /// the rest is paid per frame.
        fixed_share: f64 = 1.0, share;
    }
}
