//! Where the engine meets the kernel's own stack: addresses that both have, and which of them hears on a port.

pub mod holders;
pub mod sharing;
