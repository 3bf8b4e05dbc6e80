//! The short way of the segment that a receiver of data sees nearly always (Jacobson's header prediction): in order,
//! with a plain header, and nothing in it that the last one did not say. What it leaves out does nothing for such a
//! segment; a property test of `stack` (`tests/tcp/prediction.rs`) holds it against the long way.

use crate::{
    connection::Connection, events::Events, receive::receive_window::ReceiveWindow, seq::SeqNumber,
    state::State, time::Instant,
};
use wire::{ecn::Ecn, tcp::Plain};

impl Connection {
    /// [`Self::handle_marked_segment`] for a segment with a plain header.
    pub fn handle_plain_segment(
        &mut self,
        now: Instant,
        mark: Ecn,
        plain: &Plain,
        payload: &[u8],
        window: &mut dyn ReceiveWindow,
    ) -> Events {
        if self.is_next_data_alone(plain, payload.len()) {
            self.take_next_data(now, plain, payload, window)
        } else {
            self.handle_marked_segment(now, mark, &plain.header(), payload, window)
        }
    }

    /// Whether a segment brings the next `len` bytes and no other news.
    #[inline]
    fn is_next_data_alone(&self, plain: &Plain, len: usize) -> bool {
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
            && plain.ack == snd.space.wire(snd.una)
            && u64::from(plain.window) << snd.window_shift == snd.window
            && (1..=room).contains(&len)
            && is_stamp_in_order
            && rcv.nxt <= rcv.advertised_edge
            && rcv.out_of_order.is_empty()
            && rcv.fin == 0
            // Segments beyond a hole may have told of a later window.
            && snd.window_seq <= rcv.nxt
            && !self.orphan
            && !self.ecn.in_use().0
    }

    fn take_next_data(
        &mut self,
        now: Instant,
        plain: &Plain,
        payload: &[u8],
        window: &mut dyn ReceiveWindow,
    ) -> Events {
        self.counters
            .count_in(now, payload.len(), self.rcv.segment_payload);
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
        self.snd.window_seq = rcv.nxt;
        self.snd.window_ack = self.snd.una;
        let start = rcv.nxt;
        window.write(start - 1, payload);
        let end = start + u64::try_from(payload.len()).unwrap_or(0);
        let events = self.take_in_order(now, end, payload.len(), window);
        if !self.rcv.ack_now {
            self.rcv.note_pushed(payload.len(), plain.is_pushed);
        }
        events
    }
}
