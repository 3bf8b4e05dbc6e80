//! The ways in which bytes get from a file to a connection.

use serde::Serialize;

use crate::pinned::PinnedCalls;

/// How bytes get from a file to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// read(2) into memory and write(2) out of it: two copies.
    ReadWrite,
    /// sendfile(2).
    Sendfile,
    /// splice(2) through a pipe.
    Splice,
    /// read(2) into memory, and send(2) out of it with MSG_ZEROCOPY.
    ZeroCopy,
    /// read(2) into registered memory, and SEND_ZC of io_uring out of it.
    SendZc,
}

impl Method {
    /// Those that are tried where the user names none, in this order. Not the ones that lend memory to the kernel: towards
    /// this host it copies all the same, and a socket that is not the kernel's may take the flag and never answer.
    pub const TRIED: [Self; 3] = [Self::Sendfile, Self::Splice, Self::ReadWrite];

    /// As the flag has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadWrite => "read-write",
            Self::Sendfile => "sendfile",
            Self::Splice => "splice",
            Self::ZeroCopy => "zerocopy",
            Self::SendZc => "send-zc",
        }
    }

    /// How it holds memory, if it lends any to the kernel.
    pub(super) fn pinned(self) -> Option<PinnedCalls> {
        match self {
            Self::ReadWrite | Self::Sendfile | Self::Splice => None,
            Self::ZeroCopy => Some(PinnedCalls::Message),
            Self::SendZc => Some(PinnedCalls::Ring),
        }
    }
}
