//! What an ACK says about delivery: how much arrived and how fast, whether the window or the program was
//! the limit, where rounds begin. The input of congestion control.
//!
//! Delivery rates follow draft-ietf-ccwg-bbr §4.1. Instead of every segment a few of each flight carry the
//! figures of their departure: a connection stays small, and some samples a round trip are all that the
//! algorithms look at.

use crate::{
    congestion::{AckSample, Cause, CongestionEvent, RateSample},
    connection::Connection,
    flight_pool::FlightPool,
    recovery::Phase,
    sent::Table,
    time::{Duration, Instant},
    transmit::Stretch,
};
use wire::tcp::Header;
use zerocopy::{FromBytes, FromZeros, Immutable, KnownLayout};

/// Segments of a flight that are sampled.
const SNAPSHOTS: usize = 6;
/// In [`Rate::used`]: the window was the limit.
const FULLY: u32 = u32::MAX;
/// In [`Snapshot::in_flight`]: the program was the limit.
const APP_LIMITED: u32 = 1 << 31;

/// Figures at the departure of a segment. Positions, counters and microseconds modulo 2^32: none is older
/// than a flight.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Snapshot {
    /// One past the segment's last position.
    end: u32,
    sent_us: u32,
    /// C.delivered, C.delivered_time, C.first_sent_time and C.lost then.
    delivered: u32,
    delivered_us: u32,
    first_sent_us: u32,
    lost: u32,
    /// With this segment, and [`APP_LIMITED`]; 0: the slot is free.
    in_flight: u32,
}

/// Counters of delivery.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Rate {
    /// C.delivered: bytes known to have arrived, cumulatively or selectively.
    delivered: u64,
    /// The round ends when this position is acknowledged.
    round_end: u64,
    /// Until this position is acknowledged `used` holds.
    used_end: u64,
    /// C.app_limited, as a value of `delivered`; 0: the program is not the limit.
    app_limited_until: u64,
    /// End of the last segment that was sampled.
    sampled_end: u64,
    /// The last delivery rate, bytes per second.
    latest: u64,
    /// C.lost at the last ACK.
    lost: u32,
    /// 1: `latest` is of a time when the window was the limit and the program was not.
    latest_is_full: u32,
    /// The most that was in flight at once lately, bytes; [`FULLY`]: all that the window allows.
    used: u32,
    /// C.delivered_time and C.first_sent_time.
    delivered_us: u32,
    first_sent_us: u32,
    snapshots: [Snapshot; SNAPSHOTS],
}

impl Rate {
    /// Data waits that the window holds back; `max` is the highest position sent.
    pub fn on_cwnd_limited(&mut self, max: u64) {
        self.used_end = max;
        self.used = FULLY;
    }

    /// `stretch` leaves: how much of the window is in use (RFC 7661 §4.1 in spirit, Linux `tcp_cwnd_validate`).
    pub fn note_use(&mut self, una: u64, stretch: Stretch, flight: &Flight) {
        let all = bytes(flight.in_flight + (stretch.end - stretch.start)).min(FULLY - 1);
        let used = if all >= flight.cwnd { FULLY } else { all };
        if una >= self.used_end || used > self.used || used == FULLY {
            self.used_end = stretch.end;
            self.used = used;
        }
    }

    /// Whether a window of `cwnd` was used when `una` was the oldest in flight. In slow start half of it is enough, because the ACKs of one half arrive
    /// while the other is sent.
    fn is_window_used(&self, una: u64, cwnd: u32, in_slow_start: bool) -> bool {
        self.used == FULLY && una < self.used_end
            || in_slow_start && u64::from(cwnd) < 2 * u64::from(self.used)
    }

    /// The program has nothing more to send and the window has room (§4.1.2.4).
    pub fn on_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// The last delivery rate, bytes per second; 0 before the first.
    pub const fn latest(&self) -> u64 {
        self.latest
    }

    /// Whether the program was the limit of what [`Self::latest`] says, or nothing was measured.
    pub const fn is_latest_app_limited(&self) -> bool {
        self.latest_is_full == 0
    }

    /// New data, `[start, end)`, leaves with `in_flight` bytes before it (§4.1.2.2).
    pub fn on_sent(&mut self, now: Instant, stretch: Stretch, flight: &Flight) {
        let (Stretch { start, end }, in_flight) = (stretch, flight.in_flight);
        if in_flight == 0 {
            self.first_sent_us = low(now.as_us());
            self.delivered_us = self.first_sent_us;
        }
        let spacing = u64::from(flight.cwnd) / SNAPSHOTS as u64;
        let is_only = self.snapshots.iter().all(|one| one.in_flight == 0);
        if !is_only && end < self.sampled_end + spacing {
            return;
        }
        let Some(free) = self.snapshots.iter_mut().find(|one| one.in_flight == 0) else {
            return;
        };
        self.sampled_end = end;
        let app_limited = if self.app_limited_until > 0 {
            APP_LIMITED
        } else {
            0
        };
        *free = Snapshot {
            end: low(end),
            sent_us: low(now.as_us()),
            delivered: low(self.delivered),
            delivered_us: self.delivered_us,
            first_sent_us: self.first_sent_us,
            lost: low(flight.lost),
            in_flight: bytes(in_flight + (end - start)).clamp(1, APP_LIMITED - 1) | app_limited,
        };
    }

