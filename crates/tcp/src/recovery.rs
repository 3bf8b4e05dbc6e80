//! From loss to repair: when recovery begins and ends, after RACK (RFC 8985), after three duplicate ACKs
//! without SACK (RFC 6582), after a timeout (RFC 5681 §3.1, F-RTO of RFC 5682), and what is sent again.

pub(crate) mod feedback;
pub(crate) mod phase;
pub(crate) mod probe;
pub(crate) mod prr;
pub(crate) mod rack;
pub(crate) mod rate;
pub(crate) mod rtt;
pub(crate) mod sack;
pub(crate) mod undo;

use crate::{
    congestion::Cause,
    connection::Connection,
    events::Events,
    recovery::{
        feedback::Feedback,
        phase::{Frto, Phase},
        prr::{Prr, PrrAck},
        rack::DUP_THRESH,
        rate::on_ack::DeliveryMark,
        undo::Undo,
    },
    send::{
        flight_pool::FlightPool,
        segment::{Stretch, TransmitLimits},
    },
    time::{Duration, Instant},
};
use zerocopy::FromZeros;

/// A peer that renounces is given this long to send an ACK that says otherwise, as Linux does.
const RENOUNCE_DELAY: Duration = Duration::from_ms(10);

impl Connection {
    /// Acts on what an ACK told, once `snd.una` is new; `before`: where delivery stood until then.
    pub(crate) fn recover(
        &mut self,
        now: Instant,
        feedback: &Feedback,
        before: &DeliveryMark,
        pool: &mut dyn FlightPool,
    ) {
        let was_probe = self.judge_probe(feedback);
        let is_calm = self.recovery.phase == Phase::Open
            && self.snd.sent.sacked() + self.snd.sent.lost() == 0
            && feedback.acked > 0
            && feedback.duplicate.is_none();
        if is_calm {
            self.snd.duplicate_acks = 0;
            self.timers.reordering = Instant::NEVER;
            return;
        }
        if feedback.duplicate.is_some() {
            self.recovery.duplicates = self.recovery.duplicates.saturating_add(1);
            // Neither a probe that was too early nor what the network made twice tells of reordering.
            let is_ours = u64::from(self.recovery.duplicates) <= self.recovery.retransmissions;
            if is_ours && !was_probe {
                self.rack.on_duplicate(self.snd.una, self.snd.max);
            }
        }
        self.undo_if_spurious(now, feedback, pool);
        if self.recovery.phase == Phase::Loss {
            self.step_frto(now, feedback, pool);
        }
        self.leave_recovery_if_done(now);
        let lost = if self.rcv.sack {
            self.detect_loss(now, pool)
        } else {
            self.infer_loss(now, feedback, pool)
        };
        self.watch_for_renouncing(now, pool);
        let is_new_episode = self.recovery.phase == Phase::Open && self.snd.sent.lost() > 0;
        if is_new_episode && !self.was_only_the_probe(now, pool) {
            self.enter_fast_recovery(feedback);
        }
        if self.recovery.phase == Phase::Fast {
            let is_safe = feedback.acked > 0 && lost == 0 && !is_new_episode;
            self.reduce_in_proportion(self.delivered_since(before), is_safe);
        }
    }

    /// Without SACK: three duplicate ACKs, then each partial ACK, give up the first segment
    /// (RFC 6582 §3.2 steps 2 and 3).
    fn infer_loss(&mut self, now: Instant, feedback: &Feedback, pool: &mut dyn FlightPool) -> u64 {
        let most = self.duplicates_max();
        let duplicates = &mut self.snd.duplicate_acks;
        *duplicates = duplicates
            .saturating_add(u32::from(feedback.is_duplicate))
            .min(most);
        if feedback.acked > 0 {
            let segments = feedback.acked / u64::from(self.snd.segment_payload.max(1));
            let left = u32::try_from(segments).unwrap_or(u32::MAX);
            *duplicates = if self.recovery.phase == Phase::Fast {
                duplicates.saturating_sub(left)
            } else {
                0
            };
        }
        let is_partial = self.recovery.phase == Phase::Fast && feedback.acked > 0;
        // RFC 6582 §3.2 step 1: not for what a timeout had sent twice.
        let is_third = self.recovery.phase == Phase::Open
            && u64::from(*duplicates) >= DUP_THRESH
            && self.are_duplicates_of_loss();
        if !is_partial && !is_third {
            return 0;
        }
        let end = self.snd.una + u64::from(self.snd.segment_payload);
        let lost = self.snd.sent.table(pool).mark_front_lost(now, end);
        self.recovery.first_owed |= is_partial;
        self.recovery.partial_seen |= is_partial;
        self.note_lost(lost);
        lost
    }

    /// Duplicate ACKs, each of a full segment, that an honest peer can have sent since SND.UNA moved. RFC 5681 §3.2: those
    /// that a peer makes up must not have ever more data sent. In recovery half of the flight leaves anew each time that
    /// its duplicates come back, and is answered too: twice the flight in all. Before it they free two segments at most.
    fn duplicates_max(&self) -> u32 {
        if self.recovery.phase != Phase::Fast {
            return u32::MAX;
        }
        let segment = u64::from(self.snd.segment_payload.max(1));
        let segments = (2 * self.prr.flight()).div_ceil(segment);
        u32::try_from(segments).unwrap_or(u32::MAX)
    }

