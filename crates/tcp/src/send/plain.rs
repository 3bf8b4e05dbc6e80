//! The short way of what a connection sends nearly always: new data that the windows allow, or an ACK, with a plain
//! header. What it leaves out does nothing for such a connection; the long way is `send.rs`, and a property test of
//! `stack` (`tests/tcp/prediction.rs`) holds one against the other.

use crate::{
    connection::Connection,
    recovery::{phase::Phase, rate::Flight},
    send::{
        flight_pool::FlightPool,
        segment::{Stretch, Transmit, TransmitLimits},
    },
    state::State,
    time::Instant,
};
use wire::{ecn::Ecn, tcp::Plain};

/// Segments to send whose headers are plain. Ports and checksum are the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainTransmit {
    /// Header of the first one, but for PSH, which is for the last.
    pub header: Plain,
    /// Stream offset of the payload in the send window.
    pub offset: u64,
    /// Payload length, bytes.
    pub len: u32,
    /// Of that, so much at most is handed to the device at once.
    pub piece: u32,
    /// The device must cut the payload into pieces of this size, bytes.
    pub segment_size: Option<u16>,
}

impl PlainTransmit {
    /// Payload length of what is handed to the device first, and whether it has PSH.
    #[inline(always)]
    pub fn first_piece(&self) -> (u32, bool) {
        let len = self.len.min(self.piece);
        (len, self.header.is_pushed & (len == self.len))
    }

    /// The first piece has left; whether there are more.
    #[inline(always)]
    pub fn advance(&mut self) -> bool {
        let len = self.len.min(self.piece);
        self.header.seq = self.header.seq.wrapping_add(len);
        self.offset += u64::from(len);
        self.len -= len;
        self.len > 0
    }
}

impl From<PlainTransmit> for Transmit {
    fn from(plain: PlainTransmit) -> Self {
        Self {
            header: plain.header.header(),
            offset: plain.offset,
            len: plain.len,
            segment_size: plain.segment_size,
            ecn: Ecn::NotEct,
        }
    }
}

impl Connection {
    /// What leaves next of a connection with [`Self::sends_plainly`] and [`Self::has_unsent_data`]: data, in at most
    /// `segments_max` segments, or an ACK. Segments that the device does not cut are decided upon at once all the same, and
    /// their books kept once: at one moment many small steps end where one large one does.
    // A function of its own: in the turn around it there would be too few registers for its many numbers.
    #[inline(never)]
    pub fn poll_plain(
        &mut self,
        now: Instant,
        limits: &TransmitLimits,
        segments_max: usize,
        pool: &mut dyn FlightPool,
    ) -> Option<PlainTransmit> {
        let segment = self.plain_segment_room(limits);
        if let Some(stretch) = self.lone_segment(segment) {
            self.on_lone_sent(now, stretch, segment, pool);
            return Some(self.plain_stretch(now, stretch, segment, segment));
        }
        self.poll_plain_burst(now, segment, limits, segments_max, pool)
    }

    /// What was written, where that is one segment that may leave, and nothing is in flight: a message that answers another.
    #[inline(always)]
    fn lone_segment(&self, segment: u64) -> Option<Stretch> {
        let snd = &self.snd;
        let (start, end) = (snd.max, snd.written);
        let len = end.saturating_sub(start);
        // With nothing in flight the whole window is free, and Nagle's algorithm asks for nothing.
        let may_leave = len.wrapping_sub(1) < segment
            && end <= snd.window_edge()
            && len <= u64::from(self.congestion.cwnd())
            && start == snd.una
            && snd.sent.is_empty()
            && !self.is_held_back();
        may_leave.then_some(Stretch { start, end })
    }

    /// New data leaves, in one segment, while nothing is in flight.
    #[inline(always)]
    fn on_lone_sent(
        &mut self,
        now: Instant,
        stretch: Stretch,
        segment: u64,
        pool: &mut dyn FlightPool,
    ) {
        let flight = Flight {
            in_flight: 0,
            cwnd: self.congestion.cwnd(),
            lost: self.recovery.lost,
        };
        self.rate.on_sent(now, stretch, &flight);
        self.note_sent(now, stretch, segment, false, &flight, pool);
    }

