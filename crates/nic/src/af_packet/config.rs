//! How an interface is opened. Nothing is opened here.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::sharing::Sharing;
use crate::sys;

/// Memory of a receive ring, at least and at most.
const RING_BYTES: RangeInclusive<u32> = 16 << 20..=64 << 20;
/// All rings of an engine have such a part of the machine's memory.
const RING_PART_OF_MEMORY: u64 = 256;

/// Memory of each of `queues` receive rings of an engine on this machine: of thousands of connections each may send a frame while the
/// engine has no processor, and the ring loses those that it does not hold.
#[must_use]
pub fn large_ring_bytes(queues: u16) -> u32 {
    let memory_bytes = sys::memory_bytes().unwrap_or_default();
    ring_bytes_of(memory_bytes / u64::from(queues.max(1)))
}

fn ring_bytes_of(memory_bytes: u64) -> u32 {
    let part = u32::try_from(memory_bytes / RING_PART_OF_MEMORY).unwrap_or(u32::MAX);
    // A power of two, as its frames are.
    1 << part.clamp(*RING_BYTES.start(), *RING_BYTES.end()).ilog2()
}

/// How to open an interface.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the interface in the calling thread's network namespace.
    pub interface: String,
    /// Receive only ARP and IP for these addresses, and IPv6 for groups and the link if one is of IPv6; `None`: every frame.
    pub addresses: Option<Vec<IpAddr>>,
    /// Those addresses are the engine's alone: what arrives for them is kept from the kernel (TCX), where that is permitted.
    pub alone: bool,
    /// Receive what is claimed of the kernel's addresses, whatever `addresses` says.
    pub sharing: Option<Arc<Sharing>>,
    /// Receive frames of this EtherType alone, whatever `addresses` and `sharing` say.
    pub ether_type: Option<u16>,
    /// Bytes per ring frame, a multiple of the page size or a power of two; longer frames take a system
    /// call each. `None`: what the interface's largest merged packet takes.
    pub frame_bytes: Option<u32>,
    /// Frames in the receive ring; `None`: `ring_bytes` of them, and more where frames are so long that these were few.
    pub frame_count: Option<u32>,
    /// Memory of the receive ring, whatever the size of its frames.
    pub ring_bytes: u32,
    /// Somebody waits until the socket is open: frames come from its queue at first, where that may be long, and another process makes
    /// the ring ([`super::make_ring`]); this is called when it is in use. Such a socket is not handed over.
    pub ring_later: Option<fn()>,
    /// Moves the socket to the number where it stays.
    pub relocate_fd: fn(OwnedFd) -> OwnedFd,
}

impl Config {
    /// The default ring on `interface`, receiving every frame.
    #[must_use]
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            addresses: None,
            alone: false,
            sharing: None,
            ether_type: None,
            frame_bytes: None,
            frame_count: None,
            ring_bytes: *RING_BYTES.start(),
            ring_later: None,
            relocate_fd: core::convert::identity,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_a_part_of_the_memory_within_bounds() {
        let gib = |count: u64| ring_bytes_of(count << 30) >> 20;
        let found = [0, 1, 4, 7, 8, 16, 24, 1 << 20].map(gib);
        assert_eq!(found, [16, 16, 16, 16, 32, 64, 64, 64]);
        assert!(RING_BYTES.contains(&large_ring_bytes(0)));
        assert!(large_ring_bytes(64) <= large_ring_bytes(1));
    }
}