    /// RFC 6582 §3.2 step 1 and §4.1: after a timeout the peer also answers what it had already, and then
    /// its last ACK has jumped over all of that.
    fn are_duplicates_of_loss(&self) -> bool {
        let is_small_step = self.recovery.last_step <= 4 * u32::from(self.snd.segment_payload);
        !self.recovery.after_timeout || self.snd.una > self.recovery.point || is_small_step
    }

    /// `bytes` count as lost that did not until now.
    pub(crate) fn note_lost(&mut self, bytes: u64) {
        self.recovery.lost += bytes;
    }

    pub(crate) fn enter_fast_recovery(&mut self, feedback: &Feedback) {
        let sent = &self.snd.sent;
        // RFC 9937 §6: what was held before will not be reported again, this ACK's news will be counted.
        let flight = (self.snd.max - self.snd.una + feedback.acked)
            .saturating_sub(sent.sacked().saturating_sub(feedback.sacked));
        self.prr = Prr::begin(flight);
        self.recovery.phase = Phase::Fast;
        self.recovery.frto = Frto::Off;
        self.recovery.first_owed = true;
        self.recovery.partial_seen = false;
        self.recovery.point = self.snd.max;
        self.undo = Undo::begin(self.snd.una);
        self.probe.reset();
        self.timers.probe = Instant::NEVER;
        // RFC 3168 §6.1.2: one window of data is one reason, whether it was marked or lost.
        if !self.is_reduced_by_marks() {
            let event = self.congestion_event(Cause::Loss, feedback.acked);
            self.congestion.on_congestion_event(&event);
        }
        self.limit_window(self.pipe());
    }

    fn reduce_in_proportion(&mut self, delivered: u64, is_safe: bool) {
        let ack = PrrAck {
            delivered,
            in_flight: self.pipe(),
            ssthresh: u64::from(self.congestion.ssthresh()),
            mss: u64::from(self.snd.segment_payload),
            is_safe,
        };
        if let Some(window) = self.prr.on_ack(&ack) {
            self.limit_window(window);
        }
    }

    fn limit_window(&mut self, bytes: u64) {
        let window = bytes.max(u64::from(self.snd.segment_payload));
        let window = u32::try_from(window).unwrap_or(u32::MAX);
        self.congestion.set_recovery_cwnd(window);
    }

    fn leave_recovery_if_done(&mut self, now: Instant) {
        if !self.recovery.is_active() || self.snd.una < self.recovery.point {
            return;
        }
        if self.recovery.phase == Phase::Fast {
            // RFC 9937 §6: the window ends where congestion control wanted it.
            self.limit_window(u64::from(self.congestion.ssthresh()));
        }
        self.congestion.on_recovery_exit(now);
        self.leave_recovery();
    }

    pub(crate) fn leave_recovery(&mut self) {
        self.recovery.after_timeout = self.recovery.phase == Phase::Loss;
        self.recovery.point = self.snd.max;
        self.recovery.phase = Phase::Open;
        self.recovery.frto = Frto::Off;
        self.recovery.first_owed = false;
        self.snd.duplicate_acks = 0;
        self.rack.on_recovery_exit();
    }

    /// The retransmission timer fired with data in flight (RFC 5681 §3.1, RFC 8985 §6.3).
    pub(crate) fn enter_loss_recovery(&mut self, now: Instant, pool: &mut dyn FlightPool) {
        let event = self.congestion_event(Cause::Loss, 0);
        // A loss that fast recovery did not repair belongs to the window that it has reduced already: as Linux,
        // the threshold stays.
        let is_new = self.recovery.phase != Phase::Fast;
        self.congestion
            .on_timeout(&event, is_new && self.timers.retries == 1);
        // RFC 5682 §3.1 step 1: not when an earlier recovery is unfinished.
        let may_be_spurious =
            self.recovery.phase == Phase::Open || self.recovery.frto == Frto::AwaitsAck;
        self.recovery.frto = if may_be_spurious {
            Frto::AwaitsAck
        } else {
            Frto::Off
        };
        if self.recovery.phase != Phase::Loss {
            self.undo = Undo::begin(self.snd.una);
        }
        if self.snd.sent.is_renounced(pool) || !self.rcv.sack {
            // RFC 2018 §8: nothing that was said to be held can be relied on.
            let mut table = self.snd.sent.table(pool);
            table.forget_sacks();
            let lost = table.mark_lost(now, |_| true);
            self.note_lost(lost);
        } else {
            self.mark_lost_on_timeout(now, pool);
        }
        self.begin_loss_phase();
    }

    pub(crate) fn begin_loss_phase(&mut self) {
        self.recovery.phase = Phase::Loss;
        self.recovery.first_owed = true;
        self.recovery.point = self.snd.max;
        self.snd.duplicate_acks = 0;
        self.probe.reset();
        self.timers.probe = Instant::NEVER;
    }

