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

table! {
    /// The protocol stack.
    Stack in "stack." {
        /// Where it runs.
        kind: Kind = Kind::Kernel;
        /// Which cost is charged where.
        profile: Profile = Profile::A;
        /// When the kernel's bottom halves run.
        bottom_half: BottomHalf = BottomHalf::Sched;
        /// Bottom halves run before the scheduler chooses, as in Linux 2.2.
        bottom_half_first: bool = false;
        /// Period of `bottom_half = "tick"`.
        tick_ms: f64 = 10.0, above_zero;
        /// Packets that may wait for the bottom half; 0 is no limit.
        backlog_packets: usize = 0;
        /// Packets polled before the rest is left to a thread (`bottom_half = "napi"`).
        poll_budget: usize = 64, count(1, 1 << 20);
        /// Where a user-level stack receives.
        receive: Receive = Receive::Process;
        /// A user-level server never sleeps: no interrupts, and its processor is always busy.
        busy_poll: bool = false;
    }
}