    /// `[start, end)` is sent again: its ACK will be ambiguous.
    pub fn on_sent_again(&mut self, start: u64, end: u64) {
        for one in &mut self.snapshots {
            if u64::from(one.end.wrapping_sub(low(start)).wrapping_sub(1)) < end - start {
                one.in_flight = 0;
            }
        }
    }

    /// Takes the snapshot of the segment that left last among those that have arrived (§4.1.2.3).
    fn take_newest(&mut self, has_arrived: impl Fn(u32) -> bool) -> Option<Snapshot> {
        let mut newest: Option<Snapshot> = None;
        for one in &mut self.snapshots {
            if one.in_flight == 0 || !has_arrived(one.end) {
                continue;
            }
            if newest.is_none_or(|other| is_after(one.end, other.end)) {
                newest = Some(*one);
            }
            one.in_flight = 0;
        }
        newest
    }

    /// GenerateRateSample (§4.1.2.3).
    fn sample(&mut self, taken: Snapshot, now: Instant, min_rtt_us: u64) -> RateSample {
        let now_us = low(now.as_us());
        let delivered = low(self.delivered).wrapping_sub(taken.delivered);
        let send_us = taken.sent_us.wrapping_sub(taken.first_sent_us);
        let ack_us = now_us.wrapping_sub(taken.delivered_us);
        self.first_sent_us = taken.sent_us;
        // The longer of both: neither a burst sent nor a burst of ACKs makes the path look faster.
        let interval_us = u64::from(send_us.max(ack_us));
        let rate = if interval_us < min_rtt_us.max(1) {
            0
        } else {
            u64::from(delivered) * 1_000_000 / interval_us
        };
        let app_limited = taken.in_flight & APP_LIMITED != 0;
        // As Linux tells it (`tcp_rate_gen`): what the program held back says only that the path is no slower.
        if rate > 0 && (!app_limited || rate >= self.latest) {
            self.latest = rate;
            self.latest_is_full = u32::from(!app_limited);
        }
        RateSample {
            rate,
            delivered,
            prior_delivered: self.delivered - u64::from(delivered),
            tx_in_flight: taken.in_flight & !APP_LIMITED,
            lost: self.lost.wrapping_sub(taken.lost),
            app_limited,
        }
    }
}

/// What is in flight when a segment leaves, without it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub in_flight: u64,
    pub cwnd: u32,
    /// C.lost: bytes that ever counted as lost.
    pub lost: u64,
}

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

    /// Tells congestion control about one ACK, after everything else has judged it.
    pub(crate) fn congestion_on_ack(
        &mut self,
        now: Instant,
        header: &Header,
        before: &DeliveryMark,
        pool: &mut dyn FlightPool,
    ) {
        let delivered = self.delivered_since(before);
        let acked = self.snd.una - before.una;
        let ece = self.marked_bytes(header, bytes(delivered));
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
        let event = self.congestion_event(Cause::Ecn, acked);
        self.congestion.on_ack(&sample);
        if ece > 0 {
            self.react_to_marks(sample.in_recovery, &event);
        }
    }

    fn rate_sample(
        &mut self,
        now: Instant,
        delivered: u64,
        pool: &mut dyn FlightPool,
    ) -> Option<RateSample> {
        let rate = &mut self.rate;
        rate.delivered += delivered;
        if rate.delivered > rate.app_limited_until {
            rate.app_limited_until = 0;
        }
        let una = self.snd.una;
        let holds_some = self.snd.sent.sacked() > 0;
        let table = holds_some.then(|| self.snd.sent.table(pool));
        let taken = rate.take_newest(|end| {
            let ahead = end.wrapping_sub(low(una));
            // Negative: at or below SND.UNA.
            let is_held =
                |table: &Table<'_>| table.is_sacked((una + u64::from(ahead)).saturating_sub(1));
            ahead == 0 || ahead > u32::MAX / 2 || table.as_ref().is_some_and(is_held)
        });
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

fn bytes(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn low(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Whether `a` comes after `b`, both modulo 2^32.
fn is_after(a: u32, b: u32) -> bool {
    let distance = a.wrapping_sub(b);
    distance != 0 && distance <= u32::MAX / 2
}
