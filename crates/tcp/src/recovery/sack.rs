//! What an ACK tells about the flight: what arrived, in order or not (RFC 2018 §5, RFC 6675 §4), what
//! arrived twice (RFC 2883), how long it took (RFC 6298, RFC 7323 §4.1).

use crate::{
    connection::Connection,
    recovery::{
        feedback::{Block, Feedback},
        phase::Phase,
        rack::Evidence,
        rtt::CLOCK_TICK,
    },
    send::{
        flight_pool::FlightPool,
        sent::{Marks, Piece},
    },
    seq::SeqNumber,
    time::{Duration, Instant},
};
use wire::tcp::{SackBlocks, Timestamps};

/// The round trips that one ACK measured: of the latest segment sent once, by when it left at the earliest.
#[derive(Default)]
struct Latest {
    acked: Option<Instant>,
    sacked: Option<Instant>,
}

impl Connection {
    /// Takes an acceptable ACK into the table of what is in flight. `snd.una` still is the old one.
    pub(crate) fn take_feedback(
        &mut self,
        now: Instant,
        echo: Option<u32>,
        sack: &SackBlocks,
        ack: u64,
        pool: &mut dyn FlightPool,
    ) -> Feedback {
        self.take_any_feedback(now, echo, Some(sack), ack, pool)
    }

    /// [`Self::take_feedback`] of an ACK without blocks.
    #[inline(always)]
    pub(crate) fn take_plain_feedback(
        &mut self,
        now: Instant,
        echo: Option<u32>,
        ack: u64,
        pool: &mut dyn FlightPool,
    ) {
        if let Some((first, piece)) = self.snd.sent.release_only(now, ack) {
            // All that was in flight left at once, and only once.
            self.rack.on_original_arrival(now, &piece);
            self.rtt.sample(now, now.since(first), ack, self.snd.max);
        } else {
            self.take_feedback_of_pieces(now, echo, ack, pool);
        }
    }

    #[inline(never)]
    fn take_feedback_of_pieces(
        &mut self,
        now: Instant,
        echo: Option<u32>,
        ack: u64,
        pool: &mut dyn FlightPool,
    ) {
        // No data was in flight: it is our SYN.
        if !self.snd.sent.begin_at(ack) {
            self.take_any_feedback(now, echo, None, ack, pool);
        }
    }

    #[inline(always)]
    fn take_any_feedback(
        &mut self,
        now: Instant,
        echo: Option<u32>,
        sack: Option<&SackBlocks>,
        ack: u64,
        pool: &mut dyn FlightPool,
    ) -> Feedback {
        let sack = sack.filter(|sack| self.rcv.sack && !sack.is_empty());
        let mut feedback = Feedback {
            acked: ack.saturating_sub(self.snd.una),
            has_blocks: sack.is_some(),
            echo,
            ..Feedback::default()
        };
        if feedback.acked == 0 && !feedback.has_blocks {
            return feedback;
        }
        let evidence = Evidence {
            now,
            min_rtt: self.rtt.min_rtt().unwrap_or(Duration::ZERO),
            fack: self.rack.fack(),
            echo,
            clock_offset: self.timestamp_offset,
        };
        let mut latest = Latest::default();
        let (rack, point) = (&mut self.rack, self.recovery.point);
        let is_known = |piece: &Piece| piece.marks.contains(Marks::SACKED);
        let resent = |piece: &Piece| piece.marks.contains(Marks::RETRANSMITTED);
        let mut released_rtt = None;
        let mut table = self.snd.sent.table(pool);
        // No closure, so that all of it stays in registers.
        while let Some(piece) = table.release_next(now, ack) {
            feedback.resent_acked |= resent(&piece);
            if !is_known(&piece) {
                rack.on_arrival(&evidence, &piece);
                released_rtt = Some(rack.rtt());
                if !resent(&piece) {
                    latest.acked = latest.acked.max(piece.first);
                    feedback.original_arrived |= piece.end <= point;
                }
            }
        }
        if let Some(sack) = sack {
            let (blocks, duplicate) = self.sort_blocks(sack, ack);
            feedback.duplicate = duplicate;
            let reports = u32::from(duplicate.is_some());
            let counters = &mut self.counters;
            counters.duplicates_reported = counters.duplicates_reported.wrapping_add(reports);
            let rack = &mut self.rack;
            for (start, end) in blocks.into_iter().flatten() {
                let mut table = self.snd.sent.table(pool);
                feedback.sacked += table.sack(now, start, end, |piece| {
                    rack.on_arrival(&evidence, piece);
                    if !resent(piece) {
                        latest.sacked = latest.sacked.max(piece.first);
                        feedback.original_arrived |= piece.end <= point;
                    }
                });
            }
        }
        if let Some(rtt) = released_rtt {
            self.rack.prefer_rtt(rtt);
        }
        if !self.rcv.sack && feedback.resent_acked {
            // Without SACK the hole may have been filled by what was sent again.
            feedback.original_arrived = false;
        }
        self.snd.sent.settle(pool);
        self.measure_round_trip(now, &feedback, &latest, ack);
        feedback
    }

