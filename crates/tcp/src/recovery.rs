//! Loss recovery: fast retransmit and fast recovery with SACK (RFC 6675 §5), without it (RFC 6582),
//! and after a timeout (RFC 5681 §3.1). RACK-TLP (RFC 8985) will be another file beside this one.

use crate::{
    congestion::Cause,
    connection::{Connection, Events},
    sack::DUP_THRESH,
    time::Instant,
};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// State of loss recovery, in absolute positions.
#[derive(Clone, Copy, Debug, Default, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Recovery {
    /// RecoveryPoint: recovery ends when this is acknowledged.
    pub point: u64,
    /// HighRxt: highest position retransmitted in this recovery, plus one.
    pub high_rxt: u64,
    /// RescueRxt (RFC 6675 §4 rule 4).
    pub rescue_rxt: u64,
    /// Everything below may have been sent twice: no plain RTT samples there.
    pub retransmitted_up_to: u64,
    pub active: bool,
    /// The first retransmission goes out whatever the pipe holds (RFC 6675 §5 step 4.3).
    pub first_owed: bool,
    pub reserved: [u8; 6],
    /// Segments retransmitted in the connection's life.
    pub retransmissions: u64,
}

impl Connection {
    pub(crate) fn handle_duplicate_ack(&mut self, now: Instant) -> Events {
        self.snd.duplicate_acks = self.snd.duplicate_acks.saturating_add(1);
        let lost = if self.rcv.sack {
            self.snd.duplicate_acks as usize >= DUP_THRESH || self.lost_edge() > self.snd.una
        } else {
            self.snd.duplicate_acks as usize >= DUP_THRESH
        };
        // RFC 6582 §3.2 step 1, RFC 6675 §5.1: not again before the last recovery point has passed.
        if lost && !self.recovery.active && self.snd.una >= self.recovery.point {
            self.enter_recovery(now);
        }
        // RFC 3042: the pipe shrank, so a new segment may be due even before that.
        Events::TRANSMIT
    }

    fn enter_recovery(&mut self, now: Instant) {
        self.recovery.active = true;
        self.recovery.first_owed = true;
        self.recovery.point = self.snd.max;
        self.recovery.high_rxt = self.snd.una;
        self.recovery.rescue_rxt = 0;
        let event = self.congestion_event(now, Cause::Loss);
        self.congestion.on_congestion_event(&event);
    }

    /// The cumulative ACK moved by `acknowledged` positions; `snd.una` is already new.
    pub(crate) fn on_progress_in_recovery(&mut self, now: Instant, acknowledged: u64) {
        if !self.recovery.active {
            self.snd.duplicate_acks = 0;
            return;
        }
        if self.snd.una >= self.recovery.point {
            self.recovery.active = false;
            self.recovery.first_owed = false;
            self.snd.duplicate_acks = 0;
            self.congestion.on_recovery_exit(now);
            return;
        }
        if !self.rcv.sack {
            // RFC 6582 §3.2 step 3: a partial ACK; the next hole begins right here.
            let segments = acknowledged / u64::from(self.snd.segment_payload.max(1));
            let left = u32::try_from(segments).unwrap_or(u32::MAX);
            self.snd.duplicate_acks = self.snd.duplicate_acks.saturating_sub(left);
            self.recovery.high_rxt = self.snd.una;
            self.recovery.first_owed = true;
        }
    }

    /// RFC 5681 §3.1, RFC 6582 §4.1; what was SACKed may have been renounced (RFC 2018 §8).
    pub(crate) fn collapse_after_timeout(&mut self, now: Instant) {
        let event = self.congestion_event(now, Cause::Loss);
        self.congestion.on_timeout(&event, self.timers.retries == 1);
        self.snd.sacked.clear();
        self.snd.duplicate_acks = 0;
        self.recovery.active = false;
        self.recovery.first_owed = false;
        self.recovery.point = self.snd.max;
        self.recovery.high_rxt = self.snd.una;
        self.recovery.retransmitted_up_to = self.snd.max;
    }

    /// NextSeg (RFC 6675 §4) rules 1, 3 and 4: what to send again, `[start, end)`.
    ///
    /// Rule 2, new data, is `send`'s; `new_data_waits` says whether it applies.
    pub(crate) fn next_retransmission(
        &self,
        segment: u64,
        usable: u64,
        new_data_waits: bool,
    ) -> Option<Retransmission> {
        if !self.recovery.active {
            return None;
        }
        let room = if self.recovery.first_owed {
            usable.max(segment)
        } else {
            usable
        };
        if room < segment {
            return None;
        }
        let from = self.recovery.high_rxt.max(self.snd.una);
        let limit = if self.recovery.first_owed {
            // Step 4.3, and without SACK: the one segment at SND.UNA.
            self.lost_edge()
                .max(self.snd.una + segment)
                .min(self.snd.max)
        } else {
            self.lost_edge()
        };
        let plan = |start: u64, end: u64, is_rescue| Retransmission {
            start,
            end: end.min(start + room),
            is_rescue,
        };
        if let Some((start, end)) = self.hole_after(from, limit) {
            return Some(plan(start, end, false));
        }
        if new_data_waits || !self.rcv.sack {
            return None;
        }
        if let Some((start, end)) = self
            .snd
            .sacked
            .highest()
            .and_then(|high| self.hole_after(from, high))
        {
            return Some(plan(start, end.min(start + segment), false));
        }
        let top = self.snd.max;
        let rescue =
            self.snd.una > self.recovery.rescue_rxt && self.snd.sacked.highest() != Some(top);
        rescue.then(|| {
            let start = self
                .snd
                .sacked
                .highest()
                .unwrap_or(self.snd.una)
                .max(top.saturating_sub(segment));
            plan(start, top, true)
        })
    }

    pub(crate) fn on_retransmitted(&mut self, now: Instant, plan: Retransmission, end: u64) {
        self.recovery.first_owed = false;
        if plan.is_rescue {
            self.recovery.rescue_rxt = self.recovery.point;
        } else {
            self.recovery.high_rxt = end;
        }
        self.note_sent_again(end);
        if !self.timers.retransmit.is_set() || plan.start == self.snd.una {
            self.arm_retransmit(now);
        }
    }

    /// Karn's rule, and the count for statistics.
    pub(crate) fn note_sent_again(&mut self, end: u64) {
        self.rtt.stop_timing();
        self.recovery.retransmitted_up_to = self.recovery.retransmitted_up_to.max(end);
        self.recovery.retransmissions += 1;
    }
}

/// What [`Connection::next_retransmission`] proposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retransmission {
    pub start: u64,
    pub end: u64,
    pub is_rescue: bool,
}
