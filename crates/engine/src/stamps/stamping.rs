//! Times of sending, where the engine's parts meet: what programs ask for, what leaves and what is acknowledged (`stamps`).

use crate::core::EngineCore;
use crate::device::link::Link;
use crate::sockets::hears_acks;
use crate::stamps::{SWEEP_ROWS, Stamps};
use core::net::IpAddr;
use hostif::SocketId;
use hostif::stamp::{
    ACKNOWLEDGED, BYTES_MAX, SCHEDULED, SENT, TOLD_ACKNOWLEDGED, TOLD_SCHEDULED, TOLD_SENT, Told,
};
use stack::{Busy, Egress, EgressCaps, Frame, InterfaceId, Payload};

impl EngineCore {
    /// A program wants to hear of the byte before `end`.
    pub(crate) fn ask_for_stamps(&mut self, row: u32, end: u64, wants: u8) {
        let (Some(byte), Some(id)) = (end.checked_sub(1), self.sockets.id(row)) else {
            return;
        };
        let Some(connection) = self.sockets.row(row).connection() else {
            return;
        };
        let (Ok(view), Ok(sent)) = (self.stack.view(connection), self.stack.sent(connection))
        else {
            return;
        };
        if self.stamps.rows.len() >= SWEEP_ROWS && self.stamps.rows.len().is_power_of_two() {
            let sockets = &self.sockets;
            self.stamps
                .rows
                .retain(|row, of| sockets.id(*row) == Some(of.id));
            self.stamps.waiting = self.stamps.rows.values().map(|of| of.waiting()).sum();
        }
        let of = self.stamps.of(row, id);
        let before = of.waiting();
        // What is beyond the window went by a byte channel, and is the neighbour's.
        let is_there = byte >= view.written || byte < view.acknowledged;
        if is_there || byte < sent {
            for (want, what) in [(SCHEDULED, TOLD_SCHEDULED), (SENT, TOLD_SENT)] {
                if wants & want != 0 {
                    of.tell(what, byte, &[], 0);
                }
            }
            if is_there && wants & ACKNOWLEDGED != 0 {
                of.tell(TOLD_ACKNOWLEDGED, byte, &[], 0);
            }
        }
        if !is_there {
            let wants = if byte < sent {
                wants & ACKNOWLEDGED
            } else {
                wants
            };
            of.ask(byte, wants, sent);
        }
        let after = of.waiting();
        self.stamps.waiting = self.stamps.waiting + after - before;
        self.stamps.news.push(row);
        self.sockets.companion(row).hears_acks |= hears_acks::STAMPS;
    }

    /// The peer has acknowledged bytes of a socket, or never will.
    pub(crate) fn stamp_acknowledged(&mut self, row: u32, acknowledged: u64) {
        let Some(id) = self.sockets.id(row) else {
            return;
        };
        let end = (acknowledged != u64::MAX).then_some(acknowledged);
        if !self.stamps.on_acknowledged(row, id, end) {
            self.sockets.companion(row).hears_acks &= !hears_acks::STAMPS;
        }
    }

    /// Sends what connections have to send.
    pub(crate) fn transmit(&mut self, now: tcp::Instant, budget: usize) -> usize {
        let Self {
            stack,
            sockets,
            link,
            stamps,
            ..
        } = self;
        if stamps.waiting == 0 {
            return stack.poll_transmit(now, sockets, link, budget);
        }
        let mut stamping = Stamping { link, stamps };
        stack.poll_transmit(now, sockets, &mut stamping, budget)
    }

    /// Programs hear of new times.
    pub(crate) fn tell_stamps(&mut self) {
        while let Some(row) = self.stamps.news.pop() {
            self.publish_stamps(row);
            self.sockets.count_rx(row);
        }
    }

    fn publish_stamps(&mut self, row: u32) {
        let id = self.sockets.id(row);
        let of = self.stamps.rows.get(&row).filter(|of| Some(of.id) == id);
        let count = of.map_or(0, |of| u32::try_from(of.told.len()).unwrap_or(u32::MAX));
        self.sockets
            .with_header(row, |header| header.engine_set_stamps(count));
    }

    /// The oldest time that a program has not fetched.
    pub(crate) fn take_stamp(&mut self, row: u32) -> Option<Told> {
        let id = self.sockets.id(row);
        let of = self
            .stamps
            .rows
            .get_mut(&row)
            .filter(|of| Some(of.id) == id);
        let told = of?.told.pop_front();
        self.publish_stamps(row);
        told
    }
}

/// The link, in a turn in which bytes are waited for.
struct Stamping<'a> {
    link: &'a mut Link,
    stamps: &'a mut Stamps,
}

impl Egress for Stamping<'_> {
    fn caps(&self, interface: InterfaceId) -> EgressCaps {
        self.link.caps(interface)
    }

    fn resolve(&mut self, interface: InterfaceId, address: IpAddr) {
        self.link.resolve(interface, address);
    }

    fn transmit(&mut self, frame: &Frame<'_>) -> Result<(), Busy> {
        self.link.transmit(frame)?;
        if let Payload::Window {
            owner, offset, len, ..
        } = frame.payload
            && let Some(id) = SocketId::from_bits(owner)
        {
            let copy = || self.link.head_of(frame, BYTES_MAX);
            self.stamps
                .on_sent(id, offset, offset + u64::from(len), copy);
        }
        Ok(())
    }
}
