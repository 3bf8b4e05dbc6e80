//! What one ACK told.

/// Positions `[start, end)` that the peer names.
pub(crate) type Block = (u64, u64);

/// What one ACK told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Feedback {
    /// By how much SND.UNA moves.
    pub acked: u64,
    /// Newly held beyond SND.UNA.
    pub sacked: u64,
    /// It carries blocks.
    pub has_blocks: bool,
    /// It is a duplicate ACK (RFC 5681 §2).
    pub is_duplicate: bool,
    /// What the peer received twice.
    pub duplicate: Option<Block>,
    /// Something arrived that was sent only once, and before recovery began.
    pub original_arrived: bool,
    /// Something was acknowledged that was sent more than once.
    pub resent_acked: bool,
    /// The peer's clock reading of ours (RFC 7323 §3.2).
    pub echo: Option<u32>,
}
