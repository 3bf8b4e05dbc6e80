//! Where the engine meets the kernel's own stack: addresses that both have, and which of them receives on a port.

pub mod holders;
pub mod sharing;
