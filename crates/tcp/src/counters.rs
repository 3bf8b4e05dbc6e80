//! What a connection has counted, for `TCP_INFO` (RFC 4898 §3): segments as the wire sees them.

use crate::time::Instant;
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// Counts of one connection since it was made; the small ones wrap around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Counters {
    /// Payload bytes sent, again and again.
    pub bytes_out: u64,
    /// Segments sent; what the device cuts counts once for each segment.
    pub segments_out: u32,
    /// Segments that arrived; merged ones count once for each segment of the largest size seen.
    pub segments_in: u32,
    /// Of those sent, with payload.
    pub data_segments_out: u32,
    /// Of those that arrived, with payload.
    pub data_segments_in: u32,
    /// Segments that arrived beyond a hole.
    pub out_of_order_in: u32,
    /// Times that the peer reported data as received twice (RFC 2883).
    pub duplicates_reported: u32,
    /// Retransmission timeouts.
    pub timeouts: u16,
    /// Of those, the first ones of a row.
    pub timeout_rows: u16,
    /// How long rows of timeouts have lasted, milliseconds.
    pub timeouts_ms: u32,
    /// When the row that lasts began.
    timeouts_since: Instant,
    /// When a segment with payload arrived last.
    pub last_data_in: Instant,
}

impl Counters {
    /// `len` bytes have left, of which the device cuts segments of that size.
    #[inline]
    pub(crate) fn count_out(&mut self, len: u32, segment_size: Option<u16>) {
        let segments = segment_size.map_or(1, |size| len.div_ceil(u32::from(size.max(1))));
        self.segments_out = self.segments_out.wrapping_add(segments);
        if len > 0 {
            self.data_segments_out = self.data_segments_out.wrapping_add(segments);
            self.bytes_out += u64::from(len);
        }
    }

    /// A retransmission timeout, the `first` of a row.
    pub(crate) fn count_timeout(&mut self, now: Instant, first: bool) {
        self.timeouts = self.timeouts.saturating_add(1);
        if first {
            self.timeout_rows = self.timeout_rows.saturating_add(1);
            self.timeouts_since = now;
        }
    }

    /// What was sent after a row of timeouts has arrived.
    #[cold]
    pub(crate) fn end_timeouts(&mut self, now: Instant) {
        let lasted = now.since(self.timeouts_since).as_us() / 1_000;
        let lasted = u32::try_from(lasted).unwrap_or(u32::MAX);
        self.timeouts_ms = self.timeouts_ms.saturating_add(lasted);
    }

    pub(crate) fn count_in(&mut self, now: Instant, payload_len: usize, full_segment: u16) {
        let len = u32::try_from(payload_len).unwrap_or(u32::MAX);
        let full = u32::from(full_segment.max(1));
        let segments = if len <= full { 1 } else { len.div_ceil(full) };
        self.segments_in = self.segments_in.wrapping_add(segments);
        if len > 0 {
            self.data_segments_in = self.data_segments_in.wrapping_add(segments);
            self.last_data_in = now;
        }
    }
}
