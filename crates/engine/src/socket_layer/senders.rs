//! What programs send as datagrams: records out of the send ring, each read once and checked.
//!
//! Sockets are served in turn, a few records each, so that one that floods does not hold up the others. A payload
//! is copied out of the ring before anything looks at it: for fragments its checksum is ours to compute,
//! and a packet may have to wait for a neighbour longer than the program leaves the ring alone.

use crate::device::link::{Link, Observed};
use crate::errno;
use crate::sockets::Sockets;
use crate::sockets::rows::at;
use core::net::{IpAddr, SocketAddr, SocketAddrV6};
use hostif::datagram::{Outgoing, RECORD_BYTES, RawRecord, record_bytes};
use hostif::{Written, stamp, window::WindowSpan};
use rustix::io::Errno;
use stack::{Frame, InterfaceId, SendError, Stack, UdpId, udp};
use std::collections::VecDeque;
use tcp::Instant;

/// Records sent in one poll of the engine.
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
    /// The device took no more; the next poll tries again.
    is_stalled: bool,
    /// The interface's number, which link-local addresses get.
    scope_id: u32,
}

impl Senders {
    /// Nobody yet, of so many rows.
    pub fn new(rows: usize, scope_id: u32) -> Self {
        Self {
            rows: VecDeque::new(),
            queued: vec![false; rows],
            payload: Vec::new(),
            is_stalled: false,
            scope_id,
        }
    }

    /// Whether somebody waits.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// An engine before this one has left something of it unsent.
    pub(crate) fn resume(&mut self, row: u32) {
        self.push(row);
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

impl Senders {
    /// A holder has written records up to the end of the note.
    pub(crate) fn note(
        &mut self,
        sockets: &mut Sockets,
        row: u32,
        id: UdpId,
        note: &Written,
    ) -> Noted {
        let positions = *sockets.datagram(id);
        if note.end <= positions.written {
            return Noted::Done;
        }
        if note.start > positions.written && sockets.holders(row).len() > 1 {
            return Noted::Early;
        }
        let fits = note.end - positions.sent <= u64::from(positions.send_bytes);
        let whole = note.end.is_multiple_of(RECORD_BYTES as u64);
        if note.start > positions.written || note.source.is_some() || !fits || !whole {
            return Noted::Impossible;
        }
        sockets.change_datagram(id, |row| row.written = note.end);
        self.push(row);
        Noted::Done
    }

    /// Sends what sockets have written, within the budget. Returns how many records.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        stack: &mut Stack<'_>,
        sockets: &mut Sockets,
        link: &mut Link,
    ) -> usize {
        let mut sent = 0;
        self.is_stalled = false;
        while sent < BUDGET
            && !self.is_stalled
            && let Some(row) = self.pop()
        {
            sent += self.send(now, (stack, sockets, link), row, QUANTUM);
            let left = sockets.row(row).datagram().is_some_and(|id| {
                let positions = sockets.datagram(id);
                positions.sent < positions.written
            });
            if left && self.is_stalled {
                self.push_front(row);
            } else if left {
                self.push(row);
            }
        }
        sent
    }

    /// Sends at most so many records of one socket.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        (stack, sockets, link): (&mut Stack<'_>, &mut Sockets, &mut Link),
        row: u32,
        most: usize,
    ) -> usize {
        let Some(id) = sockets.row(row).datagram() else {
            return 0;
        };
        let Some(rings) = sockets.companion(row).rings else {
            return 0;
        };
        let mut count = 0;
        while count < most && sockets.datagram(id).sent < sockets.datagram(id).written {
            match self.send_record(now, (stack, sockets, link), (row, id), rings.send) {
                Fate::Over => count += 1,
                Fate::Busy => {
                    self.is_stalled = true;
                    break;
                }
            }
        }
        if count > 0 {
            let sent = sockets.datagram(id).sent;
            let wanted = sockets.with_header(row, |header| {
                header.engine_set_acknowledged(sent);
                header.engine_take_tx_wanted()
            });
            if wanted == Some(true) {
                sockets.count_tx(row);
            }
        }
        count
    }

