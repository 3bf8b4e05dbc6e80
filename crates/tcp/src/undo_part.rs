//! What the changes that nearly every packet brings may touch. Who copies a connection before it is changed, so that a
//! change that is interrupted can be undone, copies no more than that.

use crate::connection::Connection;

/// A part of a connection, named after the change that touches nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum UndoPart {
    /// [`Connection::take_plain_data`].
    Data = 1,
    /// [`Connection::handle_consumed_below`].
    Consumed = 2,
    /// [`Connection::take_ack`].
    Ack = 3,
}

impl UndoPart {
    /// A number that stands for it, never 0.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The part of that number.
    pub fn from_code(code: u32) -> Option<Self> {
        [Self::Data, Self::Consumed, Self::Ack]
            .into_iter()
            .find(|part| part.code() == code)
    }
}

impl Connection {
    /// Takes over a part of `other`.
    #[inline]
    pub fn copy_part(&mut self, part: UndoPart, other: &Self) {
        match part {
            UndoPart::Data => self.copy_data_part(other),
            UndoPart::Consumed => {
                self.rcv.consumed = other.rcv.consumed;
                self.rcv.tuning = other.rcv.tuning;
                self.rcv.ack_now = other.rcv.ack_now;
            }
            UndoPart::Ack => {
                self.counters.segments_out = other.counters.segments_out;
                self.copy_ack_part(other);
            }
        }
    }

    #[inline]
    fn copy_data_part(&mut self, other: &Self) {
        let (counters, timers) = (&mut self.counters, &mut self.timers);
        counters.segments_in = other.counters.segments_in;
        counters.data_segments_in = other.counters.data_segments_in;
        counters.last_data_in = other.counters.last_data_in;
        timers.last_received = other.timers.last_received;
        timers.delayed_ack = other.timers.delayed_ack;
        timers.keepalive_probes = other.timers.keepalive_probes;
        self.snd.window_seq = other.snd.window_seq;
        self.snd.window_ack = other.snd.window_ack;
        let rcv = &mut self.rcv;
        rcv.nxt = other.rcv.nxt;
        rcv.advertised_edge = other.rcv.advertised_edge;
        rcv.ts_recent = other.rcv.ts_recent;
        rcv.ts_recent_at = other.rcv.ts_recent_at;
        rcv.ts_echo = other.rcv.ts_echo;
        rcv.unacknowledged = other.rcv.unacknowledged;
        rcv.segment_payload = other.rcv.segment_payload;
        rcv.since_due = other.rcv.since_due;
        rcv.ack_now = other.rcv.ack_now;
        rcv.quick_acks = other.rcv.quick_acks;
        rcv.after_hole = other.rcv.after_hole;
        rcv.pushed = other.rcv.pushed;
    }

    #[inline]
    fn copy_ack_part(&mut self, other: &Self) {
        self.timers.delayed_ack = other.timers.delayed_ack;
        let rcv = &mut self.rcv;
        rcv.advertised_edge = other.rcv.advertised_edge;
        rcv.last_ack_sent = other.rcv.last_ack_sent;
        rcv.duplicate_end = other.rcv.duplicate_end;
        rcv.unacknowledged = other.rcv.unacknowledged;
        rcv.since_due = other.rcv.since_due;
        rcv.ack_now = other.rcv.ack_now;
        rcv.pushed = other.rcv.pushed;
    }
}
