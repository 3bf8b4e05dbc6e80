//! Bytes to headers and back: Ethernet, ARP, IPv4, IPv6, ICMP, TCP, UDP, the Internet checksum and the
//! virtio network header that TAP and `AF_PACKET` put before a frame.
//!
//! Every protocol is one file and follows one pattern: `parse` takes the bytes from the header on and
//! returns the header as a plain value with whatever follows it; `emit` writes the header to the start
//! of a buffer. What arrives is hostile: every malformed input is an [`Error`], never a panic. What is
//! emitted is ours: a buffer that is too short for it is a bug of the caller and panics.
//!
//! Nothing here allocates, knows the time or keeps state. Sequence numbers, ports and addresses are
//! only numbers here; what they mean is decided in `tcp` and `stack`.

#![forbid(unsafe_code)]

pub mod arp;
pub mod checksum;
pub mod ecn;
pub mod ethernet;
#[cfg(any(test, fuzzing, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod icmpv4;
pub mod icmpv6;
pub mod igmp;
pub mod ipv4;
pub mod ipv6;
pub mod mld;
pub mod outline;
pub mod tcp;
pub mod template;
#[cfg(test)]
mod test_support;
pub mod toeplitz;
pub mod udp;
pub mod virtio;

/// Why bytes are not the header that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input ends before the header does, or before the length that the header claims.
    #[error("input ends before the packet does")]
    Truncated,
    /// A field contradicts the protocol or another field.
    #[error("malformed field")]
    Malformed,
    /// The checksum does not match the bytes it covers.
    #[error("wrong checksum")]
    Checksum,
    /// Well-formed, but of a kind that this crate does not read, as ARP for another link layer.
    #[error("unsupported kind of packet")]
    Unsupported,
}

/// Splits the first `N` bytes off `bytes` as an array, so that reading a fixed header needs one length check.
fn split_header<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), Error> {
    bytes.split_first_chunk().ok_or(Error::Truncated)
}

/// The first `N` bytes of `out` as an array.
///
/// # Panics
/// When `out` is shorter: the callers of `emit` size their buffers from the `LEN` constants.
#[track_caller]
fn header_mut<const N: usize>(out: &mut [u8]) -> &mut [u8; N] {
    out.first_chunk_mut()
        .expect("invariant: the buffer given to emit holds the whole header")
}
