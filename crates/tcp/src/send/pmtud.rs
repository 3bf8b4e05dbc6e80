//! The path MTU when routers say nothing: a black hole is found by timeouts of full segments, and the way
//! back up by probes, segments of data larger than what is known to pass (RFC 4821, RFC 8899 §5; Linux
//! `tcp_mtu_probing` = 1).
//!
//! Sizes are as MSS: what a segment carries with its options. A probe is ordinary new data, sent when
//! enough follows it to show its loss at once; the loss of a probe alone is not congestion (RFC 4821
//! §7.5). What routers do say is `handle_packet_too_big`.

use crate::{
    connection::Connection,
    recovery::{phase::Phase, undo::Undo},
    send::{
        flight_pool::FlightPool,
        segment::{Stretch, Transmit, TransmitLimits},
    },
    time::Instant,
};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// What is tried when nothing larger gets through: RFC 4821 §7.2 (Linux `tcp_base_mss`), then what every
/// path must carry of IPv4 with some room (Linux `min_pmtu`).
const BASES: [u16; 2] = [1_024, 512];
/// Timeouts of a full segment in a row that are no accident: when the first and the second base is tried
/// (RFC 4821 §7.7; Linux `tcp_retries1`).
const TIMEOUTS: [u8; 2] = [3, 5];
/// A gain that is not worth a lost segment (Linux `tcp_probe_threshold` is 8; half an Ethernet FCS less).
const WORTHWHILE: u16 = 16;
/// Full segments that must be ready to leave behind a probe.
const FOLLOWERS: u64 = 4;
/// Unit of `path_search_at` of the timers, µs: 16 bits of it are three days.
const UNIT_US: u64 = 4_000_000;
/// PMTU_RAISE_TIMER of RFC 8899 §5.1.1, 600 s, in units.
const RAISE: u16 = 150;

/// What is known of a path that swallows large segments. All zero: nothing, segments are as large as the
/// interface, the peer and the routers allow.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct PathSearch {
    /// No segment but a probe is larger; 0: no limit.
    low: u16,
    /// A probe of this size was lost; 0: none was.
    high: u16,
}

impl PathSearch {
    /// Whether nothing is searched for.
    pub(crate) fn is_off(&self) -> bool {
        self.low == 0
    }

    /// `mss` as far as the path is known to carry it.
    pub const fn limit(&self, mss: u16) -> u16 {
        if self.low > 0 && self.low < mss {
            self.low
        } else {
            mss
        }
    }
}

/// What becomes of a probe now.
pub(crate) enum PathProbe {
    /// This is it.
    Leaves(Transmit),
    /// The congestion window has no room for it until something is acknowledged. Were an ordinary segment sent with each ACK,
    /// a receiver that acknowledges every segment would leave none ever (Linux `tcp_mtu_probe` returns 0).
    Waits,
    /// None is due, or what follows would not show its loss.
    No,
}

fn unit(now: Instant) -> u16 {
    let [a, b, ..] = (now.as_us() / UNIT_US).to_le_bytes();
    u16::from_le_bytes([a, b])
}

fn is_reached(now: Instant, then: u16) -> bool {
    unit(now).wrapping_sub(then) < 1 << 15
}

