//! How an interface is opened. Nothing is opened here.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::sharing::Sharing;

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
    /// Frames in the receive ring; `None`: 16 MiB of them, and more where frames are so long that these were few.
    pub frame_count: Option<u32>,
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
            ring_later: None,
            relocate_fd: core::convert::identity,
        }
    }
}
