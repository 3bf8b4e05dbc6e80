//! Where the protocol stack runs, and when its parts do.

use serde::{Deserialize, Serialize};

/// Where the protocol stack runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// In the kernel: interrupt, bottom half, system calls.
    Kernel,
    /// In a library of the server process.
    User,
    /// On the NIC's processor, or on an engine's core.
    Nic,
}

/// Which cost is charged where; see docs/simulator.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// One packet per request; the host keeps the interrupt and the socket copies.
    A,
    /// As A with two packets per request.
    A2,
    /// Two packets per request, driver cost on transmit, socket layer on the NIC.
    B,
}

/// When the kernel's bottom halves run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BottomHalf {
    /// At scheduling points.
    Sched,
    /// At scheduling points and when the server leaves a system call.
    Sysret,
    /// Every `stack.tick_ms`.
    Tick,
    /// At once, before any process.
    Immediate,
    /// Polling with a budget while interrupts are off, then by a thread that competes with processes.
    Napi,
}

/// Where a user-level stack receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// In the server process, before it serves anything.
    Process,
    /// In the interrupt.
    Interrupt,
}

/// The protocol stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stack {
    /// Where it runs.
    pub kind: Kind,
    /// Which cost is charged where.
    pub profile: Profile,
    /// When the kernel's bottom halves run.
    pub bottom_half: BottomHalf,
    /// Bottom halves run before the scheduler chooses, as in Linux 2.2.
    pub bottom_half_first: bool,
    /// Period of `bottom_half = "tick"`.
    pub tick_ms: f64,
    /// Packets that may wait for the bottom half; 0 is no limit.
    pub backlog_packets: usize,
    /// Packets polled before the rest is left to a thread (`bottom_half = "napi"`).
    pub poll_budget: usize,
    /// Where a user-level stack receives.
    pub receive: Receive,
    /// A user-level server never sleeps: no interrupts, and its processor is always busy.
    pub busy_poll: bool,
}

impl Default for Stack {
    fn default() -> Self {
        Self {
            kind: Kind::Kernel,
            profile: Profile::A,
            bottom_half: BottomHalf::Sched,
            bottom_half_first: false,
            tick_ms: 10.0,
            backlog_packets: 0,
            poll_budget: 64,
            receive: Receive::Process,
            busy_poll: false,
        }
    }
}
