//! Byte channels between two programs of one engine (docs/decisions/0085-programs-of-one-engine.md). The engine knows both ends: it gives
//! each its slot when the connection stands, and what one program tells of its side the other hears at once.
//!
//! Memory lies between two *regions*, that is between a program, with what it has forked, and another: whoever maps one
//! region sees headers and windows of all sockets there anyway. It is kept in rows, so that the next engine goes on with it.

use std::net::SocketAddr;
use std::sync::Arc;

use hostif::ChannelRegion;
use hostif::byte_channel::region::SLOTS;
use hostif::header::SlotName;
use stack::Stack;

use super::{Between, ByteChannels, PeerRegion};
use crate::programs::resume::Taken;
use crate::programs::users::User;
use crate::sockets::Sockets;
use crate::sockets::rows::Kind;
use crate::state::rows::{ChannelRow, Held, Slot as _, fence};

/// Memory in which one user that is neither root nor the engine's own may have a side.
pub(super) const REGIONS_PER_USER: usize = 16;

/// The socket at the other end of an accepted connection, where that is another program of this core.
pub(super) fn other_end(
    row: u32,
    (local, remote): (SocketAddr, SocketAddr),
    stack: &mut Stack<'_>,
    sockets: &mut Sockets,
) -> Option<u32> {
    let other = sockets.row_of(stack.owner_between(remote, local)?)?;
    let is_plain = {
        let record = sockets.row(other);
        record.active && !record.tells_arrival && record.kind == Kind::Connection
    };
    let is_another = sockets.row(other).region != sockets.row(row).region;
    (is_plain && is_another && sockets.companion(other).slot.is_none()).then_some(other)
}

/// Whose regions these are; `None`: one is gone.
fn users_of(regions: [u32; 2], sockets: &Sockets) -> Option<[Arc<User>; 2]> {
    let [first, second] = regions.map(|number| sockets.regions.user(number));
    Some([first?, second?])
}

impl ByteChannels {
    /// Gives both ends of a connection, who accepted first, their sides of a slot. Where none is free it goes by segments.
    pub(super) fn join(&mut self, rows: [u32; 2], sockets: &mut Sockets) {
        let mut rows = rows;
        rows.sort_unstable_by_key(|row| sockets.row(*row).region);
        let regions = rows.map(|row| sockets.row(row).region);
        let owners = rows.map(|row| sockets.id(row).map_or(0, |id| id.to_bits()));
        let Some(region) = self.region_between(regions, sockets) else {
            return;
        };
        let free = region.owners.iter().position(|sides| *sides == [0, 0]);
        let Some(slot) = free.and_then(|slot| u32::try_from(slot).ok()) else {
            return;
        };
        if let Some((one, other)) = region.channel_region.channel_pairs(slot, 0) {
            one.byte_channel.reset();
            other.byte_channel.reset();
        }
        let names = [0, 1].map(|side| SlotName {
            channel_region: region.number,
            slot,
            side,
        });
        for (name, owner) in names.into_iter().zip(owners) {
            self.set_owner(name, owner);
        }
        for (row, name) in rows.into_iter().zip(names) {
            sockets.companion(row).slot = Some(name);
        }
        fence();
        // Programs see it once both owners are kept: see `finish_joining`.
        for (row, name) in rows.into_iter().zip(names) {
            sockets.with_header(row, |header| header.engine_set_slot(Some(name)));
        }
    }

    /// Who uses a side of a slot from now on, also for the engine after this one; 0: nobody.
    pub(super) fn set_owner(&mut self, name: SlotName, owner: u64) {
        let region = self.by_number(name.channel_region);
        if let Some(place) = region.and_then(|region| region.owner(name.slot, name.side)) {
            *place = owner;
        }
        let row = self
            .rows
            .iter_mut()
            .find(|row| row.used == 1 && row.number == name.channel_region);
        let slot = usize::try_from(name.slot).ok();
        if let Some((row, slot)) = row.zip(slot)
            && let Some(sides) = row.owners.get_mut(slot)
        {
            sides[usize::from(name.side & 1)] = owner;
        }
    }

    /// The memory between two programs; made when it is first needed. `None`: there are too many.
    fn region_between(&mut self, regions: [u32; 2], sockets: &Sockets) -> Option<&mut PeerRegion> {
        let is_theirs = |one: &PeerRegion| matches!(one.between, Between::Programs { regions: its, .. } if its == regions);
        if !self.regions.iter().any(is_theirs) {
            self.make_region(regions, sockets)?;
        }
        self.regions.iter_mut().find(|one| is_theirs(one))
    }

