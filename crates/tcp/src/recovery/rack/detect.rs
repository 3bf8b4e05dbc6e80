//! What RACK finds: RACK_detect_loss and what it waits for (RFC 8985 §6.2 step 5, §6.3).

use super::DUP_THRESH;
use crate::{
    connection::Connection,
    events::Events,
    recovery::feedback::Feedback,
    send::flight_pool::FlightPool,
    time::{Duration, Instant},
};

impl Connection {
    /// RACK_update_reo_wnd (RFC 8985 §6.2 step 4).
    fn reordering_window(&self) -> Duration {
        let held_segments = self.snd.sent.sacked() / u64::from(self.snd.segment_payload.max(1));
        if !self.rack.reordering_seen()
            && (self.recovery.is_active() || held_segments >= DUP_THRESH)
        {
            return Duration::ZERO;
        }
        let min_rtt = self.rtt.min_rtt().unwrap_or(self.rack.rtt).as_us();
        let steps = 1 + u64::from(self.rack.extra_steps);
        Duration::from_us(steps * min_rtt / 4).min(self.rtt.srtt().unwrap_or(self.rack.rtt))
    }

    /// RACK_detect_loss (RFC 8985 §6.2 step 5). Returns how much is newly lost; sets the timer for what
    /// may turn out to be.
    pub(crate) fn detect_loss(&mut self, now: Instant, pool: &mut dyn FlightPool) -> u64 {
        let patience = self.rack.rtt + self.reordering_window();
        let rack = &self.rack;
        let mut wait_until = Instant::ZERO;
        let lost = self.snd.sent.table(pool).mark_lost(now, |piece| {
            if !rack.is_older(piece) {
                return false;
            }
            let due = piece.sent + patience;
            if due > now {
                wait_until = wait_until.max(due);
            }
            due <= now
        });
        self.timers.reordering = if wait_until > Instant::ZERO {
            wait_until
        } else {
            Instant::NEVER
        };
        self.note_lost(lost);
        lost
    }

    /// RFC 8985 §6.3: the reordering timer fired.
    pub(crate) fn on_reordering_timeout(
        &mut self,
        now: Instant,
        pool: &mut dyn FlightPool,
    ) -> Events {
        let lost = self.detect_loss(now, pool);
        if lost == 0 {
            return Events::empty();
        }
        if !self.recovery.is_active() && !self.was_only_the_probe(now, pool) {
            self.enter_fast_recovery(&Feedback::default());
        }
        self.arm_retransmit(now);
        Events::TRANSMIT
    }

    /// RACK_mark_losses_on_RTO (RFC 8985 §6.3): the first segment, and what is overdue.
    pub(crate) fn mark_lost_on_timeout(&mut self, now: Instant, pool: &mut dyn FlightPool) {
        let patience = self.rack.rtt + self.reordering_window();
        let mut table = self.snd.sent.table(pool);
        let lost = table.mark_lost(now, |piece| piece.sent + patience <= now);
        let head_end = self.snd.una + u64::from(self.snd.segment_payload);
        let head = table.mark_front_lost(now, head_end);
        self.note_lost(lost + head);
        self.timers.reordering = Instant::NEVER;
    }
}
