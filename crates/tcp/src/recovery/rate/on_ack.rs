//! One ACK, as congestion control is told of it.

use super::{FULLY, bytes, low};
use crate::{
    congestion::{AckSample, Cause, CongestionEvent, RateSample},
    connection::Connection,
    recovery::phase::Phase,
    send::flight_pool::FlightPool,
    time::{Duration, Instant},
};

/// Where delivery stood before an ACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryMark {
    una: u64,
    arrived: u64,
    rtt_samples: u32,
}

impl Connection {
    pub(crate) fn delivery_mark(&self) -> DeliveryMark {
        DeliveryMark {
            una: self.snd.una,
            arrived: self.arrived(),
            rtt_samples: self.rtt.samples(),
        }
    }

    /// A figure that grows by what an ACK reports: positions below SND.UNA, and beyond it what is SACKed
    /// or, without SACK, one segment for each duplicate ACK.
    fn arrived(&self) -> u64 {
        let beyond = if self.rcv.sack {
            self.snd.sent.sacked()
        } else {
            let segment = u64::from(self.snd.segment_payload);
            (u64::from(self.snd.duplicate_acks) * segment).min(self.snd.max - self.snd.una)
        };
        self.snd.una + beyond
    }

    /// Bytes newly known to have arrived since `before`.
    pub(crate) fn delivered_since(&self, before: &DeliveryMark) -> u64 {
        self.arrived().saturating_sub(before.arrived)
    }

    /// Tells congestion control about one ACK, after everything else has judged it. `ece` bytes of what it reports were
    /// marked.
    pub(crate) fn congestion_on_ack(
        &mut self,
        now: Instant,
        ece: u32,
        before: &DeliveryMark,
        pool: &mut dyn FlightPool,
    ) {
        self.congestion_on_any_ack(now, ece, before, Some(pool));
    }

    /// [`Self::congestion_on_ack`] without marks, of a flight of which nothing was reported selectively, where it is made for
    /// the short way.
    #[inline]
    pub(crate) fn congestion_on_calm_ack(&mut self, now: Instant, before: &DeliveryMark) {
        self.congestion_on_any_ack(now, 0, before, None);
    }

    #[inline(always)]
    fn congestion_on_any_ack(
        &mut self,
        now: Instant,
        ece: u32,
        before: &DeliveryMark,
        pool: Option<&mut dyn FlightPool>,
    ) {
        let delivered = self.delivered_since(before);
        let acked = self.snd.una - before.una;
        if delivered == 0 && acked == 0 {
            return;
        }
        let all_lost = low(self.recovery.lost);
        let lost = all_lost.wrapping_sub(self.rate.lost);
        self.rate.lost = all_lost;
        let round_start = self.snd.una >= self.rate.round_end;
        if round_start {
            self.rate.round_end = self.snd.max;
        }
        // RFC 5681 §3.1: a window that was not used does not grow.
        let cwnd = self.congestion.cwnd();
        let in_slow_start = cwnd < self.congestion.ssthresh();
        let cwnd_limited = self.rate.is_window_used(before.una, cwnd, in_slow_start);
        let rate = self.rate_sample(now, delivered, pool);
        let is_timed = self.rtt.samples() != before.rtt_samples;
        let sample = AckSample {
            now,
            // What was reported selectively before is no news, and no reason to grow, once it is passed.
            acked: bytes(acked.min(delivered)),
            delivered: bytes(delivered),
            rate,
            delivered_total: self.rate.delivered,
            lost,
            ece,
            rtt: is_timed.then(|| self.rtt.latest()),
            srtt_us: self.rtt.srtt_us().unwrap_or(0),
            in_flight: bytes(self.pipe()),
            cwnd_limited,
            in_recovery: self.recovery.phase == Phase::Fast,
            round_start,
        };
        // RFC 3168 §6.1.2: an ACK that echoes a mark is no reason to grow, so it is the window before it that shrinks.
        let event = (ece > 0).then(|| self.congestion_event(Cause::Ecn, acked));
        self.congestion.on_ack(&sample);
        if let Some(event) = event {
            self.react_to_marks(sample.in_recovery, &event);
        }
    }

    #[inline(always)]
    fn rate_sample(
        &mut self,
        now: Instant,
        delivered: u64,
        pool: Option<&mut dyn FlightPool>,
    ) -> Option<RateSample> {
        let rate = &mut self.rate;
        rate.delivered += delivered;
        if rate.delivered > rate.app_limited_until {
            rate.app_limited_until = 0;
        }
        let una = self.snd.una;
        let pool = pool.filter(|_| self.snd.sent.sacked() > 0);
        let table = pool.map(|pool| self.snd.sent.table(pool));
        let taken = rate.take_newest(una, table.as_ref());
        let min_rtt_us = self.rtt.min_rtt().map_or(0, Duration::as_us);
        let sample = taken.map(|taken| rate.sample(taken, now, min_rtt_us));
        rate.delivered_us = low(now.as_us());
        sample
    }

    /// Congestion, seen in an ACK that freed `acked` bytes or by a timer.
    ///
    /// RFC 5681 §3.1 equation (4) counts what was in flight then; what limited transmit added is not part of it
    /// (§3.2 step 2). While the window is the limit it is full each time that we answer an ACK, and what a batch
    /// of them has left of the flight says only how many we were given at once: so the window itself counts, as
    /// RFC 9438 §4.6 allows and Linux does. Where the program or the peer is the limit, the flight does.
    pub(crate) fn congestion_event(&self, cause: Cause, acked: u64) -> CongestionEvent {
        let cwnd = self.congestion.cwnd();
        let flight = if self.rate.used == FULLY && self.snd.una < self.rate.used_end {
            cwnd
        } else {
            bytes(self.snd.max - self.snd.una + acked).min(cwnd)
        };
        CongestionEvent { cause, flight }
    }
}
