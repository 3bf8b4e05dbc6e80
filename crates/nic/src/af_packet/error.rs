//! Why an interface cannot be opened, and what to do then.

use std::io;

use super::{Geometry, filter};

/// Why an interface cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No such interface.
    #[error("no interface named {interface:?} here: see `ip link` in this network namespace")]
    UnknownInterface {
        /// The name asked for.
        interface: String,
    },
    /// The process may not open packet sockets.
    #[error("packet sockets need CAP_NET_RAW: run as root, or `setcap cap_net_raw+ep` the binary")]
    NoPrivilege,
    /// Frames on this link do not start with an Ethernet header.
    #[error(
        "interface {interface:?} does not carry Ethernet frames: choose an Ethernet, veth, macvlan or bridge interface"
    )]
    NotEthernet {
        /// The name asked for.
        interface: String,
    },
    /// Too many addresses.
    #[error(transparent)]
    Filter(#[from] filter::TooManyAddresses),
    /// The kernel refused the ring.
    #[error(
        "the kernel refused a receive ring of {} frames of {} bytes ({source}): use whole pages, or fewer frames if memory is short",
        .geometry.frame_count,
        .geometry.frame_bytes
    )]
    Ring {
        /// Asked for.
        geometry: Geometry,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another system call failed.
    #[error("{call} on interface {interface:?}: {source}")]
    System {
        /// What was being done.
        call: &'static str,
        /// The interface.
        interface: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

pub(super) fn failed(interface: &str, call: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    let interface = interface.to_owned();
    move |source| OpenError::System {
        call,
        interface,
        source,
    }
}
