//! What a supervisor is told when it starts.

use client::engines::Placement;

/// What a supervisor has to know of its program.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The engines' control sockets, in the order of their priority.
    pub engines: Vec<String>,
    /// Which of them gets what several could carry.
    pub placement: Placement,
    /// What no engine can take fails instead of going to the kernel.
    pub engine_only: bool,
    /// Loopback is on the first engine that serves TCP, and on the first that serves UDP, before the kernel's.
    pub loopback: bool,
}
