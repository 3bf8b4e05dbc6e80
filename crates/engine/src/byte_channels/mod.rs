//! Connections to programs of this host whose bytes pass through memory that both programs map (`hostif::byte_channel`), not as
//! segments. Handshake, FIN, RST, urgent data, options, timers stay the stack's; here is decided who gets which slot, and what
//! one side's program has to be told of the other's. Why: docs/decisions/0039-bytes-between-neighbours.md.
//!
//! Where the other end is a neighbour's, the side that accepted offers a slot, in a note to the neighbour, which takes it where
//! the connection stands. Where it is another program of this engine, both have their slot at once (`same_engine.rs`). Programs
//! are told by the socket's header. Whether a byte channel is used is the programs' affair: who receives says
//! that it looks there, and who sends opens it then. A program that sends to one that waits asks its engine, which wakes the
//! other, or asks the neighbour to: by a note, which wakes the neighbour as a frame would.

mod message;
mod neighbours;
mod same_engine;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use hostif::byte_channel::region::SLOTS;
use hostif::header::SlotName;
use hostif::{ChannelPair, ChannelRegion, LaneNews};
use nic::ControlMessage;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use stack::Stack;
use tcp::Instant;

use crate::device::link::Link;
use crate::programs::users::User;
use crate::sockets::Sockets;
use crate::state::rows::ChannelRow;
use message::ChannelMessage;

/// Between whom memory lies.
enum Between {
    /// This engine and a neighbour.
    Neighbour { id: u64, side: u8 },
    /// Two programs of this engine: the numbers of their regions and their users, side 0 first.
    Programs {
        regions: [u32; 2],
        users: [Arc<User>; 2],
    },
}

/// Memory with slots.
struct PeerRegion {
    number: u32,
    between: Between,
    channel_region: ChannelRegion,
    /// Who uses each side of each slot, as the stack names its owners; 0: nobody, or it is the neighbour's side.
    owners: Box<[[u64; 2]; SLOTS as usize]>,
}

impl PeerRegion {
    fn owner(&mut self, slot: u32, side: u8) -> Option<&mut u64> {
        let sides = self.owners.get_mut(usize::try_from(slot).ok()?)?;
        Some(&mut sides[usize::from(side & 1)])
    }

    /// Bytes that one side says it has sent.
    fn told(&self, slot: u32, side: u8) -> u64 {
        let pairs = self.channel_region.channel_pairs(slot, side);
        pairs.map_or(0, |(out, _)| out.byte_channel.told())
    }

    fn is_used(&self) -> bool {
        self.owners.iter().any(|sides| *sides != [0, 0])
    }
}

/// All slots of a core.
pub struct ByteChannels {
    core: u16,
    regions: Vec<PeerRegion>,
    /// What of this the next engine goes on with, owners of slots included.
    rows: &'static mut [ChannelRow],
    last_number: u32,
    /// Bytes that went by slots which are used no more.
    passed_before: u64,
    /// Notes that have not left; one for each slot and kind at most.
    unsent: VecDeque<(u64, ControlMessage)>,
}

impl ByteChannels {
    /// None yet.
    pub(crate) fn new(core: u16, rows: &'static mut [ChannelRow]) -> Self {
        Self {
            core,
            regions: Vec::new(),
            rows,
            last_number: 0,
            passed_before: 0,
            unsent: VecDeque::new(),
        }
    }

    fn by_number(&mut self, number: u32) -> Option<&mut PeerRegion> {
        self.regions.iter_mut().find(|one| one.number == number)
    }

    /// A number that no other memory of this engine has.
    fn next_number(&mut self) -> u32 {
        loop {
            self.last_number = self.last_number.wrapping_add(1);
            let number = hostif::id::number_of_core(self.core, self.last_number);
            if number != 0 && self.by_number(number).is_none() {
                return number;
            }
        }
    }

