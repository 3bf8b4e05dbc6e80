//! Rooms for ranges of data beyond holes: a connection that receives beyond many of them is lent one, and
//! keeps it until few are left or it ends. Bounded in number; without one a connection takes less out of
//! order ([`tcp::ReceiveWindow::claim_room`]).
//!
//! Rooms are in the caller's tables and named by their index plus one, so that connections go on with them
//! after a restart. Which ones are free is derived.

use crate::egress::Host;
use crate::intrusive::{at, slot};
use crate::stack::Stack;
use crate::tables::{ConnectionRecord, Flags, RangeRoom, Row as _};
use tcp::{RangeSlot, ReceiveWindow};

/// All rooms, and which are free.
pub(crate) struct RangeRooms<'s> {
    rooms: &'s mut [RangeRoom],
    used: &'s mut u32,
    free: &'s mut Vec<u32>,
}

impl RangeRooms<'_> {
    fn claim(&mut self) -> Option<u32> {
        let free = self.free.pop().or_else(|| {
            (at(*self.used) < self.rooms.len()).then(|| {
                *self.used += 1;
                *self.used - 1
            })
        });
        free.map(|index| index + 1)
    }

    fn slots(&mut self, room: u32) -> Option<&mut [RangeSlot]> {
        let index = room.checked_sub(1)?;
        let room = self.rooms.get_mut(at(index))?;
        Some(&mut room.slots)
    }
}

/// One owner's receive window, and the rooms, as a connection sees them.
pub(crate) struct OwnedWindow<'s> {
    host: &'s mut dyn Host,
    owner: u64,
    rooms: RangeRooms<'s>,
}

impl ReceiveWindow for OwnedWindow<'_> {
    fn write(&mut self, offset: u64, data: &[u8]) {
        self.host.receive(self.owner, offset, data);
    }

    fn claim_room(&mut self) -> Option<u32> {
        self.rooms.claim()
    }

    fn room(&mut self, room: u32) -> Option<&mut [RangeSlot]> {
        self.rooms.slots(room)
    }

    fn give_back_room(&mut self, room: u32) {
        self.rooms.free.extend(room.checked_sub(1));
    }
}

impl Stack<'_> {
    /// Lets connection `index` receive: `act` gets its row and the window of its owner.
    pub(crate) fn receive<R>(
        &mut self,
        index: u32,
        host: &mut dyn Host,
        act: impl FnOnce(&mut ConnectionRecord, &mut dyn ReceiveWindow) -> R,
    ) -> R {
        let row = &mut self.tables.connections[at(index)];
        let mut window = OwnedWindow {
            host,
            owner: row.owner,
            rooms: RangeRooms {
                rooms: self.tables.range_rooms,
                used: &mut self.tables.header.range_rooms_used,
                free: &mut self.free_range_rooms,
            },
        };
        row.change(|record| act(record, &mut window))
    }

    /// Takes the room that the connection of row `index` still holds.
    pub(crate) fn take_range_room(&mut self, index: u32) {
        if self.record(index).tcp.room() > 0 {
            let room = self.change(index, |record| record.tcp.leave_room());
            self.free_range_rooms.extend(room.checked_sub(1));
        }
    }

    /// After a restart: the rooms that no connection holds are free. Of two connections that claim one,
    /// and from one that claims what does not exist, it is taken.
    pub(crate) fn rebuild_range_rooms(&mut self) {
        let used = self.tables.header.range_rooms_used;
        let mut is_held = vec![false; at(used)];
        for index in 0..self.tables.header.connections_used {
            let record = self.record(index);
            let Some(room) = record.tcp.room().checked_sub(1) else {
                continue;
            };
            let is_new = is_held.get(at(room)).is_some_and(|held| !held);
            if is_new && record.has(Flags::USED) {
                is_held[at(room)] = true;
            } else {
                self.change(index, |record| record.tcp.leave_room());
            }
        }
        let rooms = is_held.iter().enumerate();
        let free = rooms.filter(|(_, held)| !**held);
        self.free_range_rooms
            .extend(free.map(|(room, _)| slot(room)));
    }
}
