//! A peer that misbehaves: a small TCP of its own, right in what it must do to get bytes across and
//! wrong in one [`Habit`].
//!
//! It listens, receives with its own list of runs, sends go-back-N with a fixed time-out, and answers
//! as its habit says. It shares no line of code with the stack beyond the reading and writing of
//! headers.

mod habit;
mod segments;

use std::collections::BTreeMap;

use nic::TxFrame;
use wire::tcp::{Flags, Header, Timestamps};

pub use habit::Habit;

use super::{
    content::{self, Received},
    host::Progress,
    path::Path,
    random::Random,
    scenario::Scenario,
    simulation::Node,
};

/// Bytes in a segment of ours at most.
const SEGMENT_BYTES: u64 = 1_000;
/// Bytes under way at most.
const FLIGHT_BYTES: u64 = 8_000;
/// When what was not acknowledged is sent again.
const TIMEOUT_US: u64 = 300_000;
/// How long a habit that acknowledges late waits.
const LATE_US: u64 = 400_000;
/// What we announce without a habit; no scaling.
const WINDOW: u16 = 60_000;

/// The peer of one run.
pub struct BadPeer {
    habit: Habit,
    random: Random,
    now_us: u64,
    /// Frames that want to leave.
    out: Vec<Vec<u8>>,
    frames: u64,
    fault: Option<String>,
    /// Initial sequence numbers, ours and theirs, and their port.
    own_start: u32,
    their_start: Option<u32>,
    their_port: u16,
    connected: bool,
    timestamp: Option<u32>,
    receiving: Receiving,
    sending: Sending,
    /// When an acknowledgment that was held back leaves.
    ack_due_us: Option<u64>,
    unacked_segments: u32,
}

struct Receiving {
    content: Received,
    /// Everything before it has arrived.
    next: u64,
    /// Runs beyond it: start to end.
    held: BTreeMap<u64, u64>,
    /// Where their FIN stands.
    end: Option<u64>,
}

struct Sending {
    stream: u64,
    total: u64,
    acknowledged: u64,
    next: u64,
    /// The highest that was ever sent, the FIN included: where an empty segment stands.
    highest: u64,
    window: u64,
    end_acknowledged: bool,
    again_us: Option<u64>,
}

impl BadPeer {
    /// The peer on host 1 of `scenario`.
    pub fn new(scenario: &Scenario, habit: Habit) -> Self {
        let total = scenario.plans[1].send;
        Self {
            habit,
            random: Random(scenario.seed ^ 0xbad),
            now_us: 0,
            out: Vec::new(),
            frames: 0,
            fault: None,
            // Close to the end of the sequence space, so that every run wraps.
            own_start: u32::MAX - 5_000,
            their_start: None,
            their_port: 0,
            connected: false,
            timestamp: None,
            receiving: Receiving {
                content: Received::new(scenario.seed * 2, scenario.plans[0].send),
                next: 0,
                held: BTreeMap::new(),
                end: None,
            },
            sending: Sending {
                stream: scenario.seed * 2 + 1,
                total,
                acknowledged: 0,
                next: 0,
                highest: 0,
                window: 0,
                end_acknowledged: false,
                again_us: None,
            },
            ack_due_us: None,
            unacked_segments: 0,
        }
    }

    fn handle(&mut self, segment: &Header, data: &[u8]) {
        self.their_port = segment.source_port;
        if let Some(timestamps) = segment.options.timestamps {
            self.timestamp = Some(timestamps.value);
        }
        if segment.flags.contains(Flags::RST) {
            if self.habit == Habit::DataAfterEnd && self.receiving.end == Some(self.receiving.next)
            {
                // Data for a program that has closed is answered so (RFC 9293 §3.6.1).
                self.sending.end_acknowledged = true;
                return;
            }
            self.fault
                .get_or_insert_with(|| "the stack reset the connection".to_owned());
            return;
        }
        if segment.flags.contains(Flags::SYN) {
            self.their_start = Some(segment.seq);
            self.answer_syn();
            return;
        }
        let Some(start) = self.their_start else {
            return;
        };
        self.connected = true;
        self.handle_ack(segment);
        let offset = i64::from(
            segment
                .seq
                .wrapping_sub(start)
                .wrapping_sub(1)
                .wrapping_sub(low(self.receiving.next))
                .cast_signed(),
        );
        let offset = self.receiving.next.checked_add_signed(offset);
        let fin = segment.flags.contains(Flags::FIN);
        if let Some(offset) = offset
            && (fin || !data.is_empty())
        {
            self.take(offset, data, fin);
            self.acknowledge();
        } else if self.random.one_in(2) {
            // A probe or a challenge wants an answer; every second one is enough to end nothing.
            self.acknowledge();
        }
        self.misbehave();
    }

