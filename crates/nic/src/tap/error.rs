//! Why a TAP interface cannot be had, and what to do then.

use std::io;

use super::DEVICE;

/// Why a TAP interface cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The device file is missing.
    #[error("{DEVICE} is absent: `modprobe tun`, or give the container that device")]
    NoDevice,
    /// The process may not create interfaces.
    #[error(
        "creating a TAP interface needs CAP_NET_ADMIN: run as root, or have an administrator run `ip tuntap add mode tap vnet_hdr user NAME` and name that interface"
    )]
    NoPrivilege,
    /// Another process holds it.
    #[error("interface {name:?} is held by another process: end that one, or choose another name")]
    Busy {
        /// The name asked for.
        name: String,
    },
    /// The name exists as another kind of interface, or is no name.
    #[error(
        "{name:?} cannot be a TAP interface ({source}): it exists as another kind, or is not a valid name of up to 15 bytes"
    )]
    BadName {
        /// The name asked for.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A descriptor to adopt was opened differently.
    #[error(
        "the descriptor of {name:?} has flags {flags:#x}: open it with IFF_TAP, IFF_NO_PI and IFF_VNET_HDR"
    )]
    WrongMode {
        /// Its interface.
        name: String,
        /// Its flags.
        flags: i32,
    },
    /// A descriptor to adopt is not a TAP one.
    #[error(
        "the descriptor is not an attached TAP descriptor ({source}): open {DEVICE} and attach it with TUNSETIFF first"
    )]
    NotTap {
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another system call failed.
    #[error("{call}: {source}")]
    System {
        /// What was being done.
        call: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

pub(super) fn failed<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> OpenError {
    move |source| OpenError::System {
        call,
        source: source.into(),
    }
}
