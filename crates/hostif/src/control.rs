//! The control channel: a Unix SOCK_SEQPACKET socket between engine and program. See unix(7).
//!
//! One message per packet, little-endian, at most 4096 bytes; descriptors travel as SCM_RIGHTS beside
//! it. The program asks, the engine answers each request once and in order. `Hello` and `Refused` keep
//! their form in all versions, so that two sides that do not understand each other can say so.

mod capture;
pub mod channel;
mod codec;
mod message;

pub use capture::{CaptureFilter, CaptureProtocol, CaptureRecord, RECORD_BYTES, SNAP_BYTES_MAX};
pub use channel::{
    Received, SocketAccess, connect, listen, listen_for, receive, receive_any, send,
};
pub use codec::Invalid;
pub use message::{
    Addresses, Adopted, EngineAddress, MAX_OPEN, MAX_PREPARE, MESSAGE_BYTES, Opened, QueryKind,
    Reply, Request, Sharing, SocketKinds, Welcome,
};

use crate::{MAX_VERSION, MIN_VERSION};

/// The number in `Refused` that says: the engine that took the request is gone, and this one, which goes on with the channel,
/// does not know what became of it. The program that waits asks again (ERESTART, which no call fails with).
pub const ASK_AGAIN: u16 = 85;

/// No version is spoken by both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the program speaks host interface versions {min} to {max}, the engine {MIN_VERSION} to {MAX_VERSION}: \
     restart whichever is older"
)]
pub struct VersionMismatch {
    /// Oldest of the program.
    pub min: u16,
    /// Newest of the program.
    pub max: u16,
}

/// Engine: chooses the newest version that both sides speak.
pub fn negotiate(min: u16, max: u16) -> Result<u16, VersionMismatch> {
    let version = max.min(MAX_VERSION);
    if min <= max && version >= min.max(MIN_VERSION) {
        Ok(version)
    } else {
        Err(VersionMismatch { min, max })
    }
}

#[cfg(test)]
mod tests;
