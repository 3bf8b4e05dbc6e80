//! What to send next (RFC 9293 §3.8.6.2.1, §3.7.4): retransmissions first, then new data as far as
//! both windows, Nagle and the sender's silly-window rule allow, then probes, then a bare ACK.

pub(crate) mod flight_pool;
pub(crate) mod pacing;
pub(crate) mod plain;
pub(crate) mod pmtud;
pub(crate) mod segment;
pub(crate) mod sender;
pub(crate) mod sent;
pub(crate) mod transmit;

use crate::{
    chrono::Doing,
    connection::Connection,
    recovery::{phase::Phase, rate::Flight},
    send::{
        flight_pool::FlightPool,
        pmtud::PathProbe,
        segment::{Stretch, Transmit, TransmitLimits},
    },
    state::{FastOpen, State},
    time::{Duration, Instant},
    timers::CORK_LIMIT,
};
use wire::tcp::Header;

impl Connection {
    /// The next segment to send at `now`, or `None`. Call until `None` or until the device is busy.
    /// `blocks` lends what the connection needs to remember a long flight.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        limits: &TransmitLimits,
        pool: &mut dyn FlightPool,
    ) -> Option<Transmit> {
        let may_transmit = self.may_transmit();
        let transmit = self.next_transmit(now, limits, pool)?;
        debug_assert!(may_transmit, "invariant: who owes nothing sends nothing");
        self.counters.count_out(transmit.len, transmit.segment_size);
        Some(transmit)
    }

    /// Whether [`Self::poll_transmit`] could have something to send: false for a connection that owes nothing.
    pub fn may_transmit(&self) -> bool {
        if self.reset_owed | self.reset_reply_owed {
            return true;
        }
        match self.state {
            State::Established | State::CloseWait => {
                self.snd.end() > self.snd.una || self.rcv.ack_now | self.snd.probe_owed
            }
            State::Closed => false,
            State::SynSent => self.snd.nxt == 0,
            State::SynReceived => {
                self.snd.nxt == 0 || self.rcv.ack_now || self.fast_open == FastOpen::Serving
            }
            _ => true,
        }
    }

    fn next_transmit(
        &mut self,
        now: Instant,
        limits: &TransmitLimits,
        pool: &mut dyn FlightPool,
    ) -> Option<Transmit> {
        if self.reset_owed || self.reset_reply_owed {
            // The last ACK of the handshake goes before a reset (`abort`).
            if self.state == State::Closed && self.rcv.ack_now {
                return Some(self.transmit_empty(now, self.snd.max));
            }
            return self.transmit_reset(now);
        }
        match self.state {
            State::Closed => None,
            State::SynSent => self.transmit_syn(now, limits.mss),
            State::SynReceived => self
                .transmit_syn(now, limits.mss)
                .or_else(|| self.transmit_early(now, limits, pool)),
            State::TimeWait => self.transmit_owed_ack(now),
            _ => self
                .transmit_data(now, limits, pool)
                .or_else(|| self.transmit_probe(now))
                .or_else(|| self.transmit_owed_ack(now)),
        }
    }

    pub(crate) fn transmit_data(
        &mut self,
        now: Instant,
        limits: &TransmitLimits,
        pool: &mut dyn FlightPool,
    ) -> Option<Transmit> {
        if self.snd.end() <= self.snd.una {
            return None;
        }
        if self.is_all_out() {
            self.note_all_out();
            return None;
        }
        let segment = self.segment_room(now, limits);
        if self.probe.owed
            && let Some(probe) = self.transmit_tail_probe(now, segment, limits, pool)
        {
            return Some(probe);
        }
        let mut allowance = self.pacing_allowance(now)?;
        if self.must_send_singly() {
            allowance = allowance.min(segment);
        }
        let usable = u64::from(self.congestion.cwnd())
            .saturating_sub(self.pipe())
            .min(allowance);
        if let Some(stretch) = self.next_retransmission(segment, usable, limits, pool) {
            self.on_retransmitted(now, stretch, segment, pool);
            return Some(self.transmit_stretch(now, stretch, segment));
        }
        let mut transmit = match self.transmit_path_probe(now, segment, usable, limits, pool) {
            PathProbe::Leaves(probe) => probe,
            PathProbe::Waits => return None,
            PathProbe::No => {
                let stretch = self.next_new_data(now, segment, usable, limits)?;
                self.on_sent(now, stretch, segment, pool);
                self.transmit_stretch(now, stretch, segment)
            }
        };
        transmit.ecn = self.data_mark();
        self.tell_reduced(&mut transmit.header);
        Some(transmit)
    }

    /// The program is the limit, if the window has room.
    pub(crate) fn note_all_out(&mut self) {
        if u64::from(self.congestion.cwnd()) > self.pipe() {
            self.rate.on_app_limited(self.pipe());
        }
    }

    /// All there is has left, and nothing asks for a part of it again: the short way out of the search for what
    /// to send, for those that nothing else would hold up.
    fn is_all_out(&self) -> bool {
        self.snd.max >= self.snd.end()
            && self.snd.sent.lost() == 0
            && !self.probe.owed
            && self.search.is_off()
            && self.pacing_rate().is_none()
    }

    /// RFC 8985 §7.3: one segment, whatever the congestion window says.
    fn transmit_tail_probe(
        &mut self,
        now: Instant,
        segment: u64,
        limits: &TransmitLimits,
        pool: &mut dyn FlightPool,
    ) -> Option<Transmit> {
        self.probe.owed = false;
        let new_data = self.next_new_data(now, segment, segment, limits);
        let (stretch, is_new) = self.next_tail_probe(new_data, segment)?;
        if is_new {
            self.on_sent(now, stretch, segment, pool);
        } else {
            self.on_retransmitted(now, stretch, segment, pool);
        }
        Some(self.transmit_stretch(now, stretch, segment))
    }

    /// Payload of a full segment: the smaller of the peer's MSS and the path's, less our options
    /// (RFC 6691 §2).
    #[inline]
    pub(crate) fn segment_room(&mut self, now: Instant, limits: &TransmitLimits) -> u64 {
        let mss = self.search.limit(limits.mss);
        let room = self.plain_segment_room(&TransmitLimits { mss, ..*limits });
        if !self.rcv.has_blocks() {
            return room;
        }
        let mss = self.snd.mss.min(mss);
        let options = Header {
            options: self.segment_options(now),
            ..Header::default()
        };
        let options_len = u16::try_from(options.header_len() - Header::LEN).unwrap_or(0);
        u64::from(mss.saturating_sub(options_len).max(1))
    }

    /// [`Self::segment_room`] beside timestamps alone, of a path that is not searched.
    #[inline(always)]
    pub(crate) fn plain_segment_room(&mut self, limits: &TransmitLimits) -> u64 {
        let mss = self.snd.mss.min(limits.mss);
        let timestamps_len = if self.rcv.timestamps { 12 } else { 0 };
        self.snd.segment_payload = mss.saturating_sub(timestamps_len).max(1);
        self.congestion.set_mss(u32::from(self.snd.segment_payload));
        u64::from(self.snd.segment_payload)
    }

    /// NextSeg rule 2 of RFC 6675, limited transmit (RFC 3042: what is held or was reported by duplicate ACKs
    /// left the pipe), and everything outside recovery.
    #[inline(always)]
    pub(crate) fn next_new_data(
        &mut self,
        now: Instant,
        segment: u64,
        usable: u64,
        limits: &TransmitLimits,
    ) -> Option<Stretch> {
        let start = self.snd.max;
        let room = self.snd.window_edge().saturating_sub(start);
        if start >= self.snd.written {
            if usable > 0 {
                self.rate.on_app_limited(self.pipe());
            }
            return self.lone_fin(now, start, room);
        }
        // No segment goes beyond the end of a record.
        let record_end = self.snd.record_end(start);
        let available = record_end.unwrap_or(self.snd.written) - start;
        let mut allowed = available
            .min(room)
            .min(burst(usable, segment, limits).min(usable));
        if allowed > 2 * segment {
            allowed = allowed.min(self.largest_train(segment));
        }
        let len = if allowed == available && record_end.is_some() {
            // More was written, but nothing that could go along.
            allowed
        } else if allowed == available {
            self.length_to_the_end(now, allowed, segment)
        } else if allowed >= segment {
            allowed - allowed % segment
        } else {
            self.length_of_partial(allowed, room, segment)
        };
        if len == 0 {
            if usable < segment && room >= segment {
                self.rate.on_cwnd_limited(self.snd.max);
            }
            if room < segment.min(available) {
                self.chrono.turn_to(now, Doing::WindowLimited);
                self.arm_persist(now);
            }
            return None;
        }
        let end = start + len;
        let takes_fin = end == self.snd.written && self.snd.fin_requested && room > len;
        Some(Stretch {
            start,
            end: end + u64::from(takes_fin),
        })
    }

    fn lone_fin(&mut self, now: Instant, start: u64, room: u64) -> Option<Stretch> {
        if !self.snd.fin_requested || start != self.snd.written {
            return None;
        }
        if room == 0 {
            self.arm_persist(now);
            return None;
        }
        Some(Stretch {
            start,
            end: start + 1,
        })
    }

    /// How much leaves as one train, in whole segments, as on Linux, whose receivers see its end by a PSH: half of the
    /// window at most (`tcp_cwnd_test`), and about a millisecond of the rate on paths that are not short
    /// (`tcp_tso_autosize`). A window of many segments is not cut up: what the device takes at once costs least.
    fn largest_train(&self, segment: u64) -> u64 {
        let cwnd = u64::from(self.congestion.cwnd());
        if cwnd > TRAIN_WINDOW_SEGMENTS * segment {
            return u64::MAX;
        }
        let half = (cwnd / 2 / segment).max(1) * segment;
        let (Some(min_rtt), Some(srtt_us)) = (self.rtt.min_rtt(), self.rtt.srtt_us()) else {
            return half;
        };
        let halvings = min_rtt.as_us() / TRAIN_HALVED_US;
        if halvings == 0 {
            return half;
        }
        let percent = if cwnd < u64::from(self.congestion.ssthresh()) / 2 {
            200
        } else {
            120
        };
        let used = cwnd.max(self.snd.max - self.snd.una);
        let rate = used * percent * 10_000 / srtt_us.max(1);
        let near = u32::try_from(halvings)
            .ok()
            .and_then(|by| TRAIN_MAX.checked_shr(by));
        let bytes = rate / 1_024 + near.unwrap_or(0);
        let least = u64::from(self.options.min_train_segments.max(1));
        half.min((bytes / segment).max(least) * segment)
    }

    /// All that is left fits: does its partial last segment go too (Nagle, cork)?
    fn length_to_the_end(&mut self, now: Instant, allowed: u64, segment: u64) -> u64 {
        let partial = allowed % segment;
        if partial == 0 || self.may_send_partial(now) {
            allowed
        } else {
            allowed - partial
        }
    }

    /// RFC 9293 §3.8.6.2.1 condition (3), and its override timeout.
    fn length_of_partial(&self, allowed: u64, room: u64, segment: u64) -> u64 {
        let window_is_small = room < segment && allowed == room;
        let worthwhile = 2 * allowed >= self.snd.max_window || self.snd.probe_owed;
        if window_is_small && worthwhile {
            allowed
        } else {
            0
        }
    }

    fn may_send_partial(&mut self, now: Instant) -> bool {
        if self.snd.fin_requested || self.snd.is_pushed {
            return true;
        }
        if self.is_held_back() {
            if !self.timers.cork.is_set() {
                self.timers.cork = now + CORK_LIMIT;
            }
            return self.timers.cork <= now;
        }
        self.passes_nagle()
    }

    /// The program has said that more will follow.
    pub(crate) const fn is_held_back(&self) -> bool {
        self.options.cork || self.more_follows
    }

    /// RFC 9293 §3.7.4 as Minshall refined it: only one small segment at a time is on its way.
    pub(crate) const fn passes_nagle(&self) -> bool {
        self.options.nodelay || self.snd.small_end <= self.snd.una
    }

    pub(crate) fn on_sent(
        &mut self,
        now: Instant,
        stretch: Stretch,
        segment: u64,
        pool: &mut dyn FlightPool,
    ) {
        self.on_sent_in_pieces(now, stretch, segment, stretch.end - stretch.start, pool);
    }

    /// New data leaves, `piece` bytes at a time: each has its own sample of the delivery rate.
    #[inline(always)]
    pub(crate) fn on_sent_in_pieces(
        &mut self,
        now: Instant,
        stretch: Stretch,
        segment: u64,
        piece: u64,
        pool: &mut dyn FlightPool,
    ) {
        let flight = Flight {
            in_flight: self.pipe(),
            cwnd: self.congestion.cwnd(),
            lost: self.recovery.lost,
        };
        let mut each = flight;
        let mut start = stretch.start;
        while start < stretch.end {
            let end = stretch.end.min(start + piece);
            self.rate.on_sent(now, Stretch { start, end }, &each);
            each.in_flight += end - start;
            start = end;
        }
        self.note_sent(now, stretch, segment, piece > segment, &flight, pool);
    }

    /// What is kept of new data that leaves, but for samples of the delivery rate.
    #[inline(always)]
    fn note_sent(
        &mut self,
        now: Instant,
        stretch: Stretch,
        segment: u64,
        is_train: bool,
        flight: &Flight,
        pool: &mut dyn FlightPool,
    ) {
        self.chrono.on_sending(now);
        self.rate.note_use(self.snd.una, stretch, flight);
        self.on_departed(now, stretch.end - stretch.start);
        let at = self.rack.depart(now, stretch.end);
        let snd = &mut self.snd;
        if snd.sent.is_empty() {
            self.timers.oldest_sent = now;
        }
        let quantum = || self.rtt.srtt().map_or(Duration::ZERO, run_quantum);
        snd.sent.append(at, stretch, quantum, pool);
        snd.nxt = stretch.end;
        snd.max = stretch.end;
        if is_train {
            snd.trains.add(stretch.start, stretch.end);
        }
        snd.probe_owed = false;
        if !(stretch.end - stretch.start).is_multiple_of(segment) {
            snd.small_end = stretch.end;
        }
        if self.recovery.phase == Phase::Fast {
            self.prr.on_sent(stretch.end - stretch.start);
        }
        self.timers.cork = Instant::NEVER;
        if !self.timers.unacknowledged_since.is_set() {
            self.timers.unacknowledged_since = now;
        }
        // RFC 6298 §5.1.
        if !self.timers.retransmit.is_set() || self.timers.persisting {
            self.timers.retries = 0;
            self.arm_retransmit(now);
        }
        self.arm_probe(now);
    }

    /// RFC 5681 §4.1.
    #[inline]
    pub(crate) fn restart_after_idle(&mut self, now: Instant) {
        if self.snd.max == self.snd.una {
            let long = now.since(self.timers.last_sent) > self.rtt.rto();
            self.congestion.on_idle(now, long);
        }
    }

    /// A zero-window or keep-alive probe: an old sequence number that the peer must answer
    /// (RFC 9293 §3.8.4 and §3.8.6.1; see docs/rfc.md for why it carries no byte).
    fn transmit_probe(&mut self, now: Instant) -> Option<Transmit> {
        if !core::mem::take(&mut self.snd.probe_owed) {
            return None;
        }
        Some(self.transmit_empty(now, self.snd.una - 1))
    }

    pub(crate) fn transmit_owed_ack(&mut self, now: Instant) -> Option<Transmit> {
        if !self.rcv.ack_now {
            return None;
        }
        if self.rcv.since_due > 0 {
            return Some(self.transmit_earlier_ack(now));
        }
        let more = self.rcv.duplicate_acks_owed;
        let transmit = self.transmit_empty(now, self.snd.max);
        self.rcv.duplicate_acks_owed = more.saturating_sub(1);
        self.rcv.ack_now = more > 0;
        Some(transmit)
    }

    /// RFC 5681 §4.2: segments that came in one batch were due more than one ACK. Where one that is lost would leave a
    /// small window waiting for a timer, the last but one of them leaves too.
    fn transmit_earlier_ack(&mut self, now: Instant) -> Transmit {
        let next = self.rcv.nxt;
        self.rcv.nxt = next - u64::from(self.rcv.since_due);
        let transmit = self.transmit_empty(now, self.snd.max);
        self.rcv.nxt = next;
        self.rcv.ack_now = true;
        transmit
    }
}

/// Segments that leave within this time are one run of the table of what is in flight: fine enough to
/// tell one from another by time, coarse enough for a whole window.
fn run_quantum(srtt: Duration) -> Duration {
    Duration::from_us(srtt.as_us() / 32).min(MAX_QUANTUM)
}

/// A train is as long as the device takes on a path shorter than this, and half for each time that it is longer.
const TRAIN_HALVED_US: u64 = 512;
const TRAIN_MAX: u64 = 64 * 1024;
/// Windows up to this are cut into trains.
const TRAIN_WINDOW_SEGMENTS: u64 = 10;

/// What a run can say of its spread.
const MAX_QUANTUM: Duration = Duration::from_ms(32);

/// At most `bytes`, in whole segments, and no more than the device takes at once.
pub(crate) fn burst(bytes: u64, segment: u64, limits: &TransmitLimits) -> u64 {
    let segments = (u64::from(limits.max_payload) / segment).max(1);
    bytes.min(segments * segment)
}
