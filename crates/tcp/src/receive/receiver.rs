//! The receive side's variables (RFC 9293 §3.3.1, figure 4), in absolute positions.

use crate::{
    receive::{
        autotune::Autotune,
        ranges::{Range, RangeSet, RangeSlot},
    },
    seq::SequenceSpace,
    time::Instant,
};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// Ranges whose arrival order is remembered for SACK blocks (RFC 2018 §4).
pub(crate) const RECENT: usize = 4;
/// In-order segments acknowledged at once while the peer's window opens.
pub(crate) const QUICK_ACKS: u8 = 16;

/// Receive sequence variables. Position 0 is the peer's SYN, 1 its first byte.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Receiver {
    /// RCV.NXT: everything below has arrived.
    pub nxt: u64,
    /// One past the last byte that the program has consumed.
    pub consumed: u64,
    /// First position beyond the window we have advertised; never moves back.
    pub advertised_edge: u64,
    /// Last.ACK.sent (RFC 7323 §4.3).
    pub last_ack_sent: u64,
    /// Position of the peer's FIN once it was seen; 0: not seen.
    pub fin: u64,
    /// RCV.UP: one past the peer's urgent byte; 0: none.
    pub urgent: u64,
    /// When `ts_recent` was taken.
    pub ts_recent_at: Instant,
    pub space: SequenceSpace,
    /// TS.Recent (RFC 7323 §4.3).
    pub ts_recent: u32,
    /// Bytes the receive window can hold.
    pub capacity: u32,
    /// In-order bytes since the last ACK we sent.
    pub unacknowledged: u32,
    /// Payload of the largest segment seen lately: an estimate of the peer's full segment.
    pub segment_payload: u16,
    /// Shift of the window field in our segments.
    pub window_shift: u8,
    /// Timestamps are in use (RFC 7323 §3).
    pub timestamps: bool,
    /// Selective acknowledgements are in use, both ways (RFC 2018).
    pub sack: bool,
    /// An ACK is due at once.
    pub ack_now: bool,
    /// Further immediate ACKs owed, one for each segment out of order (RFC 5681 §4.2).
    pub duplicate_acks_owed: u8,
    pub fin_reached: bool,
    /// In-order segments that are still acknowledged at once at the start of a connection.
    pub quick_acks: u8,
    /// Challenge ACKs sent in the current interval (RFC 5961 §7).
    pub challenge_acks: u8,
    pub window_scaling: bool,
    /// In-order segments that are still expected on a path that lost something lately.
    pub after_hole: u8,
    /// Segments in order that ended a write of the peer's, since the last ACK we sent; 2: more than one.
    pub pushed: u8,
    /// The program answers what comes within the time of a delayed ACK, which so travels with data.
    pub answers: bool,
    /// MSS that our SYN announced.
    pub advertised_mss: u16,
    /// An ACK was due before the last segment came, of so many bytes, and has not left; 0: none was.
    pub since_due: u16,
    /// The peer's SYN brought data that was taken.
    pub syn_data_came: bool,
    /// What the segment that gave `ts_recent` echoed.
    pub ts_echo: u32,
    /// The ranges that grew last, newest first (RFC 2018 §4); empty, or below `nxt`: none.
    pub recent: [RangeSlot; RECENT],
    /// What arrived once more, for the next ACK to report (RFC 2883); an end of 0: nothing.
    pub duplicate_start: u64,
    pub duplicate_end: u64,
    /// Start of the current challenge-ACK interval.
    pub challenge_since: Instant,
    pub tuning: Autotune,
    /// Data beyond a hole; the bytes are already in the window.
    pub out_of_order: RangeSet,
}

/// Below this a segment is no full one until larger ones are known (RFC 9293 §3.7.1; Linux `tcp_measure_rcv_mss` begins here).
const SMALL: usize = 536;

impl Receiver {
    /// A segment came in order whose ACK may wait. A full one is followed by others, but for one with PSH (Linux
    /// `tcp_measure_rcv_mss`).
    pub fn note_pushed(&mut self, len: usize, is_pushed: bool) {
        if len < self.segment_payload.into() || is_pushed && len < SMALL {
            self.pushed = (self.pushed + 1).min(2);
        } else if is_pushed {
            self.pushed = self.pushed.max(1);
        }
    }

    /// Stream offset up to which bytes are readable.
    pub fn readable_end(&self) -> u64 {
        self.nxt.saturating_sub(1 + u64::from(self.fin_reached))
    }

    /// Stream offset up to which the program has consumed.
    pub fn consumed_offset(&self) -> u64 {
        self.consumed - 1
    }

    /// Stream offset one past the peer's urgent byte.
    pub fn urgent_end(&self) -> Option<u64> {
        (self.urgent > 0).then(|| self.urgent - 1)
    }

    /// Whether the next ACK carries blocks.
    pub fn has_blocks(&self) -> bool {
        self.sack && (self.duplicate_end > 0 || !self.out_of_order.is_empty())
    }

    /// `[start, end)` arrived although we had it (RFC 2883 §4).
    pub fn note_duplicate(&mut self, start: u64, end: u64) {
        if start < end {
            (self.duplicate_start, self.duplicate_end) = (start, end);
        }
    }

    /// The duplicate to report.
    pub fn duplicate(&self) -> Option<Range> {
        (self.duplicate_end > 0).then_some(Range {
            start: self.duplicate_start,
            end: self.duplicate_end,
        })
    }

    /// Remembers that `range` was the last to grow.
    pub fn touch_recent(&mut self, range: Range) {
        let mut kept = [RangeSlot::default(); RECENT];
        kept[0] = RangeSlot::of(range);
        // What it has swallowed needs no mention.
        let older = self
            .sack_ranges()
            .filter(|other| other.start < range.start || other.end > range.end);
        for (slot, other) in kept[1..].iter_mut().zip(older) {
            *slot = RangeSlot::of(other);
        }
        self.recent = kept;
    }

    /// The ranges to report, newest first (RFC 2018 §4).
    pub fn sack_ranges(&self) -> impl Iterator<Item = Range> + '_ {
        let nxt = self.nxt;
        let all = self.recent.iter().map(move |slot| slot.after(nxt));
        // Windows are far smaller than what half of 32 bits can tell: such a range lies below `nxt`.
        all.filter(move |range| range.start < range.end && range.end - nxt < 1 << 31)
    }
}
