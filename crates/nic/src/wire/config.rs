//! How a wire is made. Nothing is made here.

use ::wire::ethernet;

/// Bytes of frames that each direction holds.
pub const RING_BYTES: usize = 4 * 1024 * 1024;

/// How to make a wire.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Largest IP packet, the same at both ends.
    pub mtu: u32,
    /// Bytes per direction, a multiple of 64, at least 192 KiB.
    pub ring_bytes: usize,
    /// Addresses of the creating and of the other end; `None`: random, locally administered ones.
    pub hardware_addresses: Option<[ethernet::Address; 2]>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mtu: 1500,
            ring_bytes: RING_BYTES,
            hardware_addresses: None,
        }
    }
}
