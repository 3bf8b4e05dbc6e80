//! RACK: loss found by time (RFC 8985 §6).
//!
//! A segment counts as lost when one that was sent later has arrived and a round trip plus a window for
//! reordering has passed. Times come from the table of `sent`; what follows from a loss is `recovery`'s.

mod detect;

use crate::{
    send::sent::{Marks, Piece},
    time::{Duration, Instant},
};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// DupThresh (RFC 6675 §2).
pub(crate) const DUP_THRESH: u64 = 3;
/// Recoveries without a D-SACK after which the reordering window is small again (RFC 8985 §6.2 step 4).
const PERSISTENCE: u8 = 16;
/// The window is at most this many quarters of a round trip; SRTT limits it anyway.
const MAX_STEPS: u8 = 250;

/// The variables of RFC 8985 §5.3.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Rack {
    /// RACK.xmit_ts and RACK.end_seq: of the segment sent last among those that arrived.
    xmit: Instant,
    end: u64,
    /// RACK.rtt.
    rtt: Duration,
    /// RACK.fack: the highest position that arrived, plus one.
    fack: u64,
    /// The same among what was sent only once: such segments leave in order of their positions.
    originals: u64,
    /// When and where the segment that left last ended, by the table's times.
    departed: Instant,
    departed_end: u64,
    /// RACK.dsack_round; 0: none.
    dsack_round: u64,
    /// RACK.reo_wnd_mult less one.
    extra_steps: u8,
    /// RACK.reo_wnd_persist.
    persist: u8,
    /// How often something arrived that was passed before; above 0 is RACK.reordering_seen.
    reorderings: u16,
    /// By how many bytes it was passed at most.
    reordered_by: u32,
}

/// What an arrival is judged by.
#[derive(Clone, Copy)]
pub(crate) struct Evidence {
    pub now: Instant,
    pub min_rtt: Duration,
    /// RACK.fack before this ACK.
    pub fack: u64,
    /// The reading of our timestamp clock that the peer echoes, and by how much that clock is ahead of ours.
    pub echo: Option<u32>,
    pub clock_offset: u32,
}

impl Evidence {
    /// Whether the segment that the peer's echo belongs to left before `sent`.
    fn echoes_earlier_than(&self, sent: Instant) -> bool {
        self.echo
            .is_some_and(|echo| self.time_of_stamp(echo) < sent)
    }

    /// The last microsecond at which our timestamp clock read `stamp`.
    fn time_of_stamp(&self, stamp: u32) -> Instant {
        let clock = self.now.as_timestamp_ms().wrapping_add(self.clock_offset);
        let age_ms = clock.wrapping_sub(stamp);
        if age_ms > 1 << 31 {
            // A stamp from the future proves nothing against anybody.
            return self.now;
        }
        let this_ms = Instant::from_us(self.now.as_us() / 1_000 * 1_000 + 999);
        this_ms - Duration::from_ms(u64::from(age_ms))
    }
}

impl Rack {
    pub const fn fack(&self) -> u64 {
        self.fack
    }

    /// RACK.rtt, which is that of the piece that arrived last in the order of the stream.
    pub const fn rtt(&self) -> Duration {
        self.rtt
    }

    /// What SND.UNA has passed counts after what was reported beyond it (Linux `tcp_ack`).
    pub const fn prefer_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
    }

    /// How often reordering was seen, and by how many bytes at most.
    pub const fn reordering(&self) -> (u16, u32) {
        (self.reorderings, self.reordered_by)
    }

    const fn reordering_seen(&self) -> bool {
        self.reorderings > 0
    }

    /// As Linux measures it (`tcp_check_sack_reordering`).
    #[cold]
    fn note_reordering(&mut self, by: u64) {
        self.reorderings = self.reorderings.saturating_add(1);
        let by = u32::try_from(by).unwrap_or(u32::MAX);
        self.reordered_by = self.reordered_by.max(by);
    }

    /// RFC 8985 §6.2 steps 2 and 3 for one piece that is newly known to have arrived.
    #[inline]
    pub fn on_arrival(&mut self, evidence: &Evidence, piece: &Piece) {
        let is_original = !piece.marks.contains(Marks::RETRANSMITTED);
        if !is_original {
            // Step 2: the ACK of an earlier transmission must not pass for that of the last.
            let too_soon = evidence.now.since(piece.sent) < evidence.min_rtt;
            if too_soon || evidence.echoes_earlier_than(piece.sent) {
                self.fack = self.fack.max(piece.end);
                return;
            }
        }
        self.take_arrival(evidence.now, evidence.fack, piece, is_original);
    }

    /// As [`Self::on_arrival`], of a piece that left only once.
    #[inline]
    pub fn on_original_arrival(&mut self, now: Instant, piece: &Piece) {
        self.take_arrival(now, self.fack, piece, true);
    }

    #[inline(always)]
    fn take_arrival(&mut self, now: Instant, fack: u64, piece: &Piece, is_original: bool) {
        if is_original {
            if piece.end < fack {
                self.note_reordering(fack - piece.start);
            }
            self.originals = self.originals.max(piece.end);
        }
        self.fack = self.fack.max(piece.end);
        // The earliest time at which it may have left: never later than true.
        let Some(first) = piece.first else { return };
        self.rtt = now.since(first);
        if (first, piece.end) >= (self.xmit, self.end) {
            (self.xmit, self.end) = (first, piece.end);
        }
    }

    /// RACK_sent_after (RFC 8985 §6.2): whether `piece` surely left before something that arrived.
    fn is_older(&self, piece: &Piece) -> bool {
        let is_original = !piece.marks.contains(Marks::RETRANSMITTED);
        // Only what was sent once left in the order of its positions, whatever the time.
        (is_original && piece.end <= self.originals)
            || (piece.sent, piece.end) < (self.xmit, self.end)
    }

    /// The time to remember for a segment that ends at `end` and leaves now. Whoever runs us may pass one `now`
    /// for a whole batch of events: what leaves after something higher then counts a microsecond later, so that
    /// time, and position at equal times, tell the order in which segments left.
    pub fn depart(&mut self, now: Instant, end: u64) -> Instant {
        let mut at = now.max(self.departed);
        if at == self.departed && end <= self.departed_end {
            at += Duration::from_us(1);
        }
        (self.departed, self.departed_end) = (at, end);
        at
    }

    /// What was sent again had not been lost, so its ACKs were those of the first time: of `rtt`.
    pub fn restart(&mut self, rtt: Duration) {
        (self.xmit, self.end, self.rtt) = (Instant::ZERO, 0, rtt);
    }

    /// Step 4: a duplicate arrived at the peer, so something was sent again too early. Once per round.
    pub fn on_duplicate(&mut self, una: u64, max: u64) {
        if self.dsack_round > 0 && una < self.dsack_round {
            return;
        }
        self.dsack_round = max;
        self.extra_steps = (self.extra_steps + 1).min(MAX_STEPS);
        self.persist = PERSISTENCE;
    }

    /// Step 4: a recovery ended.
    pub fn on_recovery_exit(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.extra_steps = 0;
        }
    }
}
