//! How an interface is opened: mode, rings, addresses. Read first: `Documentation/networking/af_xdp.rst` of the
//! kernel, "XDP_COPY and XDP_ZEROCOPY bind flags". Nothing is opened here.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::sharing::Sharing;
use bpf::XdpMode;

/// How frames get from the interface to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Behind the interface's driver, by a copy; any interface.
    #[default]
    Generic,
    /// In the interface's driver, by a copy.
    Native,
    /// The device writes into our memory.
    ZeroCopy,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Generic, Self::Native, Self::ZeroCopy];

    /// As on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::Native => "native",
            Self::ZeroCopy => "zero-copy",
        }
    }

    pub(super) const fn attach(self) -> XdpMode {
        match self {
            Self::Generic => XdpMode::Generic,
            Self::Native | Self::ZeroCopy => XdpMode::Native,
        }
    }

    pub(super) fn bind_flags(self) -> u16 {
        let copy = match self {
            Self::Generic | Self::Native => libc::XDP_COPY,
            Self::ZeroCopy => libc::XDP_ZEROCOPY,
        };
        copy | libc::XDP_USE_NEED_WAKEUP
    }
}

/// How to open an interface.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the interface in the calling thread's network namespace.
    pub interface: String,
    /// Receive only what `af_packet` would with these; `None`: every frame.
    pub addresses: Option<Vec<IpAddr>>,
    /// Receive what is claimed of the kernel's addresses, whatever `addresses` says.
    pub sharing: Option<Arc<Sharing>>,
    /// Receive frames of this EtherType alone, whatever `addresses` and `sharing` say; everything else stays the kernel's.
    pub ether_type: Option<u16>,
    /// Received frames say when the XDP program saw them, which costs each a read of the clock.
    pub stamps: bool,
    /// How frames get from the interface to us.
    pub mode: Mode,
    /// Pieces of 4 KiB to receive into, for each queue; a power of two.
    pub receiving: u32,
    /// The same to send from.
    pub sending: u32,
    /// Moves a descriptor to the number where it stays.
    pub relocate_fd: fn(OwnedFd) -> OwnedFd,
}

impl Config {
    /// The default rings on `interface`, in generic mode, receiving every frame.
    #[must_use]
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            addresses: None,
            sharing: None,
            ether_type: None,
            stamps: false,
            mode: Mode::default(),
            // 64 KiB in flight take 17 pieces: a hundred large segments, or 2048 frames.
            receiving: 2048,
            sending: 1024,
            relocate_fd: core::convert::identity,
        }
    }
}
