//! An arriving segment, step by step (RFC 9293 §3.10.7.4), and where its payload goes.

pub(crate) mod autotune;
pub(crate) mod plain;
pub(crate) mod ranges;
pub(crate) mod receive_window;
pub(crate) mod receiver;
pub(crate) mod urgent;
pub(crate) mod window;

use crate::{
    connection::Connection,
    events::{ConnectionError, Events},
    receive::{ranges::RangeSlot, receive_window::ReceiveWindow, receiver::RECENT},
    state::State,
    time::{Duration, Instant},
};
use wire::ecn::Ecn;
use wire::tcp::{Flags, Header};

/// Delayed ACK (RFC 9293 §3.8.6.3 allows 500 ms at most; hosts use 40).
pub(crate) const DELAYED_ACK: Duration = Duration::from_ms(40);
/// RFC 7323 §5.5: a timestamp older than this proves nothing.
const TIMESTAMP_VALIDITY: Duration = Duration::from_secs(24 * 24 * 3_600);
/// In-order segments that are acknowledged one by one after a hole was filled.
const QUICK_ACKS_AFTER_LOSS: u8 = 16;
/// In-order segments after a hole during which the path counts as one that loses.
const AFTER_HOLE: u8 = u8::MAX;
/// Immediate ACKs queued at most between two transmissions.
const MAX_DUPLICATE_ACKS_OWED: u8 = 32;

/// A segment's place in the peer's sequence space.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    /// Position of the first number, SYN included.
    pub seq: u64,
    /// Position of the first payload byte.
    pub payload_start: u64,
    pub payload_end: u64,
    /// One past the last number, FIN included.
    pub end: u64,
}

impl Arrival {
    /// The peer's SYN with so many bytes.
    pub(crate) fn of_syn(payload_len: usize) -> Self {
        let payload_end = 1 + u64::try_from(payload_len).unwrap_or(0);
        Self {
            seq: 0,
            payload_start: 1,
            payload_end,
            end: payload_end,
        }
    }
}

impl Connection {
    /// Takes in one segment: `header` with its `payload`, whose bytes go to `window` at once.
    ///
    /// Ports, addresses and checksum were checked by the caller. A merged segment of up to 64 KiB
    /// (GRO) is one segment here.
    pub fn handle_segment(
        &mut self,
        now: Instant,
        header: &Header,
        payload: &[u8],
        window: &mut dyn ReceiveWindow,
    ) -> Events {
        self.handle_marked_segment(now, Ecn::NotEct, header, payload, window)
    }

    /// [`Self::handle_segment`] for a packet whose IP header had `mark` (RFC 3168 §5).
    pub fn handle_marked_segment(
        &mut self,
        now: Instant,
        mark: Ecn,
        header: &Header,
        payload: &[u8],
        window: &mut dyn ReceiveWindow,
    ) -> Events {
        self.counters
            .count_in(now, payload.len(), self.rcv.segment_payload);
        match self.state {
            State::Closed => Events::empty(),
            State::SynSent => self.handle_in_syn_sent(now, mark, header, payload, window),
            _ => self.handle_synchronized(now, mark, header, payload, window),
        }
    }

