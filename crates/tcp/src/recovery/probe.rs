//! Tail loss probes (RFC 8985 §7): when the end of a flight is not acknowledged for two round trips, one
//! segment goes out, so that its ACK tells what was lost before the retransmission timer has to.

use crate::{
    congestion::Cause,
    connection::Connection,
    events::Events,
    recovery::{feedback::Feedback, phase::Phase},
    send::segment::Stretch,
    time::{Duration, Instant},
};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// TLP.max_ack_delay: what a peer may wait before it acknowledges less than two full segments.
const MAX_ACK_DELAY: Duration = Duration::from_ms(200);
/// Allowance for the peer's and our own scheduling; on a short path it is all that counts.
const SLACK: Duration = Duration::from_ms(2);
/// Without a round-trip time (RFC 8985 §7.2).
const BLIND_TIMEOUT: Duration = Duration::from_secs(1);

/// The variables of RFC 8985 §7.1.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Probe {
    /// TLP.end_seq; 0: none is on its way.
    end: u64,
    /// FlightSize when it left, bytes: the window in which the loss that it repairs happened.
    flight: u32,
    /// Samples of the round-trip time when the last probe left.
    samples: u32,
    /// TLP.is_retrans.
    is_retransmission: bool,
    /// A probe was sent in this connection: the next one waits for a new sample.
    was_sent: bool,
    /// One is due.
    pub owed: bool,
    reserved: [u8; 5],
}

impl Probe {
    /// RFC 8985 §7.1: recovery begins.
    pub fn reset(&mut self) {
        self.end = 0;
        self.owed = false;
    }

    /// Whether one is on its way.
    pub const fn is_out(&self) -> bool {
        self.end > 0
    }
}

impl Connection {
    /// TLP_calc_PTO, and whether one is due at all (RFC 8985 §7.2).
    #[inline]
    pub(crate) fn arm_probe(&mut self, now: Instant) {
        let is_fresh = !self.probe.was_sent || self.rtt.samples() != self.probe.samples;
        // Data that overtakes its SYN-ACK (RFC 7413) waits for that one's timer.
        let wanted = self.rcv.sack
            && self.state.is_synchronized()
            && self.recovery.phase == Phase::Open
            && !self.snd.sent.is_empty()
            && self.snd.sent.sacked() == 0
            && self.probe.end == 0
            && is_fresh;
        if !wanted {
            self.timers.probe = Instant::NEVER;
            return;
        }
        let mut timeout = match self.rtt.srtt() {
            Some(srtt) => srtt + srtt + SLACK,
            None => BLIND_TIMEOUT,
        };
        if self.snd.sent.in_flight() < 2 * u64::from(self.snd.segment_payload) {
            timeout = timeout + MAX_ACK_DELAY;
        }
        self.timers.probe = (now + timeout).min(self.timers.retransmit);
    }

    /// RFC 8985 §7.3: the timer fired. Whatever comes of it, the retransmission timer runs from now.
    pub(crate) fn on_probe_timeout(&mut self, now: Instant) -> Events {
        self.timers.probe = Instant::NEVER;
        self.probe.owed = true;
        self.timers.retransmit = self.retransmit_deadline(now);
        Events::TRANSMIT
    }

    /// TLP_send_probe: new data if there is some and the peer has room, else the last segment again.
    /// The congestion window is not asked; what leaves counts in the pipe.
    pub(crate) fn next_tail_probe(
        &mut self,
        new_data: Option<Stretch>,
        segment: u64,
    ) -> Option<(Stretch, bool)> {
        if self.snd.sent.is_empty() || self.probe.end > 0 {
            return None;
        }
        let stretch = new_data.unwrap_or(Stretch {
            start: self.snd.max.saturating_sub(segment).max(self.snd.una),
            end: self.snd.max,
        });
        self.probe.end = stretch.end;
        let flight = self.snd.max - self.snd.una;
        self.probe.flight = u32::try_from(flight).unwrap_or(u32::MAX);
        self.probe.is_retransmission = new_data.is_none();
        self.probe.was_sent = true;
        self.probe.samples = self.rtt.samples();
        Some((stretch, new_data.is_some()))
    }

    /// TLP_process_ack (RFC 8985 §7.4.2): what the answer to a probe says about the segment before it.
    /// Returns whether the duplicate that it reports is the probe.
    pub(crate) fn judge_probe(&mut self, feedback: &Feedback) -> bool {
        let probe = self.probe;
        if probe.end == 0 || self.snd.una < probe.end {
            return false;
        }
        let was_duplicate = feedback.duplicate.is_some_and(|(_, end)| end == probe.end);
        if !probe.is_retransmission || was_duplicate {
            self.probe.end = 0;
        } else if self.snd.una > probe.end {
            // The probe repaired the loss: congestion control hears of it all the same.
            self.probe.end = 0;
            let mut event = self.congestion_event(Cause::Loss, 0);
            event.flight = probe.flight;
            self.congestion.on_congestion_event(&event);
        } else if feedback.is_duplicate && !feedback.has_blocks {
            // Both copies arrived, and the peer does not send D-SACKs.
            self.probe.end = 0;
        }
        was_duplicate
    }
}
