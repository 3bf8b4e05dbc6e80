//! The short way of what a connection sends nearly always: new data that the windows allow, or an ACK, with a plain
//! header. What it leaves out does nothing for such a connection; the long way is `send.rs`, and a property test of
//! `stack` (`tests/tcp/prediction.rs`) holds one against the other.

use crate::{
    connection::Connection,
    recovery::phase::Phase,
    send::{
        flight_pool::FlightPool,
        segment::{Stretch, Transmit, TransmitLimits},
    },
    state::State,
    time::Instant,
};
use wire::{ecn::Ecn, tcp::Plain};

/// A segment to send whose header is plain. Ports and checksum are the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainTransmit {
    /// Header.
    pub header: Plain,
    /// Stream offset of the payload in the send window.
    pub offset: u64,
    /// Payload length, bytes.
    pub len: u32,
    /// The device must cut the payload into pieces of this size, bytes.
    pub segment_size: Option<u16>,
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

/// What [`Connection::poll_plain`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainStep {
    /// This leaves.
    Leaves(PlainTransmit),
    /// Nothing does now.
    Nothing,
    /// It is not so simple: ask [`Connection::poll_transmit`].
    GoesLong,
}

impl Connection {
    /// The next segment of a connection with [`Self::sends_plainly`], if it is plain. `limits` are needed by one with
    /// [`Self::has_data_to_send`].
    #[inline]
    pub fn poll_plain(
        &mut self,
        now: Instant,
        limits: Option<&TransmitLimits>,
        pool: &mut dyn FlightPool,
    ) -> PlainStep {
        if self.has_data_to_send() {
            if self.snd.max >= self.snd.end() {
                self.note_all_out();
            } else if let Some(limits) = limits {
                let segment = self.segment_room(now, limits);
                let usable = u64::from(self.congestion.cwnd()).saturating_sub(self.pipe());
                if let Some(stretch) = self.next_new_data(now, segment, usable, limits) {
                    self.on_sent(now, stretch, segment, pool);
                    return PlainStep::Leaves(self.plain_stretch(now, stretch, segment));
                }
            } else {
                return PlainStep::GoesLong;
            }
        }
        if !self.rcv.ack_now {
            return PlainStep::Nothing;
        }
        PlainStep::Leaves(self.take_ack(now))
    }

    /// Whether a connection with [`Self::sends_plainly`] has nothing to send now. That the program is the limit is then
    /// noted, by one store that nothing can interrupt.
    #[inline]
    pub fn rests(&mut self) -> bool {
        if self.snd.max < self.snd.end() {
            return false;
        }
        if self.has_data_to_send() {
            self.note_all_out();
        }
        !self.rcv.ack_now
    }

    /// Whether an ACK is due at once.
    #[inline]
    pub fn owes_ack(&self) -> bool {
        self.rcv.ack_now
    }

    /// The ACK that leaves now, of a connection with [`Self::only_acknowledges`] that owes one.
    #[inline]
    pub fn take_ack(&mut self, now: Instant) -> PlainTransmit {
        self.counters.count_out(0, None);
        PlainTransmit {
            header: self.plain_header(now, self.snd.max, false),
            offset: 0,
            len: 0,
            segment_size: None,
        }
    }

    /// Whether something that was written is not acknowledged.
    #[inline]
    pub fn has_data_to_send(&self) -> bool {
        self.snd.end() > self.snd.una
    }

    /// Whether a plain ACK is all that can leave.
    #[inline]
    pub fn only_acknowledges(&self) -> bool {
        !self.has_data_to_send() && self.sends_plainly()
    }

    /// Whether what leaves is plain, until something arrives, a timer fires or the program asks for something.
    #[inline]
    pub fn sends_plainly(&self) -> bool {
        let Self { snd, rcv, .. } = self;
        self.state == State::Established
            && self.recovery.phase == Phase::Open
            && snd.sent.lost() == 0
            && self.search.is_off()
            && !(self.reset_owed || self.reset_reply_owed)
            && !(self.probe.owed || snd.probe_owed || snd.fin_requested)
            && snd.urgent == 0
            && snd.records == 0
            && !rcv.has_blocks()
            && rcv.since_due == 0
            && rcv.duplicate_acks_owed == 0
            && !self.ecn.in_use().0
            && self.pacing_rate().is_none()
    }

    #[inline]
    fn plain_stretch(&mut self, now: Instant, stretch: Stretch, segment: u64) -> PlainTransmit {
        let Stretch { start, end } = stretch;
        let is_train = end - start > segment;
        let is_pushed = is_train || end == self.snd.written && !self.snd.is_tail_unpushed;
        let header = self.plain_header(now, start, is_pushed);
        self.note_data_sent(now);
        let len =
            u32::try_from(end - start).expect("invariant: a stretch is at most max_payload long");
        let segment_size = is_train.then(|| u16::try_from(segment).unwrap_or(u16::MAX));
        self.counters.count_out(len, segment_size);
        PlainTransmit {
            header,
            offset: start - 1,
            len,
            segment_size,
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