    /// The blocks that can be, ascending so that one ACK does not look like reordering, and the first one
    /// if it reports a duplicate (RFC 2883 §4).
    fn sort_blocks(
        &self,
        blocks: &SackBlocks,
        ack: u64,
    ) -> ([Option<Block>; SackBlocks::MAX], Option<Block>) {
        let mut sorted = [None; SackBlocks::MAX];
        for (slot, (left, right)) in sorted.iter_mut().zip(blocks.iter()) {
            let near = self.snd.una;
            let ends = (
                self.snd.space.position(left, near),
                self.snd.space.position(right, near),
            );
            // A block beyond what we sent is a lie.
            if let (Some(start), Some(end)) = ends
                && start < end
                && end <= self.snd.max
            {
                *slot = Some((start, end));
            }
        }
        let duplicate = sorted[0].filter(|&(start, end)| {
            let held_by_second =
                sorted[1].is_some_and(|second| second.0 <= start && end <= second.1);
            end <= ack || held_by_second
        });
        for slot in &mut sorted {
            // What lies at or below SND.UNA is a duplicate or an old ACK's news.
            *slot = slot.filter(|&(start, _)| start > ack);
        }
        sorted.sort_unstable();
        (sorted, duplicate)
    }

    /// What timestamps echo, where they were agreed upon.
    pub(crate) fn echo(&self, timestamps: Option<Timestamps>) -> Option<u32> {
        let timestamps = timestamps.filter(|_| self.rcv.timestamps)?;
        (timestamps.echo != 0).then_some(timestamps.echo)
    }

    /// RFC 6298 §3: what was sent once gives a sample; RFC 7323 §4.1: what was sent again only by the
    /// peer's echo, and only when SND.UNA moves.
    #[inline(always)]
    fn measure_round_trip(&mut self, now: Instant, feedback: &Feedback, latest: &Latest, ack: u64) {
        let acked = latest.acked.filter(|_| !feedback.resent_acked);
        let sample = if let Some(first) = acked.max(latest.sacked) {
            now.since(first)
        } else if feedback.acked > 0
            && feedback.resent_acked
            // The answer to a duplicate echoes what came in order before it, however long ago.
            && feedback.duplicate.is_none()
            && let Some(echo) = feedback.echo
        {
            let elapsed_ms = self.timestamp_clock(now).wrapping_sub(echo);
            let elapsed = Duration::from_ms(u64::from(elapsed_ms));
            // An echo older than anything in flight is the peer's fancy: no timeout grows from it.
            let longest = now.since(self.timers.oldest_sent) + CLOCK_TICK;
            if elapsed_ms == 0 || elapsed > longest {
                return;
            }
            elapsed
        } else {
            return;
        };
        self.rtt.sample(now, sample, ack, self.snd.max);
    }

    /// Whether the peer's echo is older than our clock's reading `stamp`.
    pub(crate) fn is_echo_older(echo: Option<u32>, stamp: u32) -> bool {
        echo.is_some_and(|echo| SeqNumber(stamp).is_after(SeqNumber(echo)))
    }

    /// Bytes that are thought to be in the network (RFC 6675 §4 SetPipe, RFC 8985 §9.3).
    #[inline]
    pub(crate) fn pipe(&self) -> u64 {
        let in_flight = self.snd.sent.in_flight();
        if self.rcv.sack {
            return in_flight;
        }
        // Each duplicate ACK stands for a segment that left: in recovery (RFC 5681 §3.2 step 4), and for
        // two segments before it (RFC 3042 §2). After a timeout they may answer what was there already.
        let segments = match self.recovery.phase {
            Phase::Open => self.snd.duplicate_acks.min(2),
            Phase::Fast => self.snd.duplicate_acks,
            Phase::Loss => 0,
        };
        let left = u64::from(segments) * u64::from(self.snd.segment_payload);
        in_flight.saturating_sub(left)
    }
}