    fn handle_synchronized(
        &mut self,
        now: Instant,
        mark: Ecn,
        header: &Header,
        payload: &[u8],
        window: &mut dyn ReceiveWindow,
    ) -> Events {
        let Some(arrival) = self.locate(header, payload.len()) else {
            return self.owe_challenge_ack(now);
        };
        if self.is_old_by_timestamp(now, header) {
            // RFC 7323 §5.3 R1: acknowledge and drop.
            return if header.flags.contains(Flags::RST) {
                Events::empty()
            } else {
                self.owe_challenge_ack(now)
            };
        }
        if self.repeats_syn(header) {
            // Before its numbers are judged: data of the first one may have been taken (RFC 7413 §4.2.2).
            return self.handle_unexpected_syn(now, header);
        }
        if !self.is_acceptable(&arrival) {
            return self.handle_unacceptable(now, header, &arrival);
        }
        if header.flags.contains(Flags::RST) {
            return self.handle_reset(now, arrival.seq);
        }
        if header.flags.contains(Flags::SYN) {
            return self.handle_unexpected_syn(now, header);
        }
        if !header.flags.contains(Flags::ACK) {
            return Events::empty();
        }
        // Nothing of the connection may change before this: until here anybody may have sent it (RFC 5961 §5.2).
        let ack = match self.judge_ack(now, header) {
            Ok(ack) => ack,
            Err(events) => return events,
        };
        self.timers.last_received = now;
        self.timers.keepalive_probes = 0;
        self.on_marked_arrival(mark, header, payload.len());
        self.update_ts_recent(now, header, &arrival);
        if self.state == State::SynReceived && self.defers_open(&arrival) {
            return Events::empty();
        }
        let brings_data_alone =
            ack == self.snd.una && !payload.is_empty() && arrival.seq == self.rcv.nxt;
        let mut events = self.handle_ack(now, header, &arrival, ack, window.flights());
        if header.flags.contains(Flags::URG) {
            events |= self.handle_urgent(header, &arrival);
        }
        if self.more_follows && !brings_data_alone {
            // Linux `tcp_data_snd_check`: an acknowledgment lets go of the rest of a send with MSG_MORE.
            self.more_follows = false;
            events |= Events::TRANSMIT;
        }
        if self.refuses_data(&arrival) {
            return events | self.refuse_data(header.ack);
        }
        if arrival.payload_end > arrival.payload_start {
            events |= self.handle_payload(now, &arrival, payload, window);
            if !self.rcv.ack_now {
                let is_pushed = header.flags.contains(Flags::PSH);
                self.rcv.note_pushed(payload.len(), is_pushed);
            }
        }
        if header.flags.contains(Flags::FIN) && self.state != State::Closed {
            events |= self.note_fin(arrival.payload_end);
        }
        events | self.reach_fin(now)
    }

    fn locate(&self, header: &Header, payload_len: usize) -> Option<Arrival> {
        let seq = self.rcv.space.position(header.seq, self.rcv.nxt)?;
        let payload_start = seq + u64::from(header.flags.contains(Flags::SYN));
        let payload_end = payload_start + u64::try_from(payload_len).ok()?;
        let end = payload_end + u64::from(header.flags.contains(Flags::FIN));
        Some(Arrival {
            seq,
            payload_start,
            payload_end,
            end,
        })
    }

    /// RFC 7323 §5.3 R1 (PAWS). A segment without the timestamps that were agreed upon passes, as in Linux
    /// (`tcp_validate_incoming`), and leaves TS.Recent as it is.
    fn is_old_by_timestamp(&self, now: Instant, header: &Header) -> bool {
        let timestamps = header.options.timestamps.filter(|_| self.rcv.timestamps);
        let Some(timestamps) = timestamps else {
            return false;
        };
        let older =
            crate::SeqNumber(self.rcv.ts_recent).is_after(crate::SeqNumber(timestamps.value));
        older
            && now.since(self.rcv.ts_recent_at) < TIMESTAMP_VALIDITY
            && !header.flags.contains(Flags::RST)
    }

    /// RFC 7323 §4.3 (3).
    fn update_ts_recent(&mut self, now: Instant, header: &Header, arrival: &Arrival) {
        if let Some(timestamps) = header.options.timestamps
            && self.rcv.timestamps
            && arrival.seq <= self.rcv.last_ack_sent
            && !crate::SeqNumber(self.rcv.ts_recent).is_after(crate::SeqNumber(timestamps.value))
        {
            self.rcv.ts_recent = timestamps.value;
            self.rcv.ts_echo = timestamps.echo;
            self.rcv.ts_recent_at = now;
        }
    }

