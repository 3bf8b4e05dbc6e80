//! Segments that wait for space in an accept queue: the SYN of a handshake, and the ACK that ends it.
//!
//! Linux drops them, and they come again a second later. Its softirq takes a SYN on the processor of whoever sends it, so that a
//! server has another one to itself; an engine shares that one with the server, which falls behind sooner. So those that do not
//! fit wait here, in the order in which they came, and each connection that the program accepts lets one of them in.
//! Decision 121.
//!
//! Bounds: [`SEGMENTS_MAX`] of a listener, [`ALL_MAX`] in all, frames of [`FRAME_BYTES_MAX`] bytes, [`LIFETIME`]. What finds no
//! space here is dropped.

use crate::containers::demux::FourTuple;
use crate::egress::RxChecksum;
use crate::ip::arrival::Arrival;
use crate::tables::ConnectionId;
use std::collections::{BTreeMap, VecDeque};
use tcp::{Duration, Instant};
use wire::ecn::Ecn;
use wire::ethernet;
use wire::tcp::Header;

const SEGMENTS_MAX: usize = 256;
const ALL_MAX: usize = 1024;
/// A SYN or an ACK with all options behind headers with options, too; no such segment with much data.
const FRAME_BYTES_MAX: usize = 256;
/// By then the peer has sent it twice more, or has given up (RFC 6298 §2.1: after one second and three).
const LIFETIME: Duration = Duration::from_secs(3);

/// What waits.
#[derive(Debug)]
pub(crate) enum Deferred {
    Opening(Opening),
    LastAck(LastAck),
}

/// A SYN, or an ACK that answers a cookie: nothing here knows of its connection.
#[derive(Debug)]
pub(crate) struct Opening {
    tuple: FourTuple,
    seq: u32,
    frame: Box<[u8]>,
    /// All but what it borrows of `frame`.
    arrival: Arrival<'static>,
    packet_len: usize,
    payload_len: usize,
}

impl Opening {
    /// `None`: it is too long, or came in fragments.
    pub(super) fn new(tuple: &FourTuple, seq: u32, arrival: &Arrival<'_>) -> Option<Self> {
        let (packet_len, payload_len) = (arrival.packet.len(), arrival.payload.len());
        let frame_len = ethernet::Header::LEN + packet_len..=FRAME_BYTES_MAX;
        frame_len.contains(&arrival.frame.len()).then(|| Self {
            tuple: *tuple,
            seq,
            frame: arrival.frame.into(),
            arrival: Arrival {
                packet: &[],
                payload: &[],
                frame: &[],
                checksum: RxChecksum::Verified,
                ..*arrival
            },
            packet_len,
            payload_len,
        })
    }

    /// As it arrived.
    pub(crate) fn arrival(&self) -> Arrival<'_> {
        let packet = &self.frame[ethernet::Header::LEN..][..self.packet_len];
        Arrival {
            packet,
            payload: &packet[self.packet_len - self.payload_len..],
            frame: &self.frame,
            ..self.arrival
        }
    }
}

/// The last ACK of a half-open connection, without its data.
#[derive(Debug)]
pub(crate) struct LastAck {
    pub(crate) connection: ConnectionId,
    pub(crate) header: Header,
    pub(crate) mark: Ecn,
}

impl Deferred {
    /// Whether the peer has sent one of them again.
    fn is_again(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Opening(one), Self::Opening(other)) => {
                (one.tuple, one.seq) == (other.tuple, other.seq)
            }
            (Self::LastAck(one), Self::LastAck(other)) => one.connection == other.connection,
            _ => false,
        }
    }
}

#[derive(Debug, Default)]
struct Waiting {
    /// And when each came.
    segments: VecDeque<(Instant, Deferred)>,
    /// So many may come in.
    space: usize,
}

impl Waiting {
    /// How many have left from the front because they waited too long.
    fn forget_expired(&mut self, now: Instant) -> usize {
        let mut all = self.segments.iter();
        let fresh = all.position(|(came_at, _)| now < *came_at + LIFETIME);
        let expired = fresh.unwrap_or(self.segments.len());
        self.segments.drain(..expired);
        self.space = self.space.min(self.segments.len());
        expired
    }
}

/// All that wait, by the rows of their listeners.
#[derive(Debug, Default)]
pub(crate) struct DeferredSegments {
    waiting: BTreeMap<u32, Waiting>,
    count: usize,
}

impl DeferredSegments {
    /// Whether none waits.
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A program has accepted a connection of this listener: one may come in, and all where none `is_left` that it could accept.
    pub(crate) fn admit(&mut self, listener: u32, is_left: bool) {
        if let Some(waiting) = self.waiting.get_mut(&listener) {
            let most = waiting.segments.len();
            waiting.space = if is_left {
                most.min(waiting.space + 1)
            } else {
                most
            };
        }
    }

    /// Nothing waits for this listener any more.
    pub(super) fn forget(&mut self, listener: u32) {
        if let Some(waiting) = self.waiting.remove(&listener) {
            self.count -= waiting.segments.len();
        }
    }

    /// Waits behind all others of the listener; what has come again stays where it is. False: there is no space.
    pub(super) fn push(&mut self, now: Instant, listener: u32, segment: Deferred) -> bool {
        if self.is_full(listener) {
            self.forget_expired(now);
            if self.is_full(listener) {
                return false;
            }
        }
        let waiting = self.waiting.entry(listener).or_default();
        let mut all = waiting.segments.iter_mut();
        if let Some((came_at, _)) = all.find(|(_, other)| other.is_again(&segment)) {
            *came_at = now;
        } else {
            waiting.segments.push_back((now, segment));
            self.count += 1;
        }
        true
    }

    fn is_full(&self, listener: u32) -> bool {
        let waiting = self.waiting.get(&listener);
        self.count == ALL_MAX
            || waiting.is_some_and(|waiting| waiting.segments.len() == SEGMENTS_MAX)
    }

    /// What waited too long leaves from in front of each line: a program that never accepts takes nobody's space.
    fn forget_expired(&mut self, now: Instant) {
        self.waiting.retain(|_, waiting| {
            self.count -= waiting.forget_expired(now);
            !waiting.segments.is_empty()
        });
    }

    /// The next one that may come in.
    pub(crate) fn take(&mut self, now: Instant, listener: u32) -> Option<Deferred> {
        let waiting = self.waiting.get_mut(&listener)?;
        self.count -= waiting.forget_expired(now);
        waiting.space = waiting.space.checked_sub(1)?;
        let (_, first) = waiting.segments.pop_front()?;
        self.count -= 1;
        if waiting.segments.is_empty() {
            self.waiting.remove(&listener);
        }
        Some(first)
    }
}
