//! From the device, and from this engine to itself, into the stack.

use super::SocketLayer;
use crate::device::link::{IsMapped, head};
use crate::sockets::Sockets;
use crate::sockets::hears_acks;
use crate::sockets::user_buffer::{UserBuffer, WithUserBuffer};
use hostif::stages::{Mark, mark, mark_at};
use nic::{LocalPeerChange, RxChecksum};
use stack::{Host, RxMeta, Stack};
use tcp::Instant;

/// Frames taken from the driver in one poll.
pub(super) const BUDGET: usize = 64;

/// The slot of a session that keeps to the protocol.
pub(crate) type SlotOf<'a> = &'a dyn Fn(u32) -> Option<usize>;

/// The row of the socket for which a thread has passed a buffer, if its session holds it and its connection stands where
/// the buffer says.
#[inline(always)]
fn row_for_user_buffer(
    stack: &Stack<'_>,
    sockets: &Sockets,
    user_buffer: &UserBuffer<'_, '_>,
    slot_of: SlotOf<'_>,
) -> Option<u32> {
    let slot = slot_of(user_buffer.session())?;
    let row = sockets.held_by(user_buffer.socket(), slot)?;
    let tcp = stack.connection(sockets.row(row).connection()?).ok()?;
    (tcp.readable_end() == user_buffer.end() && tcp.urgent_end().is_none()).then_some(row)
}

impl SocketLayer {
    /// Takes frames from the device, each of which `see` is shown first. Bytes for one socket may go to the buffer that
    /// its thread has passed: then frame by frame, until it is full. Returns how many. The slot of the thread's session is
    /// asked for at the first frame.
    #[inline(always)]
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        see: impl Fn(&[u8]),
        lent: Option<(&mut UserBuffer<'_, '_>, SlotOf<'_>)>,
    ) -> usize {
        let Some((user_buffer, slot_of)) = lent else {
            let frames = self.receive_burst(now, BUDGET, &see, None);
            self.bursts.add(frames);
            return frames;
        };
        let mut frames = 0;
        while frames < BUDGET && !user_buffer.is_spent() {
            let received = self.receive_burst(now, 1, &see, Some((user_buffer, slot_of)));
            frames += received;
            if received == 0 || !self.link.driver.may_have_frames() {
                break;
            }
        }
        self.bursts.add(frames);
        if let Some(row) = user_buffer.row()
            && user_buffer.placed() > 0
        {
            self.sockets
                .with_header(row, |header| header.program_set_consumed(user_buffer.end()));
        }
        frames
    }

    #[inline(always)]
    fn receive_burst(
        &mut self,
        now: Instant,
        budget: usize,
        see: &impl Fn(&[u8]),
        mut lent: Option<(&mut UserBuffer<'_, '_>, SlotOf<'_>)>,
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
            let mut with_buffer;
            let host: &mut dyn Host = match &mut lent {
                None => sockets,
                Some((user_buffer, slot_of)) => {
                    user_buffer
                        .judge(|buffer| row_for_user_buffer(stack, sockets, buffer, slot_of));
                    with_buffer = WithUserBuffer {
                        sockets,
                        user_buffer,
                    };
                    &mut with_buffer
                }
            };
            stack.handle_frame(now, *interface, frame.bytes, meta, host, replies);
        });
        let frames = received.unwrap_or_else(|error| {
            link.device.on_failure(error);
            0
        });
        if !replies.is_empty() {
            link.send_replies(replies);
            link.flush();
        }
        frames
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
    #[inline]
    pub(crate) fn receive_own(&mut self, now: Instant) -> usize {
        match self.link.loopback.is_empty() {
            true => 0,
            false => self.receive_looped(now),
        }
    }

    #[inline(never)]
    fn receive_looped(&mut self, now: Instant) -> usize {
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
    #[inline]
    pub(crate) fn follow_neighbours(&mut self, now: Instant) -> usize {
        match self.link.driver.has_peer_news() {
            true => self.take_peer_news(now),
            false => 0,
        }
    }

    #[inline(never)]
    fn take_peer_news(&mut self, now: Instant) -> usize {
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
                    self.byte_channels
                        .forget_regions(&self.sockets, &mut self.link);
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
            }
            if hears & hears_acks::STAMPS != 0 {
                self.stamps
                    .acknowledge(&mut self.sockets, row, acknowledged);
            }
        }
        self.sockets.acknowledged.clear();
    }
}
