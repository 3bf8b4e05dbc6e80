//! Why a wire cannot be made or taken, and what a broken one is.

use std::io;

use super::ring::Corrupt;

/// Why a wire cannot be made or taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A size that does not work.
    #[error(
        "a ring of {ring_bytes} bytes does not work: take a multiple of 64 from 192 KiB to 1 GiB"
    )]
    RingSize {
        /// Bytes asked for.
        ring_bytes: usize,
    },
    /// The memory is not a wire's.
    #[error(
        "the descriptor is not the memory of a wire of this version: pass the region of WireEnd::create"
    )]
    NotAWire,
    /// A system call failed.
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

pub(super) fn broken(error: Corrupt) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
