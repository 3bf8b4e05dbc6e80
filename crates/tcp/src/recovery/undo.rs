//! Taking back what a false alarm did to the window: by the peer's echo of an older timestamp (Eifel,
//! RFC 3522), by D-SACKs for everything that was sent again (RFC 3708), by F-RTO (RFC 5682, in `recovery`).

use crate::{
    connection::Connection,
    recovery::{feedback::Feedback, phase::Phase},
    send::flight_pool::FlightPool,
    time::Instant,
};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// What is needed to prove that the last reduction was for nothing.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Undo {
    /// SND.UNA when the episode began; 0: there is nothing to undo.
    marker: u64,
    /// Highest position sent again since, plus one; 0: none.
    high: u64,
    /// Bytes sent again whose duplicates the peer has not reported.
    unreported: u64,
    /// Start of what was sent again first.
    first: u64,
    /// Our timestamp clock when that left: RetransmitTS (RFC 3522 §3.2).
    first_stamp: u32,
    /// It is not acknowledged yet.
    awaits_first: bool,
    reserved: [u8; 3],
}

impl Undo {
    /// The window is about to be reduced.
    pub fn begin(una: u64) -> Self {
        Self {
            marker: una,
            ..Self::new_zeroed()
        }
    }

    /// `[start, end)` was sent again when our timestamp clock read `stamp`.
    pub fn on_resent(&mut self, start: u64, end: u64, stamp: u32) {
        if self.marker == 0 {
            return;
        }
        if self.high == 0 {
            self.first = start;
            self.first_stamp = stamp;
            self.awaits_first = true;
        }
        self.high = self.high.max(end);
        self.unreported += end - start;
    }

    /// The peer received `[start, end)` twice. A duplicate of something else was the network's.
    fn on_duplicate(&mut self, start: u64, end: u64) {
        if self.marker > 0 && self.marker <= start && end <= self.high {
            self.unreported = self.unreported.saturating_sub(end - start);
        }
    }

    /// RFC 3708 §3 in the counting form: all that was sent again was there already.
    fn all_reported(&self) -> bool {
        self.marker > 0 && self.high > 0 && self.unreported == 0
    }

    /// RFC 3522 §3.2 steps 4 and 5: the first ACK that covers what was sent again answers to what was
    /// sent before.
    fn is_answer_to_original(&mut self, una: u64, echo: Option<u32>) -> bool {
        if self.marker == 0 || !self.awaits_first || una <= self.first {
            return false;
        }
        self.awaits_first = false;
        Connection::is_echo_older(echo, self.first_stamp)
    }
}

impl Connection {
    /// Undoes the last reduction if this ACK proves that it was for nothing. `snd.una` is new.
    pub(crate) fn undo_if_spurious(
        &mut self,
        now: Instant,
        feedback: &Feedback,
        pool: &mut dyn FlightPool,
    ) {
        if let Some((start, end)) = feedback.duplicate {
            self.undo.on_duplicate(start, end);
        }
        let proven = self.undo.is_answer_to_original(self.snd.una, feedback.echo)
            || (feedback.duplicate.is_some() && self.undo.all_reported());
        if proven {
            self.undo_reduction(now, pool);
        }
    }

    /// RFC 4015 §3.2, RFC 5682 §4: window and threshold as before; nothing counts as lost any more.
    pub(crate) fn undo_reduction(&mut self, now: Instant, pool: &mut dyn FlightPool) {
        self.undo = Undo::new_zeroed();
        self.snd.sent.table(pool).forget_lost();
        self.rack.restart(self.rtt.latest());
        self.congestion.undo(now);
        if self.recovery.phase != Phase::Open {
            self.leave_recovery();
        }
    }
}
