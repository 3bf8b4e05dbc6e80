//! A segment that is about to leave, and what limits it.

use wire::{
    ecn::Ecn,
    tcp::{Flags, Header},
};

/// What the path and the device allow for one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitLimits {
    /// Payload that fits one packet of the path when there are no TCP options (path MTU − 40 for IPv4), bytes.
    pub mss: u16,
    /// Payload at most in one segment handed to the device: up to 64 KiB where it cuts (TSO), else `mss`.
    pub max_payload: u32,
}

/// A segment to send. Ports and checksum are the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Header with ports 0.
    pub header: Header,
    /// Stream offset of the payload in the send window.
    pub offset: u64,
    /// Payload length, bytes.
    pub len: u32,
    /// The device must cut the payload into pieces of this size, bytes.
    pub segment_size: Option<u16>,
    /// The codepoint for the IP header (RFC 3168 §5).
    pub ecn: Ecn,
}

impl Transmit {
    /// Its first `len` bytes, and the rest, if there is one. PSH is for the last.
    #[must_use]
    pub fn cut(&self, len: u32) -> (Self, Option<Self>) {
        if self.len <= len {
            return (*self, None);
        }
        let (mut first, mut rest) = (*self, *self);
        first.len = len;
        first.header.flags.remove(Flags::PSH);
        rest.header.seq = rest.header.seq.wrapping_add(len);
        rest.offset += u64::from(len);
        rest.len -= len;
        (first, Some(rest))
    }
}

/// A stretch of our sequence space about to be sent, `[start, end)`; `end` may include the FIN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub start: u64,
    pub end: u64,
}
