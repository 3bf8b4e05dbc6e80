//! What an ACK says about delivery: how much arrived and how fast, whether the window or the program was
//! the limit, where rounds begin. The input of congestion control.
//!
//! Delivery rates follow draft-ietf-ccwg-bbr §4.1. Instead of every segment a few of each flight carry the
//! figures of their departure: a connection stays small, and some samples a round trip are all that the
//! algorithms look at.

pub(crate) mod on_ack;

use crate::{
    congestion::RateSample,
    send::{segment::Stretch, sent::Table},
    time::Instant,
};
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
    /// With this segment, and [`APP_LIMITED`].
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
    latest_is_full: u16,
    /// Which snapshots there are, a bit for each place.
    held: u16,
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
    #[inline]
    pub fn on_sent(&mut self, now: Instant, stretch: Stretch, flight: &Flight) {
        let (Stretch { start, end }, in_flight) = (stretch, flight.in_flight);
        if in_flight == 0 {
            self.first_sent_us = low(now.as_us());
            self.delivered_us = self.first_sent_us;
        }
        let spacing = u64::from(flight.cwnd) / SNAPSHOTS as u64;
        if end < self.sampled_end + spacing && self.held != 0 {
            return;
        }
        let place = self.held.trailing_ones() as usize;
        let Some(free) = self.snapshots.get_mut(place) else {
            return;
        };
        self.held |= 1 << place;
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
        for (place, one) in self.snapshots.iter().enumerate() {
            if u64::from(one.end.wrapping_sub(low(start)).wrapping_sub(1)) < end - start {
                self.held &= !(1 << place);
            }
        }
    }

    /// Takes the snapshot of the segment that left last among those that have arrived (§4.1.2.3).
    #[inline(always)]
    fn take_newest(&mut self, una: u64, table: Option<&Table<'_>>) -> Option<Snapshot> {
        let mut newest: Option<Snapshot> = None;
        let mut left = self.held;
        while let Some(one) = self.snapshots.get(left.trailing_zeros() as usize) {
            let lowest = left & left.wrapping_neg();
            left -= lowest;
            let ahead = one.end.wrapping_sub(low(una));
            // Negative: at or below SND.UNA.
            let is_below = ahead == 0 || ahead > u32::MAX / 2;
            let last = (una + u64::from(ahead)).saturating_sub(1);
            if !is_below && !table.is_some_and(|table| table.is_sacked(last)) {
                continue;
            }
            if newest.is_none_or(|other| is_after(one.end, other.end)) {
                newest = Some(*one);
            }
            self.held -= lowest;
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
            self.latest_is_full = u16::from(!app_limited);
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
