//! What a stack is given at start.

/// Fixed parameters of a stack. Every bound here is a memory or a work bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Random; the same for as long as connections live, over restarts too (RFC 6528 §3).
    pub secret: [u8; 16],
    /// First and last ephemeral port (Linux `ip_local_port_range`).
    pub ephemeral_ports: (u16, u16),
    /// Entries of the neighbour cache at most (Linux `gc_thresh3`).
    pub neighbours_max: usize,
    /// Connections that no program holds any more, at most; the next one is reset
    /// (Linux `tcp_max_orphans`).
    pub orphans_max: u32,
    /// ICMP errors sent per second in the long run (Linux `icmp_msgs_per_sec`).
    pub icmp_errors_per_second: u32,
    /// ICMP errors sent at once (Linux `icmp_msgs_burst`).
    pub icmp_errors_burst: u32,
    /// Tell the link of own addresses (RFC 5227 §3). Of several stacks with the same addresses one does.
    pub announces_addresses: bool,
}

impl Config {
    /// The defaults of Linux, with this secret.
    pub const fn new(secret: [u8; 16]) -> Self {
        Self {
            secret,
            ephemeral_ports: (32_768, 60_999),
            neighbours_max: 1_024,
            orphans_max: 16_384,
            icmp_errors_per_second: 1_000,
            icmp_errors_burst: 50,
            announces_addresses: true,
        }
    }
}
