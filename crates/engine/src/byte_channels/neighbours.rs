//! Byte channels between programs with engines inside: the side that accepted offers a slot to its neighbour.

use std::net::SocketAddr;

use hostif::ChannelRegion;
use hostif::byte_channel::region::SLOTS;
use hostif::header::SlotName;
use nic::ControlMessage;
use stack::Stack;
use tcp::Instant;

use super::message::ChannelMessage;
use super::{Between, ByteChannels, PeerRegion, hear};
use crate::device::link::Link;
use crate::sockets::Sockets;

impl ByteChannels {
    pub(super) fn by_neighbour(&mut self, neighbour: u64) -> Option<&mut PeerRegion> {
        let is_its = |one: &&mut PeerRegion| matches!(one.between, Between::Neighbour { id, .. } if id == neighbour);
        self.regions.iter_mut().find(is_its)
    }

    pub(super) fn send(&mut self, neighbour: u64, message: &ChannelMessage) {
        let note = (neighbour, message.emit());
        if !self.unsent.contains(&note) {
            self.unsent.push_back(note);
        }
    }

    pub(super) fn send_all(&mut self, link: &mut Link) {
        while let Some((neighbour, note)) = self.unsent.front() {
            let Some(neighbours) = link.driver.local_peers() else {
                return;
            };
            match neighbours.tell(*neighbour, note) {
                Ok(true) => drop(self.unsent.pop_front()),
                Ok(false) => return,
                Err(error) => {
                    link.device.on_failure(error);
                    return;
                }
            }
        }
    }

    /// The memory shared with a neighbour; mapped when it is first needed.
    fn region_with(&mut self, neighbour: u64, link: &mut Link) -> Option<&mut PeerRegion> {
        if self.by_neighbour(neighbour).is_none() {
            let (file, is_maker) = link.driver.local_peers()?.take_memory(neighbour)?;
            // A neighbour whose memory is something else gets segments.
            let channel_region = ChannelRegion::adopt(file).ok()?;
            let number = self.next_number();
            let between = Between::Neighbour {
                id: neighbour,
                side: u8::from(!is_maker),
            };
            self.regions.push(PeerRegion {
                number,
                between,
                channel_region,
                owners: Box::new([[0; 2]; SLOTS as usize]),
            });
        }
        self.by_neighbour(neighbour)
    }

    /// A connection between these ends, that this side has accepted, stands.
    pub(super) fn offer_slot(
        &mut self,
        row: u32,
        (local, remote): (SocketAddr, SocketAddr),
        sockets: &mut Sockets,
        link: &mut Link,
    ) {
        let Some(owner) = sockets.id(row) else {
            return;
        };
        let Some(neighbour) = link
            .driver
            .local_peers()
            .and_then(|all| all.find(remote.ip()))
        else {
            return;
        };
        let Some(region) = self.region_with(neighbour, link) else {
            return;
        };
        let Between::Neighbour { side, .. } = region.between else {
            return;
        };
        let is_free = |slot: &u32| {
            let at = usize::try_from(*slot).unwrap_or(usize::MAX);
            region.owners[at] == [0, 0]
                && region
                    .channel_region
                    .uses(*slot)
                    .is_some_and(|uses| uses.try_offer(side))
        };
        let own_half = (u32::from(side)..SLOTS).step_by(2);
        let Some(slot) = own_half.into_iter().find(is_free) else {
            return;
        };
        if let Some((out, back)) = region.channel_region.channel_pairs(slot, side) {
            out.byte_channel.reset();
            back.byte_channel.reset();
        }
        self.use_slot(neighbour, slot, sockets, (row, owner.to_bits()));
        let message = ChannelMessage::Offer {
            slot,
            acceptor: local,
            opener: remote,
        };
        self.send(neighbour, &message);
    }

    /// A socket has a slot from now on.
    fn use_slot(
        &mut self,
        neighbour: u64,
        slot: u32,
        sockets: &mut Sockets,
        (row, socket): (u32, u64),
    ) {
        let Some(region) = self.by_neighbour(neighbour) else {
            return;
        };
        let Between::Neighbour { side, .. } = region.between else {
            return;
        };
        let name = SlotName {
            channel_region: region.number,
            slot,
            side,
        };
        if let Some(owner) = region.owner(slot, side) {
            *owner = socket;
        }
        sockets.companion(row).slot = Some(name);
        sockets.with_header(row, |header| header.engine_set_slot(Some(name)));
    }

    pub(super) fn on_message(
        &mut self,
        now: Instant,
        neighbour: u64,
        message: ChannelMessage,
        stack: &mut Stack<'_>,
        sockets: &mut Sockets,
        link: &mut Link,
    ) {
        match message {
            ChannelMessage::Offer {
                slot,
                acceptor,
                opener,
            } => {
                let Some(region) = self.region_with(neighbour, link) else {
                    return;
                };
                let Between::Neighbour { side, .. } = region.between else {
                    return;
                };
                let is_used = region.owner(slot, side).is_none_or(|it| *it != 0);
                let Some(uses) = region.channel_region.uses(slot) else {
                    return;
                };
                let is_theirs = slot % 2 != u32::from(side);
                let is_its_own = |link: &mut Link| {
                    let neighbours = link.driver.local_peers();
                    neighbours.is_some_and(|all| all.has(neighbour, acceptor.ip()))
                };
                let row = if is_theirs && !is_used && is_its_own(link) {
                    let owner = stack.owner_between(opener, acceptor);
                    owner.and_then(|owner| Some((sockets.row_of(owner)?, owner)))
                } else {
                    None
                };
                let row = row.filter(|(row, _)| {
                    let is_plain = !sockets.row(*row).tells_arrival;
                    is_plain && sockets.companion(*row).slot.is_none()
                });
                uses.hear(side, row.is_some());
                if let Some((row, owner)) = row {
                    self.use_slot(neighbour, slot, sockets, (row, owner));
                }
            }
            ChannelMessage::News { slot, news } => {
                let owner = self.by_neighbour(neighbour).and_then(|region| {
                    let Between::Neighbour { side, .. } = region.between else {
                        return None;
                    };
                    region.owner(slot, side).copied()
                });
                hear(now, sockets, owner, news);
            }
        }
    }
}

/// What a neighbour has said.
pub(super) fn recv(link: &mut Link) -> Option<(u64, ControlMessage)> {
    link.driver.local_peers()?.hear()
}