    /// Bytes that a socket has sent and received through memory so far, as the headers of both sides say.
    pub fn passed(&self, sockets: &Sockets, row: u32) -> Option<(u64, u64)> {
        let name = sockets.slot(row)?;
        let mut regions = self.regions.iter();
        let region = regions.find(|one| one.number == name.channel_region)?;
        let (out, back) = region.channel_region.channel_pairs(name.slot, name.side)?;
        Some((out.byte_channel.told(), back.byte_channel.told()))
    }

    /// Bytes that programs have sent through memory, as they say.
    pub(crate) fn passed_in_all(&self) -> u64 {
        let mut sum = self.passed_before;
        for region in &self.regions {
            for (slot, sides) in (0..SLOTS).zip(region.owners.iter()) {
                for (side, owner) in [0, 1].into_iter().zip(sides) {
                    if *owner != 0 {
                        sum = sum.saturating_add(region.told(slot, side));
                    }
                }
            }
        }
        sum
    }

    /// Memory that is there.
    #[cfg(test)]
    pub(crate) fn region_count(&self) -> usize {
        self.regions.len()
    }

    /// Whether notes wait for space on the wire.
    pub fn has_backlog(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn channel_pairs(&self, name: SlotName) -> Option<(ChannelPair, ChannelPair)> {
        let region = self
            .regions
            .iter()
            .find(|one| one.number == name.channel_region)?;
        region.channel_region.channel_pairs(name.slot, name.side)
    }
}

impl ByteChannels {
    /// Whether [`ByteChannels::poll`] has anything to do.
    #[inline]
    pub(crate) fn has_news(&self, sockets: &Sockets, link: &Link) -> bool {
        !(sockets.established.is_empty()
            && sockets.left_slots.is_empty()
            && self.unsent.is_empty()
            && !link.driver.has_peer_news())
    }

    /// Everything about byte channels that a poll has to do. Returns how much that was.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        stack: &mut Stack<'_>,
        sockets: &mut Sockets,
        link: &mut Link,
    ) -> usize {
        if !self.has_news(sockets, link) {
            return 0;
        }
        for at in 0..sockets.established.len() {
            let row = sockets.established[at];
            let Some((local, remote)) = ends_without_slot(row, stack, sockets) else {
                continue;
            };
            match same_engine::other_end(row, (local, remote), stack, sockets) {
                // What a capture is to show has to go by segments.
                Some(other) if link.captures.is_empty() => self.join([row, other], sockets),
                Some(_) => {}
                None => self.offer_slot(row, (local, remote), sockets, link),
            }
        }
        sockets.established.clear();
        let mut work = 0;
        while let Some((neighbour, note)) = neighbours::recv(link) {
            work += 1;
            if let Some(message) = ChannelMessage::parse(&note) {
                self.on_message(now, neighbour, message, stack, sockets, link);
            }
        }
        if !sockets.left_slots.is_empty() {
            while let Some(name) = sockets.left_slots.pop() {
                self.leave_slot(name);
            }
            self.forget_regions(sockets, link);
        }
        self.send_all(link);
        work
    }

    /// A program has told something of its byte channels.
    pub(crate) fn tell(
        &mut self,
        now: Instant,
        stack: &mut Stack<'_>,
        sockets: &mut Sockets,
        row: u32,
        news: LaneNews,
    ) -> Result<u64, Errno> {
        let name = sockets.companion(row).slot.ok_or(Errno::INVAL)?;
        if news == LaneNews::Nonsense {
            let connection = sockets.row(row).connection().ok_or(Errno::NOTCONN)?;
            tracing::warn!("a neighbour's memory makes no sense: its connection is reset");
            let _ = stack.abort(now, connection, sockets);
            sockets.fail(row, Errno::CONNRESET);
            return Ok(0);
        }
        let region = self.by_number(name.channel_region).ok_or(Errno::INVAL)?;
        let slot = name.slot;
        match region.between {
            Between::Neighbour { id, .. } => self.send(id, &ChannelMessage::News { slot, news }),
            Between::Programs { .. } => {
                let other = region.owner(slot, name.side ^ 1).copied();
                hear(now, sockets, other, news);
            }
        }
        Ok(0)
    }