    fn make_region(&mut self, regions: [u32; 2], sockets: &Sockets) -> Option<()> {
        self.forget_programs(sockets);
        let users = users_of(regions, sockets)?;
        if users.iter().any(|user| self.has_enough(user)) {
            return None;
        }
        let at = self.rows.iter().position(|row| row.used == 0)?;
        let made = ChannelRegion::create().and_then(ChannelRegion::adopt);
        let channel_region = made
            .inspect_err(|error| tracing::warn!("no memory between two programs: {error}"))
            .ok()?;
        let number = self.next_number();
        self.rows[at].put(ChannelRow {
            used: 1,
            number,
            regions,
            file: channel_region
                .file()
                .map_or(Held::default(), |file| Held::of(&file)),
            ..zerocopy::FromZeros::new_zeroed()
        });
        self.know_programs(number, (regions, users), channel_region);
        Some(())
    }

    fn know_programs(
        &mut self,
        number: u32,
        (regions, users): ([u32; 2], [Arc<User>; 2]),
        channel_region: ChannelRegion,
    ) {
        self.regions.push(PeerRegion {
            number,
            between: Between::Programs { regions, users },
            channel_region,
            owners: Box::new([[0; 2]; SLOTS as usize]),
        });
    }

    fn has_enough(&self, user: &User) -> bool {
        let is_its = |one: &&PeerRegion| match &one.between {
            Between::Neighbour { .. } => false,
            Between::Programs { users, .. } => users.iter().any(|its| its.uid == user.uid),
        };
        !user.is_trusted() && self.regions.iter().filter(is_its).count() >= REGIONS_PER_USER
    }

    /// The memory of programs that are gone goes.
    pub(super) fn forget_programs(&mut self, sockets: &Sockets) {
        let is_over = |one: &mut PeerRegion| match one.between {
            Between::Neighbour { .. } => false,
            Between::Programs { regions, .. } => {
                !one.is_used()
                    && regions
                        .iter()
                        .any(|number| sockets.regions.find(*number).is_none())
            }
        };
        for one in self.regions.extract_if(.., is_over) {
            if let Some(row) = self.rows.iter_mut().find(|row| row.number == one.number) {
                row.clear();
            }
            // To unmap what was used takes a while.
            if let Between::Programs {
                users: [user, _], ..
            } = one.between
            {
                let channel_region = one.channel_region;
                user.run(move || drop(channel_region));
            }
        }
    }

    /// After a restart: the memory, and the slots of sockets that were taken up.
    pub(crate) fn resume(&mut self, sockets: &mut Sockets, taken: &mut Taken) {
        for at in 0..self.rows.len() {
            let row = self.rows[at];
            self.last_number = self.last_number.max(row.number % hostif::id::ROWS_MAX);
            if row.used != 1 {
                continue;
            }
            let file = taken.take_own(row.file);
            let memory = file.and_then(|file| ChannelRegion::adopt(file).ok());
            match memory.zip(users_of(row.regions, sockets)) {
                Some((memory, users)) => {
                    self.know_programs(row.number, (row.regions, users), memory);
                }
                None => self.rows[at].clear(),
            }
        }
        self.resume_slots(sockets);
    }

    pub(super) fn resume_slots(&mut self, sockets: &mut Sockets) {
        for at in 0..self.rows.len() {
            let row = self.rows[at];
            if row.used != 1 {
                continue;
            }
            for (slot, sides) in (0..).zip(row.owners) {
                for (side, owner) in [0, 1].into_iter().zip(sides) {
                    let name = SlotName {
                        channel_region: row.number,
                        slot,
                        side,
                    };
                    let of = sockets
                        .row_of(owner)
                        .filter(|of| sockets.row(*of).region == row.regions[usize::from(side)]);
                    // Who has it no more was gone before that was noted.
                    self.set_owner(name, of.map_or(0, |_| owner));
                    if let Some(of) = of {
                        sockets.companion(of).slot = Some(name);
                    }
                }
            }
        }
        self.finish_joining(sockets);
    }

    /// The engine before may have stopped while it gave both ends their slot: programs were not told then. Where both are kept as
    /// owners they are told now, or once more; one alone, whose program knows nothing of it, has none.
    fn finish_joining(&mut self, sockets: &mut Sockets) {
        for row in 0..sockets.used() {
            let Some(name) = sockets.slot(row) else {
                continue;
            };
            let told = sockets.with_header(row, |header| header.slot() == Some(name));
            let region = self.by_number(name.channel_region);
            let other = region.and_then(|region| region.owner(name.slot, name.side ^ 1).copied());
            if told == Some(true) || other.is_some_and(|owner| owner != 0) {
                sockets.with_header(row, |header| header.engine_set_slot(Some(name)));
                continue;
            }
            self.set_owner(name, 0);
            sockets.companion(row).slot = None;
        }
    }
}