fn low_half(position: u64) -> u32 {
    let [a, b, c, d, ..] = position.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn is_at_or_after(position: u64, end: u32) -> bool {
    low_half(position).wrapping_sub(end) < 1 << 31
}

impl Connection {
    /// The next size to try, up to `full`, if there is one worth it.
    fn next_path_size(&mut self, now: Instant, full: u16) -> Option<u16> {
        let search = &mut self.search;
        if search.low == 0
            || self.recovery.path_probe > 0
            || !is_reached(now, self.timers.path_search_at)
        {
            return None;
        }
        if full <= search.low {
            search.low = 0; // Others have lowered it, or it has been found: there is nothing left.
            return None;
        }
        // First as before: what was lost may have been lost in the dark.
        if search.high == 0 || search.high > full {
            return Some(full);
        }
        let middle = u16::midpoint(search.low, search.high);
        if middle - search.low < WORTHWHILE {
            // RFC 8899 §5.2, SEARCH_COMPLETE: until paths may have changed.
            search.high = 0;
            self.timers.path_search_at = unit(now).wrapping_add(RAISE);
            return None;
        }
        Some(middle)
    }

    /// Everything below `snd.una` has arrived.
    pub(crate) fn end_path_probe_if_arrived(&mut self) {
        let probe = &mut self.recovery.path_probe;
        if *probe > 0 && is_at_or_after(self.snd.una, self.snd.sent.path_probe_end) {
            self.search.low = core::mem::take(probe);
        }
    }

    /// The probe in flight is lost: because of its size, unless other things were lost with it.
    fn end_path_probe(&mut self, now: Instant, is_alone: bool) {
        if is_alone {
            self.search.high = self.recovery.path_probe;
        } else {
            self.timers.path_search_at = unit(now).wrapping_add(1);
        }
        self.recovery.path_probe = 0;
    }

    /// The retransmission timer fired. Full segments that do not get through again and again may be too
    /// large for the path (RFC 4821 §7.7); returns whether they are sent smaller from now on.
    pub(crate) fn suspect_black_hole(&mut self, now: Instant) -> bool {
        if self.recovery.path_probe > 0 {
            let is_head = self.path_probe_end_from(self.snd.una).is_some();
            self.end_path_probe(now, is_head);
        }
        let options_len = self.data_options_len();
        let head = (self.snd.max - self.snd.una).min(u64::from(self.snd.segment_payload));
        let size = u16::try_from(head).unwrap_or(u16::MAX) + options_len;
        let mut steps = TIMEOUTS.into_iter().zip(BASES);
        let step = steps.find(|(timeouts, base)| self.timers.retries >= *timeouts && size > *base);
        let Some((_, base)) = step else {
            return false;
        };
        self.search = PathSearch {
            low: base,
            ..PathSearch::new_zeroed()
        };
        // The search begins when something gets through.
        self.timers.path_search_at = unit(now);
        true
    }

    /// A probe, if one is due and its loss would show at once (RFC 4821 §7.4); `segment`: the payload of an
    /// ordinary full segment, of which `usable` bytes may leave.
    pub(crate) fn transmit_path_probe(
        &mut self,
        now: Instant,
        segment: u64,
        usable: u64,
        limits: &TransmitLimits,
        pool: &mut dyn FlightPool,
    ) -> PathProbe {
        let full = self.snd.mss.min(limits.mss);
        let is_calm = self.recovery.phase == Phase::Open
            && self.snd.sent.lost() + self.snd.sent.sacked() == 0
            && self.timers.retries == 0
            && !self.rcv.has_blocks();
        if self.search.low == 0 || !is_calm {
            return PathProbe::No;
        }
        let Some(size) = self.next_path_size(now, full) else {
            return PathProbe::No;
        };
        let len = u64::from(size.saturating_sub(self.data_options_len()));
        let start = self.snd.max;
        let wanted = len + FOLLOWERS * segment;
        let available = self.snd.written.saturating_sub(start);
        let room = self.snd.window_edge().saturating_sub(start);
        let cwnd = u64::from(self.congestion.cwnd());
        let has_followers = available >= wanted && room >= wanted && cwnd >= wanted;
        if len <= segment || !has_followers {
            return PathProbe::No;
        }
        if usable < len {
            let in_flight = self.pipe();
            let is_by_cwnd = in_flight > 0 && usable == cwnd.saturating_sub(in_flight);
            return if is_by_cwnd {
                PathProbe::Waits
            } else {
                PathProbe::No
            };
        }
        let stretch = Stretch {
            start,
            end: start + len,
        };
        let small_end = self.snd.small_end;
        self.on_sent(now, stretch, segment, pool);
        self.snd.small_end = small_end; // It is not what Nagle means.
        self.recovery.path_probe = size;
        self.snd.sent.path_probe_end = low_half(stretch.end);
        PathProbe::Leaves(self.transmit_stretch(now, stretch, len))
    }

    /// A router says that no segment larger than `mss` gets through.
    pub(crate) fn end_path_probe_above(&mut self, now: Instant, mss: u16) {
        if self.recovery.path_probe > mss {
            self.end_path_probe(now, true);
        }
    }

    /// Something was found lost that was not lost until now. True: it was the probe alone, and is sent
    /// again, smaller, without a word to congestion control.
    pub(crate) fn was_only_the_probe(&mut self, now: Instant, pool: &mut dyn FlightPool) -> bool {
        if self.recovery.path_probe == 0 {
            return false;
        }
        let Some((start, end)) = self.snd.sent.next_lost(pool) else {
            return false;
        };
        let probe_end = self.path_probe_end_from(start);
        let is_alone = probe_end
            .is_some_and(|probe_end| end <= probe_end && self.snd.sent.lost() == end - start);
        self.end_path_probe(now, is_alone);
        if !is_alone {
            return false;
        }
        if let Some(probe_end) = probe_end.filter(|_| start == self.snd.una) {
            // It was one packet, whatever part of it was seen to be lost.
            let rest = self.snd.sent.table(pool).mark_front_lost(now, probe_end);
            self.note_lost(rest);
        }
        self.undo = Undo::new_zeroed();
        self.begin_loss_phase();
        true
    }

    /// Where the probe in flight ends, if `position` lies in it.
    fn path_probe_end_from(&self, position: u64) -> Option<u64> {
        let len = self
            .recovery
            .path_probe
            .saturating_sub(self.data_options_len());
        let left = self
            .snd
            .sent
            .path_probe_end
            .wrapping_sub(low_half(position));
        (1..=u32::from(len))
            .contains(&left)
            .then(|| position + u64::from(left))
    }

    fn data_options_len(&self) -> u16 {
        if self.rcv.timestamps { 12 } else { 0 }
    }
}