    /// The last holder closes a socket: nobody reads its byte channel any more. Whether there is something in it that nobody
    /// has read.
    pub(crate) fn stop_reading(&self, sockets: &mut Sockets, row: u32) -> bool {
        let Some(name) = sockets.companion(row).slot else {
            return false;
        };
        let consumed = sockets
            .with_header(row, |header| header.byte_channel_consumed())
            .unwrap_or(0);
        self.channel_pairs(name).is_some_and(|(_, back)| {
            back.byte_channel.leave();
            back.byte_channel.available(consumed) != Ok(0)
        })
    }

    /// Bytes of a connection's stream that went by its byte channels: sent and received.
    pub(crate) fn bytes(&self, sockets: &Sockets, row: u32) -> [u64; 2] {
        let read = |header: hostif::SocketHeader<'_>| {
            let there = header.slot().map(|name| self.channel_pairs(name));
            let consumed = header.byte_channel_consumed();
            let waiting = there
                .flatten()
                .and_then(|(_, back)| back.byte_channel.available(consumed).ok());
            [
                header.byte_channel_written(),
                consumed + waiting.unwrap_or(0),
            ]
        };
        sockets.with_header(row, read).unwrap_or_default()
    }

    /// A socket with a slot is gone.
    fn leave_slot(&mut self, name: SlotName) {
        let Some(region) = self.by_number(name.channel_region) else {
            return;
        };
        let told = region.told(name.slot, name.side);
        if let Between::Neighbour { .. } = region.between
            && let Some(uses) = region.channel_region.uses(name.slot)
        {
            uses.release(name.side);
        }
        self.set_owner(name, 0);
        self.passed_before = self.passed_before.saturating_add(told);
    }

    /// The memory of a neighbour or program that is gone goes with the last connection that has a slot in it.
    pub(crate) fn forget_regions(&mut self, sockets: &Sockets, link: &mut Link) {
        self.forget_programs(sockets);
        let Some(neighbours) = link.driver.local_peers() else {
            return;
        };
        self.regions.retain(|one| match one.between {
            Between::Neighbour { id, .. } => one.is_used() || neighbours.knows(id),
            Between::Programs { .. } => true,
        });
    }

    /// The memory of that number behind slots, for a program that holds sockets in these rows.
    ///
    /// # Errors
    /// None of them has a slot there, or no descriptor is free.
    pub(crate) fn region_file(
        &mut self,
        sockets: &mut Sockets,
        mut rows: impl Iterator<Item = u32>,
        number: u32,
    ) -> Result<OwnedFd, Errno> {
        let is_there = |row: u32| {
            let name = sockets.companion(row).slot;
            name.is_some_and(|name| name.channel_region == number)
        };
        if !rows.any(is_there) {
            return Err(Errno::ACCESS);
        }
        let region = self.by_number(number).ok_or(Errno::NOENT)?;
        let file = region.channel_region.file().ok_or(Errno::BADF)?;
        rustix::io::fcntl_dupfd_cloexec(file, 0)
    }
}

/// The ends, here and there, of a connection that stands, was accepted, and may have a slot.
fn ends_without_slot(
    row: u32,
    stack: &Stack<'_>,
    sockets: &mut Sockets,
) -> Option<(SocketAddr, SocketAddr)> {
    let record = sockets.row(row);
    let connection = record.connection()?;
    // What arrives by a byte channel has no time of arrival.
    if record.active || record.tells_arrival || sockets.companion(row).slot.is_some() {
        return None;
    }
    stack.addresses(connection).ok()
}

/// The other side of a slot has told something of it.
fn hear(now: Instant, sockets: &mut Sockets, owner: Option<u64>, news: LaneNews) {
    let Some(row) = owner.and_then(|owner| sockets.row_of(owner)) else {
        return;
    };
    sockets.set_now(now);
    match news {
        LaneNews::Bytes => sockets.count_rx(row),
        LaneNews::Room => sockets.count_tx(row),
        LaneNews::Nonsense => {}
    }
}

#[cfg(test)]
mod tests;
