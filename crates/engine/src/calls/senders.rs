//! What programs send as datagrams: records out of the send ring, each read once and checked.
//!
//! Sockets take turns, a few records each, so that one that floods does not hold up the others. A payload
//! is copied out of the ring before anything looks at it: for fragments its checksum is ours to compute,
//! and a packet may have to wait for a neighbour longer than the program leaves the ring alone.

use crate::core::EngineCore;
use crate::device::link::Copying;
use crate::errno;
use crate::sockets::rows::at;
use hostif::datagram::{Outgoing, RECORD_BYTES, RawRecord, record_bytes};
use hostif::{Written, stamp, window::WindowSpan};
use rustix::io::Errno;
use stack::{SendError, UdpId, udp};
use std::collections::VecDeque;
use tcp::Instant;

/// Records sent in one turn of the engine.
const BUDGET: usize = 128;
/// Records of one socket before the next has its turn.
const QUANTUM: usize = 16;
/// Of a frame that its program wants to see again.
const SHOWN_MAX_BYTES: usize = 2048;

/// Sockets whose send ring has records, each once.
#[derive(Debug)]
pub struct Senders {
    rows: VecDeque<u32>,
    queued: Vec<bool>,
    /// Where payloads are copied to.
    payload: Vec<u8>,
    /// The device took no more; the next turn tries again.
    is_stalled: bool,
}

impl Senders {
    /// Nobody yet, of so many rows.
    pub fn new(rows: usize) -> Self {
        Self {
            rows: VecDeque::new(),
            queued: vec![false; rows],
            payload: Vec::new(),
            is_stalled: false,
        }
    }

    /// Whether somebody waits.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn push(&mut self, row: u32) {
        if !core::mem::replace(&mut self.queued[at(row)], true) {
            self.rows.push_back(row);
        }
    }

    fn pop(&mut self) -> Option<u32> {
        let row = self.rows.pop_front()?;
        self.queued[at(row)] = false;
        Some(row)
    }

    /// Back to the head of the queue, which it was just taken from.
    fn push_front(&mut self, row: u32) {
        self.queued[at(row)] = true;
        self.rows.push_front(row);
    }
}

/// What a note of written records comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Noted {
    /// It was acted on, or said nothing new.
    Done,
    /// Another holder's note has to come first.
    Early,
    /// No honest program sends it.
    Impossible,
}

/// How a record went.
enum Fate {
    /// It is over with, one way or the other.
    Over,
    /// The device is busy.
    Busy,
}

impl EngineCore {
    /// A holder has written records up to the end of the note.
    pub(crate) fn note_datagrams(&mut self, row: u32, id: UdpId, note: &Written) -> Noted {
        let positions = *self.sockets.datagram(id);
        if note.end <= positions.written {
            return Noted::Done;
        }
        if note.start > positions.written && self.sockets.holders(row).len() > 1 {
            return Noted::Early;
        }
        let fits = note.end - positions.sent <= u64::from(positions.send_bytes);
        let whole = note.end.is_multiple_of(RECORD_BYTES as u64);
        if note.start > positions.written || note.source.is_some() || !fits || !whole {
            return Noted::Impossible;
        }
        self.sockets
            .change_datagram(id, |row| row.written = note.end);
        self.senders.push(row);
        Noted::Done
    }

    /// Sends what sockets have written, within the budget. Returns how many records.
    pub(crate) fn send_datagrams(&mut self, now: Instant) -> usize {
        let mut sent = 0;
        self.senders.is_stalled = false;
        while sent < BUDGET
            && !self.senders.is_stalled
            && let Some(row) = self.senders.pop()
        {
            sent += self.send_datagrams_of(now, row, QUANTUM);
            let left = self.sockets.row(row).datagram().is_some_and(|id| {
                let positions = self.sockets.datagram(id);
                positions.sent < positions.written
            });
            if left && self.senders.is_stalled {
                self.senders.push_front(row);
            } else if left {
                self.senders.push(row);
            }
        }
        sent
    }

