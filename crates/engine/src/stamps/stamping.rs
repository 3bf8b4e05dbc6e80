//! Times of sending, where the engine's parts meet: what programs ask for, what leaves and what is acknowledged (`stamps`).

use super::{SWEEP_ROWS, Stamps};
use crate::device::link::{Link, Observed};
use crate::sockets::{Sockets, hears_acks};
use hostif::SocketId;
use hostif::stamp::{
    ACKNOWLEDGED, BYTES_MAX, SCHEDULED, SENT, TOLD_ACKNOWLEDGED, TOLD_SCHEDULED, TOLD_SENT, Told,
};
use stack::{Frame, Payload, Stack};
use tcp::Instant;

impl Stamps {
    /// A program wants to hear of the byte before `end`.
    pub(crate) fn ask(
        &mut self,
        stack: &Stack<'_>,
        sockets: &mut Sockets,
        row: u32,
        end: u64,
        wants: u8,
    ) {
        let (Some(byte), Some(id)) = (end.checked_sub(1), sockets.id(row)) else {
            return;
        };
        let Some(connection) = sockets.row(row).connection() else {
            return;
        };
        let (Ok(view), Ok(sent)) = (stack.view(connection), stack.sent(connection)) else {
            return;
        };
        if self.rows.len() >= SWEEP_ROWS && self.rows.len().is_power_of_two() {
            self.rows.retain(|row, of| sockets.id(*row) == Some(of.id));
            self.waiting = self.rows.values().map(|of| of.waiting()).sum();
        }
        let of = self.of(row, id);
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
        self.waiting = self.waiting + after - before;
        self.news.push(row);
        sockets.companion(row).hears_acks |= hears_acks::STAMPS;
    }

    /// The peer has acknowledged bytes of a socket, or never will.
    pub(crate) fn acknowledge(&mut self, sockets: &mut Sockets, row: u32, acknowledged: u64) {
        let Some(id) = sockets.id(row) else {
            return;
        };
        let end = (acknowledged != u64::MAX).then_some(acknowledged);
        if !self.on_acknowledged(row, id, end) {
            sockets.companion(row).hears_acks &= !hears_acks::STAMPS;
        }
    }

    /// Whether no time of sending is waited for.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.news.is_empty()
    }

    /// Sends what connections have to send: at most `budget` segments. Returns how many.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        stack: &mut Stack<'_>,
        sockets: &mut Sockets,
        link: &mut Link,
        budget: usize,
    ) -> usize {
        if self.waiting == 0 {
            return stack.poll_transmit(now, sockets, link, budget);
        }
        let see = |link: &Link, frame: &Frame<'_>| {
            if let Payload::Window {
                owner, offset, len, ..
            } = frame.payload
                && let Some(id) = SocketId::from_bits(owner)
            {
                let copy = || link.head_of(frame, BYTES_MAX);
                self.on_sent(id, offset, offset + u64::from(len), copy);
            }
        };
        stack.poll_transmit(now, sockets, &mut Observed { link, see }, budget)
    }

    /// Tells programs of new times.
    pub(crate) fn tell(&mut self, sockets: &mut Sockets) {
        while let Some(row) = self.news.pop() {
            self.publish(sockets, row);
            sockets.count_rx(row);
        }
    }

    fn publish(&self, sockets: &Sockets, row: u32) {
        let id = sockets.id(row);
        let of = self.rows.get(&row).filter(|of| Some(of.id) == id);
        let count = of.map_or(0, |of| u32::try_from(of.told.len()).unwrap_or(u32::MAX));
        sockets.with_header(row, |header| header.engine_set_stamps(count));
    }

    /// The oldest time that a program has not fetched.
    pub(crate) fn take(&mut self, sockets: &Sockets, row: u32) -> Option<Told> {
        let id = sockets.id(row);
        let of = self.rows.get_mut(&row).filter(|of| Some(of.id) == id);
        let told = of?.told.pop_front();
        self.publish(sockets, row);
        told
    }
}
