//! The short way of the segment that a receiver of data sees nearly always (Jacobson's header prediction): in order,
//! with a plain header, and nothing in it that the last one did not say. What it leaves out does nothing for such a
//! segment; a property test of `stack` (`tests/tcp/prediction.rs`) holds it against the long way.

use crate::{
    connection::Connection, events::Events, receive::receive_window::ReceiveWindow, seq::SeqNumber,
    state::State, time::Instant,
};
use wire::tcp::Plain;

/// What a segment with a plain header brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainArrival {
    /// The next data and nothing else that is new: [`Connection::take_plain_data`].
    Data,
    /// An acknowledgment up to this position, and perhaps the next data: [`Connection::take_plain_ack`].
    Ack(u64),
    /// It is not so simple: [`Connection::handle_marked_segment`].
    GoesLong,
}

impl Connection {
    /// What a segment with a plain header and `len` bytes brings.
    #[inline]
    pub fn judge_plain(&self, plain: &Plain, len: usize) -> PlainArrival {
        if !self.is_next_in_order(plain, len) {
            return PlainArrival::GoesLong;
        }
        if plain.ack == self.snd.space.wire(self.snd.una) {
            return match len > 0 && self.is_same_window(plain) {
                true => PlainArrival::Data,
                false => PlainArrival::GoesLong,
            };
        }
        match self.snd.space.position(plain.ack, self.snd.una) {
            Some(ack)
                if ack > self.snd.una
                    && ack <= self.snd.max
                    && self.is_calm()
                    && !self.more_follows =>
            {
                PlainArrival::Ack(ack)
            }
            _ => PlainArrival::GoesLong,
        }
    }

    /// Takes in a segment that is [`PlainArrival::Data`].
    #[inline(never)]
    pub fn take_plain_data(
        &mut self,
        now: Instant,
        plain: &Plain,
        payload: &[u8],
        window: &mut dyn ReceiveWindow,
    ) -> Events {
        self.note_arrival(now, plain, payload.len());
        self.snd.window_seq = self.rcv.nxt;
        self.snd.window_ack = self.snd.una;
        self.take_next_data(now, plain, payload, window)
    }

    /// Takes in a segment that is [`PlainArrival::Ack`], up to position `ack`.
    pub fn take_plain_ack(
        &mut self,
        now: Instant,
        plain: &Plain,
        payload: &[u8],
        ack: u64,
        window: &mut dyn ReceiveWindow,
    ) -> Events {
        self.note_arrival(now, plain, payload.len());
        let events =
            self.handle_calm_ack(now, plain.window, plain.timestamps, ack, window.flights());
        if payload.is_empty() {
            return events;
        }
        events | self.take_next_data(now, plain, payload, window)
    }

    /// Whether a segment begins with the next byte, all of its `len` bytes have room, and nothing about it needs a
    /// closer look but its acknowledgment.
    #[inline]
    fn is_next_in_order(&self, plain: &Plain, len: usize) -> bool {
        let Self { snd, rcv, .. } = self;
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        let room = (rcv.consumed + u64::from(rcv.capacity)).saturating_sub(rcv.nxt);
        let is_stamp_in_order = match plain.timestamps {
            Some(stamp) => {
                rcv.timestamps && !SeqNumber(rcv.ts_recent).is_after(SeqNumber(stamp.value))
            }
            None => !rcv.timestamps,
        };
        self.state == State::Established
            && plain.seq == rcv.space.wire(rcv.nxt)
            && len <= room
            && is_stamp_in_order
            && rcv.nxt <= rcv.advertised_edge
            && rcv.out_of_order.is_empty()
            && rcv.fin == 0
            // Segments beyond a hole may have told of a later window.
            && snd.window_seq <= rcv.nxt
            && !self.orphan
            && !self.ecn.in_use().0
    }

    fn is_same_window(&self, plain: &Plain) -> bool {
        u64::from(plain.window) << self.snd.window_shift == self.snd.window
    }

    #[inline]
    fn note_arrival(&mut self, now: Instant, plain: &Plain, len: usize) {
        self.counters.count_in(now, len, self.rcv.segment_payload);
        self.timers.last_received = now;
        self.timers.keepalive_probes = 0;
        let rcv = &mut self.rcv;
        if let Some(stamp) = plain.timestamps
            && rcv.nxt <= rcv.last_ack_sent
        {
            // RFC 7323 §4.3 (3).
            rcv.ts_recent = stamp.value;
            rcv.ts_echo = stamp.echo;
            rcv.ts_recent_at = now;
        }
    }

    #[inline]
    fn take_next_data(
        &mut self,
        now: Instant,
        plain: &Plain,
        payload: &[u8],
        window: &mut dyn ReceiveWindow,
    ) -> Events {
        let start = self.rcv.nxt;
        window.write(start - 1, payload);
        let end = start + u64::try_from(payload.len()).unwrap_or(0);
        let events = self.take_beside_holes(now, end, payload.len(), false, window);
        if !self.rcv.ack_now {
            self.rcv.note_pushed(payload.len(), plain.is_pushed);
        }
        events
    }
}
