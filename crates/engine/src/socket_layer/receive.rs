//! From the device, and from this engine to itself, into the stack.

use super::SocketLayer;
use crate::device::link::{IsMapped, head};
use crate::sockets::hears_acks;
use crate::sockets::rows::Marks;
use crate::sockets::user_buffer::{UserBuffer, WithUserBuffer};
use hostif::stages::{Mark, mark, mark_at};
use nic::{LocalPeerChange, RxChecksum};
use stack::RxMeta;
use tcp::Instant;

/// Frames taken from the driver in one poll.
const BUDGET: usize = 64;

impl SocketLayer {
    /// Takes frames from the device, each of which `see` is shown first. Bytes for one socket may go to the buffer that
    /// its thread has passed: then frame by frame, until it is full. Returns how many.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        see: impl Fn(&[u8]),
        lent: Option<(&mut UserBuffer<'_, '_>, Option<u32>)>,
    ) -> usize {
        let Some((user_buffer, row)) = lent else {
            return self.receive_burst(now, BUDGET, &see, None);
        };
        if row.is_none() {
            user_buffer.close();
        }
        let mut frames = 0;
        while frames < BUDGET && !user_buffer.is_spent() {
            let received = self.receive_burst(now, 1, &see, Some(user_buffer));
            frames += received;
            if received == 0 {
                break;
            }
        }
        if let Some(row) = row
            && user_buffer.placed() > 0
        {
            self.sockets
                .with_header(row, |header| header.program_set_consumed(user_buffer.end()));
        }
        frames
    }

    fn receive_burst(
        &mut self,
        now: Instant,
        budget: usize,
        see: &impl Fn(&[u8]),
        mut user_buffer: Option<&mut UserBuffer<'_, '_>>,
    ) -> usize {
        let Self {
            link,
            stack,
            sockets,
            replies,
            interface,
            ..
        } = self;
        let received = link.driver.rx_burst(budget, &mut |frame| {
            mark_at(Mark::Arrived, frame.arrived_at_ns);
            mark(Mark::Received);
            see(frame.bytes);
            if !link.captures.is_empty() {
                link.captures.add(false, |max| head(frame.bytes, max));
            }
            let checksum = match frame.checksum {
                RxChecksum::Unknown => stack::RxChecksum::Unknown,
                RxChecksum::Verified => stack::RxChecksum::Verified,
                RxChecksum::Partial => stack::RxChecksum::Partial,
            };
            let meta = RxMeta {
                checksum,
                segment_bytes: frame.segment_size,
            };
            match user_buffer.as_deref_mut() {
                None => {
                    stack.handle_frame(now, *interface, frame.bytes, meta, sockets, replies);
                }
                Some(user_buffer) => {
                    let mut host = WithUserBuffer {
                        sockets,
                        user_buffer,
                    };
                    stack.handle_frame(now, *interface, frame.bytes, meta, &mut host, replies);
                }
            }
        });
        let frames = received.unwrap_or_else(|error| {
            link.device.on_failure(error);
            0
        });
        link.send_replies(replies);
        frames
    }

    /// The row of the socket for which the program in `slot` has passed a buffer, if its connection stands where the buffer says.
    pub(crate) fn row_to_lend_to(
        &self,
        user_buffer: &UserBuffer<'_, '_>,
        slot: usize,
    ) -> Option<u32> {
        let row = self.sockets.held_by(user_buffer.socket(), slot)?;
        let view = self.stack.view(self.sockets.row(row).connection()?).ok()?;
        (view.readable_end == user_buffer.end() && view.urgent_end.is_none()).then_some(row)
    }

    /// Takes in one frame of the device's that came another way. What it is answered with waits for `send_replies`.
    pub(crate) fn receive_frame(
        &mut self,
        now: Instant,
        frame: &[u8],
        checksum: stack::RxChecksum,
    ) {
        let meta = RxMeta {
            checksum,
            ..RxMeta::default()
        };
        let (sockets, replies) = (&mut self.sockets, &mut self.replies);
        self.stack
            .handle_frame(now, self.interface, frame, meta, sockets, replies);
    }

    /// Sends what received frames are answered with.
    pub(crate) fn send_replies(&mut self) {
        self.link.send_replies(&mut self.replies);
    }

    /// Takes what this engine has sent to its own addresses.
    pub(crate) fn receive_own(&mut self, now: Instant) -> usize {
        let mut frames = 0;
        while frames < BUDGET
            && let Some(bytes) = self.link.loopback.pop()
        {
            let interface = self.link.loopback.interface();
            let meta = RxMeta {
                checksum: stack::RxChecksum::Partial,
                ..RxMeta::default()
            };
            let Self {
                stack,
                sockets,
                replies,
                ..
            } = self;
            stack.handle_frame(now, interface, &bytes, meta, sockets, replies);
            self.link.loopback.give_back(bytes);
            frames += 1;
        }
        self.link.send_replies(&mut self.replies);
        frames
    }

    /// Hears of stations that the driver reaches by itself.
    pub(crate) fn follow_neighbours(&mut self, now: Instant) -> usize {
        let mut changes = 0;
        while let Some(change) = self.link.driver.poll_local_peer() {
            changes += 1;
            match change {
                LocalPeerChange::Here(address) => {
                    let hardware = self.link.driver.caps().hardware_address;
                    // Where the table is full, it is asked for again.
                    let _ = self
                        .stack
                        .set_neighbour(now, self.interface, address, Some(hardware));
                }
                LocalPeerChange::Gone(address) => {
                    self.stack
                        .lose_station(now, self.interface, address, &mut self.sockets);
                    self.byte_channels.forget_regions(&mut self.link);
                }
            }
        }
        changes
    }

    /// Lets go of the mapped files that peers have acknowledged, and stamps those bytes that are waited for.
    pub(crate) fn follow_acknowledged(&mut self) {
        for at in 0..self.sockets.acknowledged.len() {
            let (row, acknowledged) = self.sockets.acknowledged[at];
            let hears = self.sockets.companion(row).hears_acks;
            if hears & hears_acks::FILES != 0
                && self.link.release_files(row, acknowledged) == IsMapped(false)
            {
                self.sockets.companion(row).hears_acks &= !hears_acks::FILES;
                self.sockets.set_mark(row, Marks::BOUND_HERE, false);
            }
            if hears & hears_acks::STAMPS != 0 {
                self.stamps
                    .acknowledge(&mut self.sockets, row, acknowledged);
            }
        }
        self.sockets.acknowledged.clear();
    }
}
