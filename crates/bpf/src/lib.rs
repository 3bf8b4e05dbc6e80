//! BPF without a compiler. eBPF: instructions and labels, maps, programs with the verifier's words, and links that detach
//! when their descriptor closes, over raw bpf(2). Classic BPF, of socket filters and seccomp(2), is [`classic`].
//!
//! Read first: bpf(2), RFC 9669 (the instructions), `Documentation/bpf/` of the kernel. Programs are written
//! with [`Assembler`] beside what they are for (`nic/src/af_xdp/program.rs`); this crate knows none of them. Why not
//! aya or libbpf: docs/decisions/0024-af-xdp-and-bpf.md.

mod assembler;
pub mod classic;
mod instruction;
mod link;
mod map;
pub mod packet;
mod program;
mod sys;

#[cfg(test)]
mod tests;

use std::io;

pub use assembler::{AssembleError, Assembler, Label};
pub use instruction::{Condition, Helper, Instruction, Operand, Operation, Register, Width};
pub use link::{Link, TcxHook, XdpMode};
pub use map::{Map, MapKind};
pub use program::{Program, ProgramKind, Ran};

/// Why the kernel did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process may not.
    #[error(
        "{what} needs CAP_BPF and CAP_NET_ADMIN: run as root, or `setcap cap_bpf,cap_net_admin+ep` the binary"
    )]
    NotPermitted {
        /// What was asked.
        what: &'static str,
    },
    /// The kernel does not know it, or the interface has no such mode.
    #[error("{what}: not offered by this kernel or interface ({source})")]
    Unsupported {
        /// What was asked.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Somebody else's program is there.
    #[error(
        "{what}: another program is attached to the interface ({source}); `ip link show` names it, `ip link set dev IFACE xdp off` takes it away"
    )]
    Occupied {
        /// What was asked.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The verifier does not accept a program: a fault of its author, or too old a kernel.
    #[error("the kernel refused the program {name} ({source}): {log}")]
    Refused {
        /// The program.
        name: &'static str,
        /// The verifier's words, their end if there are many.
        log: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Anything else.
    #[error("{what}: {source}")]
    System {
        /// What was asked.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Error {
    /// Whether a privilege is what is missing.
    #[must_use]
    pub const fn is_privilege(&self) -> bool {
        matches!(self, Self::NotPermitted { .. })
    }

    fn of(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { what },
            Some(libc::ENOSYS | libc::EOPNOTSUPP) => Self::Unsupported { what, source },
            Some(libc::EBUSY | libc::EEXIST) => Self::Occupied { what, source },
            _ => Self::System { what, source },
        }
    }
}