    /// Sends at most so many records of one socket.
    pub(crate) fn send_datagrams_of(&mut self, now: Instant, row: u32, most: usize) -> usize {
        let Some(id) = self.sockets.row(row).datagram() else {
            return 0;
        };
        let Some(rings) = self.sockets.companion(row).rings else {
            return 0;
        };
        let mut count = 0;
        while count < most && self.sockets.datagram(id).sent < self.sockets.datagram(id).written {
            match self.send_record(now, row, id, rings.send) {
                Fate::Over => count += 1,
                Fate::Busy => {
                    self.senders.is_stalled = true;
                    break;
                }
            }
        }
        if count > 0 {
            let sent = self.sockets.datagram(id).sent;
            let wanted = self.sockets.with_header(row, |header| {
                header.engine_set_acknowledged(sent);
                header.engine_take_tx_wanted()
            });
            if wanted == Some(true) {
                self.sockets.count_tx(row);
            }
        }
        count
    }

    fn send_record(&mut self, now: Instant, row: u32, id: UdpId, ring: WindowSpan) -> Fate {
        let positions = *self.sockets.datagram(id);
        let (start, written) = (positions.sent, positions.written);
        let mut raw: RawRecord = [0; RECORD_BYTES];
        self.sockets
            .with_window(row, ring, |window| window.copy_out(start, &mut raw));
        let record = Outgoing::decode(&raw)
            .ok()
            .map(|record| (record, start + record_bytes(record.len)))
            .filter(|(_, end)| *end <= written);
        let Some((record, end)) = record else {
            // What no honest program writes costs it what is in the ring.
            return self.finish(row, id, written, Err(Errno::INVAL));
        };
        let interface = match self.interface_named(record.interface) {
            Ok(interface) => interface,
            Err(_) => return self.finish(row, id, end, Err(Errno::INVAL)),
        };
        let outgoing = udp::Outgoing {
            destination: record.destination,
            source: record.source,
            interface,
            tos: record.tos,
            ttl: record.ttl,
            segment_bytes: record.segment_bytes,
        };
        let len = usize::try_from(record.len).unwrap_or(0);
        let done = usize::try_from(positions.partial).unwrap_or(0).min(len);
        let mut payload = core::mem::take(&mut self.senders.payload);
        payload.resize(len - done, 0);
        let from = start + (RECORD_BYTES + done) as u64;
        self.sockets
            .with_window(row, ring, |window| window.copy_out(from, &mut payload));
        let is_shown = record.stamps & stamp::WITH_BYTES != 0;
        let mut copying = Copying {
            link: &mut self.link,
            max: SHOWN_MAX_BYTES,
            copy: None,
        };
        let result = if is_shown {
            self.stack
                .udp_send(now, id, &outgoing, &payload, &mut copying)
        } else {
            self.stack
                .udp_send(now, id, &outgoing, &payload, copying.link)
        };
        let shown = copying.copy.take();
        let left = payload.len();
        self.senders.payload = payload;
        match result {
            Ok(bytes) if bytes < left => {
                let partial = u32::try_from(done + bytes).unwrap_or(u32::MAX);
                self.sockets
                    .change_datagram(id, |row| row.partial = partial);
                Fate::Busy
            }
            Ok(_) => {
                if record.stamps != 0 {
                    self.stamp_datagram(row, id, &record, shown.as_deref());
                }
                self.finish(row, id, end, Ok(()))
            }
            Err(SendError::Busy) => Fate::Busy,
            Err(SendError::Refused(error)) => {
                // The path has become narrower than the program could know.
                let peer = || self.stack.udp_addresses(id).ok()?.1;
                let to = record.destination.or_else(peer);
                if let (stack::Error::MessageTooLong, Some(to)) = (error, to) {
                    let _ = self.note_too_long(now, row, to);
                }
                self.finish(row, id, end, Err(errno::of_stack(error)))
            }
        }
    }

    fn stamp_datagram(&mut self, row: u32, id: UdpId, record: &Outgoing, shown: Option<&[u8]>) {
        let peer = self.stack.udp_addresses(id).ok().and_then(|ends| ends.1);
        if let Some(to) = record.destination.or(peer) {
            let stamps = (record.stamps, record.stamp_key);
            self.sockets
                .queue_stamps(row, id, stamps, to, shown.unwrap_or_default());
        }
    }

    fn finish(&mut self, row: u32, id: UdpId, end: u64, result: Result<(), Errno>) -> Fate {
        self.sockets.change_datagram(id, |row| {
            row.sent = end;
            row.partial = 0;
        });
        if let Err(errno) = result {
            self.sockets.tell_error(row, id, errno::code(errno));
        }
        Fate::Over
    }
}
