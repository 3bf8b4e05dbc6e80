//! Packets that wait for a neighbour's hardware address (RFC 1122 §2.3.2.2 wants at least the latest
//! kept). TCP waits in its window instead; a datagram has nobody else who would send it again.
//!
//! Bounded in packets and bytes over all neighbours; the oldest go first. Memory is taken when a packet
//! is held, which happens before a neighbour is known and not per packet.

use super::Link;
use super::interface::InterfaceId;
use super::neighbour::{NeighbourState, Readiness};
use crate::egress::{Egress, Frame, PartialChecksum, Payload};
use std::collections::VecDeque;
use tcp::Instant;

/// Packets held at most.
const PACKETS_MAX: usize = 256;
/// Bytes held at most.
const BYTES_MAX: usize = 1 << 20;

/// A whole frame without its destination.
#[derive(Debug)]
struct Packet {
    interface: InterfaceId,
    neighbour: u32,
    generation: u32,
    bytes: Vec<u8>,
    checksum: Option<PartialChecksum>,
}

/// All that wait, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct WaitingPackets {
    packets: VecDeque<Packet>,
    bytes: usize,
    /// A neighbour changed since the last look.
    has_news: bool,
}

impl WaitingPackets {
    /// Some neighbour became known or failed.
    pub(crate) fn on_neighbour_changed(&mut self) {
        self.has_news = !self.packets.is_empty();
    }

    /// Whether there is something to do.
    pub(crate) const fn wants_transmit(&self) -> bool {
        self.has_news
    }

    /// Whether any packet waits, for whatever it is.
    pub(crate) fn holds_some(&self) -> bool {
        !self.packets.is_empty()
    }

    /// Drops the oldest; false: there is none.
    fn drop_oldest(&mut self) -> bool {
        let Some(packet) = self.packets.pop_front() else {
            return false;
        };
        self.bytes -= packet.bytes.len();
        true
    }
}

impl Link {
    /// Keeps a frame until neighbour `n` is known.
    pub(crate) fn hold(&mut self, frame: &Frame<'_>, n: u32) {
        let mut bytes = frame.headers.to_vec();
        if let Payload::Bytes(payload) = frame.payload {
            bytes.extend_from_slice(payload);
        }
        let held = &mut self.waiting;
        while held.packets.len() >= PACKETS_MAX || held.bytes + bytes.len() > BYTES_MAX {
            if !held.drop_oldest() {
                break;
            }
            self.counters.ip_out_discards += 1;
        }
        held.bytes += bytes.len();
        held.packets.push_back(Packet {
            interface: frame.interface,
            neighbour: n,
            generation: self.neighbours.entry(n).generation,
            bytes,
            checksum: frame.checksum,
        });
    }

    /// Sends what no longer has to wait and drops what waited in vain.
    pub(crate) fn send_held(&mut self, now: Instant, egress: &mut dyn Egress) {
        if !core::mem::take(&mut self.waiting.has_news) {
            return;
        }
        for _ in 0..self.waiting.packets.len() {
            let Some(mut packet) = self.waiting.packets.pop_front() else {
                return;
            };
            self.waiting.bytes -= packet.bytes.len();
            let entry = self.neighbours.entry(packet.neighbour);
            let is_gone = entry.generation != packet.generation;
            if is_gone || entry.state == NeighbourState::Failed {
                self.counters.ip_out_discards += 1;
                continue;
            }
            if let Readiness::Ready(hardware) = self.neighbours.ready(now, packet.neighbour) {
                self.arm_neighbour(packet.neighbour);
                packet.bytes[..6].copy_from_slice(&hardware.0);
                let frame = Frame {
                    checksum: packet.checksum,
                    ..Frame::whole(packet.interface, &packet.bytes)
                };
                if egress.transmit(&frame).is_ok() {
                    self.counters.ip_out_requests += 1;
                    continue;
                }
                self.waiting.has_news = true;
            }
            self.waiting.bytes += packet.bytes.len();
            self.waiting.packets.push_back(packet);
        }
    }
}