    /// A router could not forward segments of the size that was sent: what is too large for `mss`, the
    /// payload of a packet without options, goes out again at once, and congestion control does not hear
    /// of it (RFC 1191 §6.3, RFC 8201 §5.4).
    pub fn handle_packet_too_big(
        &mut self,
        now: Instant,
        mss: u16,
        pool: &mut dyn FlightPool,
    ) -> Events {
        if !self.state.is_synchronized() {
            return Events::empty();
        }
        self.end_path_probe_above(now, mss);
        let options_len = if self.rcv.timestamps { 12 } else { 0 };
        let fits = u64::from(mss.saturating_sub(options_len));
        // Neighbours of one burst are one run, so a run that is longer may hold small segments too.
        let mut table = self.snd.sent.table(pool);
        let lost = table.mark_lost(now, |piece| piece.len() > fits);
        if lost == 0 {
            return Events::empty();
        }
        if self.recovery.phase == Phase::Open {
            self.undo = Undo::new_zeroed();
            self.begin_loss_phase();
        }
        Events::TRANSMIT
    }

    /// RFC 5682 §3.1 steps 2 and 3. `snd.una` is new.
    fn step_frto(&mut self, now: Instant, feedback: &Feedback, pool: &mut dyn FlightPool) {
        let segment = u64::from(self.snd.segment_payload);
        match self.recovery.frto {
            Frto::Off => {}
            Frto::AwaitsAck => {
                // Step 2: nothing moved yet, or everything did: the usual way.
                if feedback.acked == 0 {
                    return;
                }
                let room = self.snd.window_edge().min(self.snd.written);
                let has_new = room >= self.snd.max + segment;
                let partial = self.snd.una < self.recovery.point;
                self.recovery.frto = if has_new && partial {
                    self.recovery.point = self.snd.max;
                    Frto::SendsNew
                } else {
                    Frto::Off
                };
            }
            Frto::SendsNew if feedback.original_arrived => {
                // Step 3 b: what was never sent again arrived after all.
                self.undo_reduction(now, pool);
            }
            Frto::SendsNew => {
                // Step 3 a: only the new data arrived.
                if feedback.sacked > 0 || feedback.is_duplicate {
                    self.recovery.frto = Frto::Off;
                }
            }
        }
    }

    /// RFC 2018 §8: an ACK stops where the peer said that it holds data. It may be about to say more;
    /// if not, the retransmission timer, now short, will find it renounced.
    fn watch_for_renouncing(&mut self, now: Instant, pool: &mut dyn FlightPool) {
        if !self.snd.sent.is_renounced(pool) {
            return;
        }
        let half = self
            .rtt
            .srtt()
            .map_or(Duration::ZERO, |srtt| Duration::from_us(srtt.as_us() / 2));
        let soon = now + half.max(RENOUNCE_DELAY);
        self.timers.retransmit = self.timers.retransmit.min(soon);
    }

    /// NextSeg (RFC 6675 §4) rule 1: the lowest that counts as lost, as far as the window allows.
    pub(crate) fn next_retransmission(
        &mut self,
        segment: u64,
        usable: u64,
        limits: &TransmitLimits,
        pool: &mut dyn FlightPool,
    ) -> Option<Stretch> {
        if self.recovery.frto == Frto::SendsNew {
            return None;
        }
        let (start, end) = self.snd.sent.next_lost(pool)?;
        let end = self.snd.record_end(start).unwrap_or(end).min(end);
        let end = self.snd.trains.end_of(start).unwrap_or(end).min(end);
        let is_first = start == self.snd.una;
        // A window taken back does not silence the first segment (RFC 9293 §3.8.6).
        let edge = if is_first {
            self.snd.window_edge().max(start + segment)
        } else {
            self.snd.window_edge()
        };
        let wanted = end.min(edge).saturating_sub(start);
        let room = if self.recovery.first_owed {
            usable.max(segment)
        } else {
            usable
        };
        let len = if wanted <= room {
            wanted
        } else {
            room - room % segment
        };
        if len == 0 {
            if wanted > 0 {
                self.rate.on_cwnd_limited(self.snd.max);
            }
            return None;
        }
        Some(Stretch {
            start,
            end: start + crate::send::burst(len, segment, limits),
        })
    }

    /// `stretch` leaves once more.
    pub(crate) fn on_retransmitted(
        &mut self,
        now: Instant,
        stretch: Stretch,
        segment: u64,
        pool: &mut dyn FlightPool,
    ) {
        let Stretch { start, end } = stretch;
        self.recovery.first_owed = false;
        self.recovery.retransmissions += (end - start).div_ceil(segment);
        let at = self.rack.depart(now, end);
        self.snd.sent.table(pool).resend(at, start, end);
        self.rate.on_sent_again(start, end);
        self.on_departed(now, end - start);
        if self.recovery.is_active() {
            let stamp = self.timestamp_clock(now);
            self.undo.on_resent(start, end, stamp);
            self.prr.on_sent(end - start);
        }
        let timer_runs = self.timers.retransmit.is_set();
        if !timer_runs || (start == self.snd.una && !self.recovery.partial_seen) {
            self.arm_retransmit(now);
        }
    }
}
