//! What an ACK says about delivery: how much arrived, whether the window or the program was the limit,
//! where rounds begin. The input of congestion control.

use crate::{
    congestion::{AckSample, Cause, CongestionEvent},
    connection::Connection,
    recovery::Phase,
    time::Instant,
};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// Counters of delivery.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Rate {
    /// Bytes known to have arrived, cumulatively or selectively.
    delivered: u64,
    /// The round ends when this position is acknowledged.
    round_end: u64,
    /// Below this position everything was sent while the window held data back.
    limited_end: u64,
}

impl Rate {
    /// Data waits that the window holds back; `max` is the highest position sent.
    pub fn on_cwnd_limited(&mut self, max: u64) {
        self.limited_end = max;
    }
}

/// Where delivery stood before an ACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryMark {
    una: u64,
    arrived: u64,
    flight: u64,
    rtt_samples: u32,
}

impl Connection {
    pub(crate) fn delivery_mark(&self) -> DeliveryMark {
        DeliveryMark {
            una: self.snd.una,
            arrived: self.arrived(),
            flight: self.snd.max - self.snd.una,
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

    /// Tells congestion control about one ACK, after everything else has judged it.
    pub(crate) fn congestion_on_ack(&mut self, now: Instant, before: &DeliveryMark) {
        let delivered = self.delivered_since(before);
        let acked = self.snd.una - before.una;
        if delivered == 0 && acked == 0 {
            return;
        }
        self.rate.delivered += delivered;
        let round_start = self.snd.una >= self.rate.round_end;
        if round_start {
            self.rate.round_end = self.snd.max;
        }
        // RFC 5681 §3.1 with RFC 7661 §4.1 in spirit: a window that was not used does not grow. In slow
        // start half of it is enough, because the ACKs of one half arrive while the other is sent.
        let in_slow_start = self.congestion.cwnd() < self.congestion.ssthresh();
        let cwnd_limited = before.una < self.rate.limited_end
            || (in_slow_start && 2 * before.flight >= u64::from(self.congestion.cwnd()));
        let sample = AckSample {
            now,
            acked: bytes(acked),
            delivered: bytes(delivered),
            rtt: (self.rtt.samples() != before.rtt_samples).then(|| self.rtt.latest()),
            in_flight: bytes(self.pipe()),
            cwnd_limited,
            in_recovery: self.recovery.phase == Phase::Fast,
            round_start,
        };
        self.congestion.on_ack(&sample);
    }

    pub(crate) fn congestion_event(&self, now: Instant, cause: Cause) -> CongestionEvent {
        CongestionEvent {
            now,
            cause,
            flight: bytes(self.snd.max - self.snd.una),
        }
    }
}

fn bytes(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