    /// [`Self::poll_plain`] of anything else.
    #[inline(never)]
    fn poll_plain_burst(
        &mut self,
        now: Instant,
        segment: u64,
        limits: &TransmitLimits,
        segments_max: usize,
        pool: &mut dyn FlightPool,
    ) -> Option<PlainTransmit> {
        let by_device = u64::from(limits.max_payload) >= 2 * segment;
        let mut limits = *limits;
        // Without SACK the pipe is estimated anew for each segment.
        if !by_device && self.rcv.sack {
            let segments = u32::try_from(segments_max).unwrap_or(1);
            limits.max_payload = segments * u32::from(self.snd.segment_payload);
        }
        let usable = u64::from(self.congestion.cwnd()).saturating_sub(self.pipe());
        if let Some(stretch) = self.next_new_data(now, segment, usable, &limits) {
            let piece = if by_device {
                stretch.end - stretch.start
            } else {
                segment
            };
            self.on_sent_in_pieces(now, stretch, segment, piece, pool);
            return Some(self.plain_stretch(now, stretch, segment, piece));
        }
        self.rcv.ack_now.then(|| self.take_ack(now))
    }

    /// Whether a connection with [`Self::sends_plainly`] has nothing to send now. That the program is the limit is then
    /// noted, by one store that nothing can interrupt.
    #[inline]
    pub fn rests(&mut self) -> bool {
        if self.has_unsent_data() {
            return false;
        }
        if self.snd.end() > self.snd.una {
            self.note_all_out();
        }
        !self.rcv.ack_now
    }

    /// Whether something that was written has never left.
    #[inline]
    pub fn has_unsent_data(&self) -> bool {
        self.snd.max < self.snd.end()
    }

    /// The ACK that leaves now, of a connection with [`Self::sends_plainly`] that owes one.
    #[inline]
    pub fn take_ack(&mut self, now: Instant) -> PlainTransmit {
        self.counters.count_out(0, None);
        PlainTransmit {
            header: self.plain_header(now, self.snd.max, false),
            offset: 0,
            len: 0,
            piece: 0,
            segment_size: None,
        }
    }

    /// Whether what leaves is plain, until something arrives, a timer fires or the program asks for something.
    #[inline(always)]
    pub fn sends_plainly(&self) -> bool {
        let Self { snd, rcv, .. } = self;
        // One sum and no branches: nearly always all of it is asked.
        let owes = self.reset_owed
            | self.reset_reply_owed
            | self.probe.owed
            | snd.probe_owed
            | snd.fin_requested
            | self.ecn.in_use().0;
        let counts = u64::from(u8::from(owes) | snd.records | rcv.duplicate_acks_owed)
            | u64::from(rcv.since_due)
            | snd.sent.lost()
            | snd.urgent;
        self.state == State::Established
            && self.recovery.phase == Phase::Open
            && counts == 0
            && self.search.is_off()
            && !rcv.has_blocks()
            && self.is_unpaced()
    }

    #[inline(always)]
    fn plain_stretch(
        &mut self,
        now: Instant,
        stretch: Stretch,
        segment: u64,
        piece: u64,
    ) -> PlainTransmit {
        let Stretch { start, end } = stretch;
        let is_train = piece > segment;
        let is_pushed = is_train || end == self.snd.written && !self.snd.is_tail_unpushed;
        let header = self.plain_header(now, start, is_pushed);
        self.note_data_sent(now);
        let fits = "invariant: a stretch is at most max_payload long";
        let len = u32::try_from(end - start).expect(fits);
        let piece = u32::try_from(piece).expect(fits);
        let size = u16::try_from(segment).unwrap_or(u16::MAX);
        self.counters
            .count_out(len, (end - start > segment).then_some(size));
        PlainTransmit {
            header,
            offset: start - 1,
            len,
            piece,
            segment_size: is_train.then_some(size),
        }
    }

    #[inline]
    fn plain_header(&mut self, now: Instant, position: u64, is_pushed: bool) -> Plain {
        let header = Plain {
            seq: self.snd.space.wire(position),
            ack: self.rcv.space.wire(self.rcv.nxt),
            window: self.take_window_field(),
            is_pushed,
            timestamps: self.timestamps_option(now),
        };
        self.on_ack_sent();
        header
    }
}