    fn handle_ack(&mut self, segment: &Header) {
        let sending = &mut self.sending;
        sending.window = u64::from(segment.window);
        let acked = segment
            .ack
            .wrapping_sub(self.own_start)
            .wrapping_sub(1)
            .wrapping_sub(low(sending.acknowledged));
        let most = sending.total + 1 - sending.acknowledged;
        let acked = u64::from(acked);
        if acked == 0 || acked > most {
            return;
        }
        sending.acknowledged += acked;
        if sending.acknowledged > sending.total {
            sending.acknowledged = sending.total;
            sending.end_acknowledged = true;
        }
        sending.next = sending.next.max(sending.acknowledged);
        sending.again_us = None;
    }

    fn take(&mut self, offset: u64, data: &[u8], fin: bool) {
        if let Err(fault) = self.receiving.content.place(offset, data) {
            self.fault.get_or_insert(fault);
        }
        let end = offset + data.len() as u64;
        if fin {
            self.receiving.end = Some(end);
        }
        let receiving = &mut self.receiving;
        let held = receiving.held.entry(offset).or_insert(end);
        *held = (*held).max(end);
        while let Some((&start, &end)) = receiving.held.first_key_value()
            && start <= receiving.next
        {
            receiving.next = receiving.next.max(end);
            receiving.held.pop_first();
        }
        if self.habit == Habit::Reneges && self.random.one_in(10) {
            // What was selectively acknowledged is thrown away (RFC 2018 §8).
            self.receiving.held.clear();
        }
    }

    /// Sends what may be sent.
    fn send_data(&mut self) {
        if !self.connected {
            return;
        }
        if self.sending.again_us.is_some_and(|at| at <= self.now_us) {
            self.sending.next = self.sending.acknowledged;
            self.sending.again_us = None;
        }
        let window = self.sending.window.clamp(1, FLIGHT_BYTES);
        let edge = self.sending.acknowledged + window;
        while self.sending.next < self.sending.total.min(edge) {
            let start = self.sending.next;
            let end = (start + SEGMENT_BYTES).min(self.sending.total).min(edge);
            self.data(start, end);
            self.sending.next = end;
            self.sending
                .again_us
                .get_or_insert(self.now_us + TIMEOUT_US);
        }
        let all = self.sending.next == self.sending.total && !self.sending.end_acknowledged;
        if all && self.sending.again_us.is_none() {
            self.end();
            self.sending.highest = self.sending.total + 1;
            self.sending.again_us = Some(self.now_us + TIMEOUT_US);
        }
    }

    /// The bytes of one span of our stream.
    fn bytes(&self, start: u64, end: u64) -> Vec<u8> {
        let len = usize::try_from(end - start).expect("invariant: a segment fits");
        let mut bytes = vec![0; len];
        content::fill(self.sending.stream, start, &mut bytes);
        bytes
    }

    fn sequence(&self, offset: u64) -> u32 {
        self.own_start.wrapping_add(1).wrapping_add(low(offset))
    }

    fn acknowledgment(&self) -> u32 {
        let receiving = &self.receiving;
        let end = receiving.end == Some(receiving.next);
        let next = receiving.next + u64::from(end);
        let start = self.their_start.unwrap_or(0);
        start.wrapping_add(1).wrapping_add(low(next))
    }

    fn timestamps(&self) -> Option<Timestamps> {
        let echo = self.timestamp.filter(|_| self.habit.has_timestamps())?;
        let value = low(self.now_us / 1_000).wrapping_add(1);
        Some(Timestamps { value, echo })
    }
}

impl Node for BadPeer {
    fn deliver(&mut self, now_us: u64, _: &mut Path, frame: &[u8]) {
        self.now_us = now_us;
        if let Some((segment, data)) = segments::parse(frame) {
            self.handle(&segment, &data);
        }
    }

    fn run(&mut self, now_us: u64, path: &mut Path) {
        self.now_us = now_us;
        if self.ack_due_us.is_some_and(|at| at <= now_us) {
            self.ack_due_us = None;
            self.unacked_segments = 0;
            self.ack_now();
        }
        self.send_data();
        for frame in std::mem::take(&mut self.out) {
            self.frames += 1;
            path.offer(now_us, 1, &TxFrame::plain(&frame));
        }
    }

    fn next_us(&self) -> Option<u64> {
        let timers = [self.sending.again_us, self.ack_due_us];
        timers.into_iter().flatten().min()
    }

    fn progress(&self) -> Progress {
        let ended = self.receiving.end == Some(self.receiving.next);
        Progress {
            consumed: self.receiving.next,
            acknowledged: self.sending.acknowledged,
            notifications: 0,
            connected: self.connected,
            closed: ended && self.sending.end_acknowledged,
            released: false,
        }
    }

    fn fault(&self) -> Option<String> {
        self.fault
            .as_ref()
            .map(|fault| format!("bad peer ({:?}): {fault}", self.habit))
    }

    fn frames(&self) -> u64 {
        self.frames
    }
}

/// The part of a stream offset that a sequence number has room for.
fn low(offset: u64) -> u32 {
    u32::try_from(offset & u64::from(u32::MAX)).expect("invariant: masked")
}
