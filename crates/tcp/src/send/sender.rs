//! The send side's variables (RFC 9293 §3.3.1, figure 3), in absolute positions.

use crate::{send::sent::Sent, seq::SequenceSpace};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// Send sequence variables. Position 0 is our SYN, 1 the first byte, `written` our FIN.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Sender {
    /// SND.UNA: everything below is acknowledged.
    pub una: u64,
    /// SND.NXT. 0 while a SYN is due; once data flows it is `max`, for what is sent again is marked in
    /// `sent`.
    pub nxt: u64,
    /// Highest position ever sent, plus one.
    pub max: u64,
    /// One past the last byte that the program has written.
    pub written: u64,
    /// SND.WND: the peer's window, bytes.
    pub window: u64,
    /// Largest window the peer ever offered (RFC 9293 §3.8.6.2.1), bytes.
    pub max_window: u64,
    /// SND.WL1: the peer's sequence position at the last window update.
    pub window_seq: u64,
    /// SND.WL2: our acknowledged position at the last window update.
    pub window_ack: u64,
    /// End of the last segment sent that was smaller than a full one (Nagle as Minshall refined it).
    pub small_end: u64,
    /// SND.UP: one past the last urgent byte; 0: none.
    pub urgent: u64,
    pub space: SequenceSpace,
    /// Bytes the send window can hold.
    pub capacity: u32,
    /// MSS the peer announced (RFC 9293 §3.7.1).
    pub mss: u16,
    /// Payload of a full segment at the last transmission, options subtracted.
    pub segment_payload: u16,
    /// Shift of the window field in the peer's segments (RFC 7323 §2).
    pub window_shift: u8,
    /// The program wants a FIN after its last byte.
    pub fin_requested: bool,
    /// A zero-window or keep-alive probe is due.
    pub probe_owed: bool,
    /// All that is written leaves, corked or not, until more is written.
    pub is_pushed: bool,
    /// The last bytes were written with `MSG_MORE`.
    pub is_tail_unpushed: bool,
    /// Records that are not acknowledged, of `record_ends`.
    pub records: u8,
    /// Duplicate acknowledgements in a row.
    pub duplicate_acks: u32,
    /// One past their last positions, modulo 2^32, in order.
    pub record_ends: [u32; RECORDS],
    /// The trains that left last.
    pub trains: Trains,
    /// What is in flight beyond our SYN.
    pub sent: Sent,
}

/// Trains of one length, one after the other: `[start, end)` modulo 2^32, all zero before the first.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Trains {
    start: u32,
    end: u32,
    len: u32,
}

impl Trains {
    /// One more has left, `[start, end)`.
    pub fn add(&mut self, start: u64, end: u64) {
        let (start, end) = (low(start), low(end));
        if start != self.end || end.wrapping_sub(start) != self.len {
            (self.start, self.len) = (start, end.wrapping_sub(start));
        }
        self.end = end;
    }

    /// Where the train that `position` was in ends; what is sent again goes no further, as a buffer of Linux's queue
    /// does not.
    pub fn end_of(&self, position: u64) -> Option<u64> {
        let offset = low(position).wrapping_sub(self.start);
        let is_known = offset < self.end.wrapping_sub(self.start);
        is_known.then(|| position + u64::from(self.len.max(1) - offset % self.len.max(1)))
    }
}

/// Ends of records that are remembered (`MSG_EOR`); what comes after so many is not told apart.
const RECORDS: usize = 10;

impl Sender {
    /// Stream offset up to which the peer has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.una.saturating_sub(1).min(self.written_offset())
    }

    /// Stream offset up to which the program has written.
    pub fn written_offset(&self) -> u64 {
        self.written - 1
    }

    /// One past the last position there is to send, our FIN included.
    pub fn end(&self) -> u64 {
        self.written + u64::from(self.fin_requested)
    }

    /// Whether our FIN is acknowledged.
    pub fn fin_acknowledged(&self) -> bool {
        self.fin_requested && self.una > self.written
    }

    /// A record ends with what is written.
    #[cold]
    pub fn end_record(&mut self) {
        let una = low(self.una);
        let is_open = |end: &u32| end.wrapping_sub(una).wrapping_sub(1) < u32::MAX / 2;
        let mut open = [0; RECORDS];
        let mut count = 0_u8;
        let known = self.record_ends.iter().take(usize::from(self.records));
        for (place, end) in open.iter_mut().zip(known.filter(|end| is_open(end))) {
            *place = *end;
            count += 1;
        }
        if let Some(place) = open.get_mut(usize::from(count)) {
            *place = low(self.written);
            count += 1;
        }
        (self.record_ends, self.records) = (open, count);
    }

    /// Where the record that `start` is in ends, if more was written after it.
    #[inline]
    pub fn record_end(&self, start: u64) -> Option<u64> {
        if self.records == 0 {
            return None;
        }
        self.find_record_end(start)
    }

    #[cold]
    fn find_record_end(&self, start: u64) -> Option<u64> {
        let ends = self.record_ends.iter().take(usize::from(self.records));
        let ahead = |end: &u32| end.wrapping_sub(low(start));
        ends.map(ahead)
            .filter(|ahead| (1..u32::MAX / 2).contains(ahead))
            .map(|ahead| start + u64::from(ahead))
            .find(|end| *end < self.written)
    }

    /// First position beyond the peer's window.
    pub fn window_edge(&self) -> u64 {
        self.una + self.window
    }
}

fn low(position: u64) -> u32 {
    let [a, b, c, d, ..] = position.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