    /// RFC 9293 §3.10.7.4 first check. A segment that begins at the edge of a closed window passes,
    /// so that its ACK, URG and RST count, as the RFC asks; none of its payload is taken.
    fn is_acceptable(&self, arrival: &Arrival) -> bool {
        arrival.seq <= self.rcv.advertised_edge && arrival.end >= self.rcv.nxt
    }

    fn handle_unacceptable(&mut self, now: Instant, header: &Header, arrival: &Arrival) -> Events {
        if header.flags.contains(Flags::RST) {
            return Events::empty();
        }
        // RFC 5961 §4.2, §7: a SYN is challenged at a limited rate, whatever it brings.
        let is_syn = header.flags.contains(Flags::SYN);
        if arrival.end > arrival.payload_start && !is_syn {
            // A retransmission of what we have: our ACK was lost, so say it again at once.
            self.rcv
                .note_duplicate(arrival.payload_start, arrival.end.min(self.rcv.nxt));
            self.owe_immediate_ack();
            return Events::TRANSMIT;
        }
        self.owe_challenge_ack(now)
    }

    /// Whether a segment brings data that nobody will read: the program has closed, or shut both its sides.
    fn refuses_data(&self, arrival: &Arrival) -> bool {
        let is_over = matches!(self.state, State::FinWait1 | State::FinWait2);
        let is_unread = self.orphan || (self.read_shut && is_over);
        is_unread && arrival.payload_end > self.rcv.nxt
    }

    /// RFC 1122 §4.2.2.13, RFC 2525 §2.17: the peer is told, and so is a program that still has the connection
    /// (Linux `tcp_rcv_state_process`).
    fn refuse_data(&mut self, ack: u32) -> Events {
        let error = if self.orphan {
            self.enter_closed();
            Events::CLOSED
        } else {
            self.fail(ConnectionError::Reset)
        };
        error | self.owe_reset_reply(ack)
    }

    pub(crate) fn handle_payload(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        payload: &[u8],
        window: &mut dyn ReceiveWindow,
    ) -> Events {
        if !self.state.can_receive() {
            return Events::empty();
        }
        let mut edge = self.rcv.consumed + u64::from(self.rcv.capacity);
        if self.rcv.fin > 0 {
            edge = edge.min(self.rcv.fin);
        }
        let start = arrival.payload_start.max(self.rcv.nxt);
        let end = arrival.payload_end.min(edge);
        if arrival.payload_start < self.rcv.nxt {
            let old_end = arrival.payload_end.min(self.rcv.nxt);
            self.rcv.note_duplicate(arrival.payload_start, old_end);
        }
        if start >= end {
            self.owe_immediate_ack();
            return Events::TRANSMIT;
        }
        let bytes = payload_slice(
            payload,
            start - arrival.payload_start,
            end - arrival.payload_start,
        );
        if start > self.rcv.nxt {
            return self.take_out_of_order(start, end, bytes, window);
        }
        window.write(start - 1, bytes);
        self.take_in_order(now, end, bytes.len(), window)
    }

    pub(crate) fn take_in_order(
        &mut self,
        now: Instant,
        end: u64,
        len: usize,
        window: &mut dyn ReceiveWindow,
    ) -> Events {
        let had_hole = !self.rcv.out_of_order.is_empty();
        self.take_beside_holes(now, end, len, had_hole, window)
    }

