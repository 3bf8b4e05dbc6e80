//! A datagram that several calls put together (UDP_CORK, MSG_MORE; `calls::datagram::cork`).

use client::address::Family;

/// A datagram that is being put together.
pub struct Corked {
    /// Whose headers it will have.
    pub family: Family,
    /// Where the first call sends it, if it says so.
    pub name: Option<Vec<u8>>,
    /// The control messages of the first call; those of others say nothing.
    pub control: Vec<u8>,
    /// What was written so far.
    pub payload: Vec<u8>,
}