    fn send_record(
        &mut self,
        now: Instant,
        (stack, sockets, link): (&mut Stack<'_>, &mut Sockets, &mut Link),
        (row, id): (u32, UdpId),
        ring: WindowSpan,
    ) -> Fate {
        let positions = *sockets.datagram(id);
        let (start, written) = (positions.sent, positions.written);
        let mut raw: RawRecord = [0; RECORD_BYTES];
        sockets.with_window(row, ring, |window| window.copy_out(start, &mut raw));
        let record = Outgoing::decode(&raw)
            .ok()
            .map(|record| (record, start + record_bytes(record.len)))
            .filter(|(_, end)| *end <= written);
        let Some((record, end)) = record else {
            // What no honest program writes costs it what is in the ring.
            return finish(sockets, row, id, written, Err(Errno::INVAL));
        };
        let interface = match interface_named(stack, record.interface) {
            Ok(interface) => interface,
            Err(_) => return finish(sockets, row, id, end, Err(Errno::INVAL)),
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
        let mut payload = core::mem::take(&mut self.payload);
        payload.resize(len - done, 0);
        let from = start + (RECORD_BYTES + done) as u64;
        sockets.with_window(row, ring, |window| window.copy_out(from, &mut payload));
        let mut shown = None;
        let result = if record.stamps & stamp::WITH_BYTES != 0 {
            let see = |link: &Link, frame: &Frame<'_>| {
                shown.get_or_insert_with(|| link.head_of(frame, SHOWN_MAX_BYTES).bytes);
            };
            stack.udp_send(now, id, &outgoing, &payload, &mut Observed { link, see })
        } else {
            stack.udp_send(now, id, &outgoing, &payload, link)
        };
        let left = payload.len();
        self.payload = payload;
        match result {
            Ok(bytes) if bytes < left => {
                let partial = u32::try_from(done + bytes).unwrap_or(u32::MAX);
                sockets.change_datagram(id, |row| row.partial = partial);
                Fate::Busy
            }
            Ok(_) => {
                if record.stamps != 0 {
                    stamp_datagram(stack, sockets, (row, id), &record, shown.as_deref());
                }
                finish(sockets, row, id, end, Ok(()))
            }
            Err(SendError::Busy) => Fate::Busy,
            Err(SendError::Refused(error)) => {
                // The path has become narrower than the program could know.
                let peer = || stack.udp_addresses(id).ok()?.1;
                let to = record.destination.or_else(peer);
                if let (stack::Error::MessageTooLong, Some(to)) = (error, to) {
                    let _ = note_too_long(now, stack, sockets, row, scoped(to, self.scope_id));
                }
                finish(sockets, row, id, end, Err(errno::of_stack(error)))
            }
        }
    }
}

fn stamp_datagram(
    stack: &Stack<'_>,
    sockets: &mut Sockets,
    (row, id): (u32, UdpId),
    record: &Outgoing,
    shown: Option<&[u8]>,
) {
    let peer = stack.udp_addresses(id).ok().and_then(|ends| ends.1);
    if let Some(to) = record.destination.or(peer) {
        let stamps = (record.stamps, record.stamp_key);
        sockets.queue_stamps(row, id, stamps, to, shown.unwrap_or_default());
    }
}

fn finish(sockets: &mut Sockets, row: u32, id: UdpId, end: u64, result: Result<(), Errno>) -> Fate {
    sockets.change_datagram(id, |row| {
        row.sent = end;
        row.partial = 0;
    });
    if let Err(errno) = result {
        sockets.tell_error(row, id, errno::code(errno));
    }
    Fate::Over
}

/// A program was refused a datagram: its error queue tells by how much it was too long.
pub(crate) fn note_too_long(
    now: Instant,
    stack: &mut Stack<'_>,
    sockets: &mut Sockets,
    row: u32,
    destination: SocketAddr,
) -> Result<u64, Errno> {
    let id = sockets.row(row).datagram().ok_or(Errno::INVAL)?;
    let options = sockets.companion(row).datagram_options;
    let of_family = if destination.is_ipv4() {
        options.v4
    } else {
        options.v6
    };
    if of_family.error_queue {
        let mtu = stack.udp_mtu_towards(now, id, destination);
        let mtu = mtu.map_err(errno::of_stack)?;
        sockets.queue_too_long(row, id, destination, mtu);
    }
    Ok(0)
}

/// The interface that a program names; 0: none in particular.
pub(crate) fn interface_named(
    stack: &Stack<'_>,
    scope_id: u32,
) -> Result<Option<InterfaceId>, stack::Error> {
    let found = stack.interface_with_scope(scope_id);
    if found.is_none() && scope_id != 0 {
        return Err(stack::Error::NotFound);
    }
    Ok(found)
}

/// A link-local address lies on the one link of the engine, whatever number that has for the program.
pub(crate) fn scoped(address: SocketAddr, scope_id: u32) -> SocketAddr {
    match (address.ip().to_canonical(), address.port()) {
        (IpAddr::V6(v6), port) => SocketAddrV6::new(v6, port, 0, scope_id).into(),
        (address, port) => SocketAddr::new(address, port),
    }
}
