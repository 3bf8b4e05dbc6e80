//! Why an interface cannot be opened, and whether packet sockets may serve instead.

use std::io;

use super::Mode;
use crate::af_packet;

/// Why an interface cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The packet socket that goes with the queues could not be opened.
    #[error(transparent)]
    Packet(#[from] af_packet::OpenError),
    /// The XDP program was refused.
    #[error(transparent)]
    Program(#[from] bpf::Error),
    /// Rings are powers of two.
    #[error("rings of {receiving} and {sending} frames: each must be a power of two up to 65536")]
    Rings {
        /// To receive.
        receiving: u32,
        /// To send.
        sending: u32,
    },
    /// Another AF_XDP socket has the queue.
    #[error("queue {queue} of {interface:?} is another AF_XDP socket's")]
    Taken {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The interface or the kernel has no such mode.
    #[error("{interface:?} has no AF_XDP in {} mode ({source}); generic works everywhere", mode.name())]
    NoSuchMode {
        /// The interface.
        interface: String,
        /// The mode asked for.
        mode: Mode,
        /// The kernel's answer.
        source: io::Error,
    },
    /// More cores than the interface has queues.
    #[error("{interface:?} has fewer queues ({queues}) than the engine has cores ({cores})")]
    TooFewQueues {
        /// The interface.
        interface: String,
        /// Its queues.
        queues: u32,
        /// Cores asked for.
        cores: u16,
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

impl OpenError {
    /// Whether a privilege is what is missing.
    #[must_use]
    pub const fn is_privilege(&self) -> bool {
        match self {
            Self::Packet(error) => matches!(error, af_packet::OpenError::NoPrivilege),
            Self::Program(error) => error.is_privilege(),
            _ => false,
        }
    }

    /// Whether packet sockets alone may well serve the interface.
    #[must_use]
    pub const fn leaves_packet_sockets(&self) -> bool {
        !matches!(self, Self::Packet(_))
    }
}

pub(super) fn failed(
    interface: &str,
    call: &'static str,
) -> impl FnOnce(io::Error) -> OpenError + use<> {
    let interface = interface.to_owned();
    move |source| OpenError::System {
        call,
        interface,
        source,
    }
}