    /// [`Self::take_in_order`], where it is known whether there is a hole.
    #[inline(always)]
    pub(crate) fn take_beside_holes(
        &mut self,
        now: Instant,
        end: u64,
        len: usize,
        had_hole: bool,
        window: &mut dyn ReceiveWindow,
    ) -> Events {
        let rcv = &mut self.rcv;
        rcv.since_due = 0;
        if rcv.after_hole > 0 {
            if rcv.ack_now && !had_hole {
                rcv.since_due = u16::try_from(end - rcv.nxt).unwrap_or(0);
            }
            rcv.after_hole -= 1;
        }
        if had_hole && let Some(held) = rcv.out_of_order.overlap(rcv.nxt, end, window) {
            rcv.note_duplicate(held.start, held.end);
        }
        rcv.nxt = end;
        if had_hole {
            rcv.nxt = rcv.out_of_order.advance(end, window);
            if rcv.out_of_order.is_empty() {
                rcv.recent = [RangeSlot::default(); RECENT];
            }
        }
        // More than the window may be taken; what follows then is not beyond it.
        rcv.advertised_edge = rcv.advertised_edge.max(rcv.nxt);
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        rcv.unacknowledged = rcv.unacknowledged.saturating_add(len);
        if len > u32::from(rcv.segment_payload) {
            let len = u16::try_from(len).unwrap_or(u16::MAX);
            rcv.segment_payload = rcv.segment_payload.max(len.min(1_460));
        }
        if had_hole {
            // Whose window loss has made small must not wait for the other half of a pair of segments.
            rcv.quick_acks = rcv.quick_acks.max(QUICK_ACKS_AFTER_LOSS);
            rcv.after_hole = AFTER_HOLE - 1;
        }
        // Not where the program's answer is about to carry the ACK (Linux `tcp_in_quickack_mode`).
        let quick = rcv.quick_acks > 0 && (!rcv.answers || rcv.after_hole > 0);
        rcv.quick_acks -= u8::from(quick);
        // RFC 5681 §4.2: at once when a hole is filled and for every second full segment, else delayed.
        if had_hole || quick || rcv.unacknowledged >= 2 * u32::from(rcv.segment_payload) {
            rcv.ack_now = true;
        } else {
            self.delay_ack(now);
        }
        Events::READABLE
            | if self.rcv.ack_now {
                Events::TRANSMIT
            } else {
                Events::empty()
            }
    }

    /// An ACK is due within moments, alone or with data.
    pub(crate) fn delay_ack(&mut self, now: Instant) {
        if !self.rcv.ack_now && !self.timers.delayed_ack.is_set() {
            self.timers.delayed_ack = now + DELAYED_ACK;
        }
    }

    fn take_out_of_order(
        &mut self,
        start: u64,
        end: u64,
        bytes: &[u8],
        window: &mut dyn ReceiveWindow,
    ) -> Events {
        if let Some(held) = self.rcv.out_of_order.overlap(start, end, window) {
            self.rcv.note_duplicate(held.start, held.end);
        }
        self.rcv.since_due = 0;
        self.counters.out_of_order_in = self.counters.out_of_order_in.wrapping_add(1);
        if let Some(range) = self.rcv.out_of_order.insert(start, end, window) {
            window.write(start - 1, bytes);
            self.rcv.touch_recent(range);
        }
        self.owe_immediate_ack();
        Events::TRANSMIT
    }

    /// RFC 5681 §4.2: one immediate ACK for each such segment, so that the sender can count them.
    pub(crate) fn owe_immediate_ack(&mut self) {
        if self.rcv.ack_now {
            self.rcv.duplicate_acks_owed =
                (self.rcv.duplicate_acks_owed + 1).min(MAX_DUPLICATE_ACKS_OWED);
        }
        self.rcv.ack_now = true;
    }

    fn note_fin(&mut self, position: u64) -> Events {
        let within = position <= self.rcv.advertised_edge && position >= self.rcv.nxt;
        if self.rcv.fin == 0 && within && self.state.can_receive() {
            self.rcv.fin = position;
        }
        let is_next = self.rcv.fin == position && self.rcv.nxt == position && !self.rcv.fin_reached;
        // Otherwise `reach_fin` says when.
        self.rcv.ack_now |= !is_next;
        Events::TRANSMIT
    }
}

fn payload_slice(payload: &[u8], from: u64, to: u64) -> &[u8] {
    let index = |position| usize::try_from(position).unwrap_or(usize::MAX);
    payload.get(index(from)..index(to)).unwrap_or_default()
}
