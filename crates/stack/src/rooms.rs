//! Rooms that connections are lent from the tables: for ranges of data beyond holes, to one that receives
//! beyond many of them ([`tcp::ReceiveWindow::claim_room`]), and for what is in flight, to one that sends
//! more than a little ([`tcp::FlightRooms`]). A connection keeps one until little is left or it ends. Bounded
//! in number; without one a connection takes less out of order, or knows less of its flight.
//!
//! Rooms are named by their index plus one, so that connections go on with them after a restart. Which ones
//! are free is derived.

use crate::egress::Host;
use crate::intrusive::{at, slot};
use crate::stack::Stack;
use crate::tables::{ConnectionRecord, Flags, FlightRoom, RangeRoom, Row as _};
use tcp::{FlightRooms, RangeSlot, ReceiveWindow, Run};

/// All rooms of one kind, and which are free.
struct Rooms<'s, R> {
    rooms: &'s mut [R],
    used: &'s mut u32,
    free: &'s mut Vec<u32>,
}

impl<R> Rooms<'_, R> {
    fn claim(&mut self) -> Option<u32> {
        let free = self.free.pop().or_else(|| {
            (at(*self.used) < self.rooms.len()).then(|| {
                *self.used += 1;
                *self.used - 1
            })
        });
        free.map(|index| index + 1)
    }

    fn room(&mut self, room: u32) -> Option<&mut R> {
        let index = room.checked_sub(1)?;
        self.rooms.get_mut(at(index))
    }

    fn give_back(&mut self, room: u32) {
        self.free.extend(room.checked_sub(1));
    }
}

impl FlightRooms for Rooms<'_, FlightRoom> {
    fn claim_flight(&mut self) -> Option<u32> {
        self.claim()
    }

    fn flight(&mut self, room: u32) -> Option<&mut [Run]> {
        self.room(room).map(|room| &mut room.runs[..])
    }

    fn give_back_flight(&mut self, room: u32) {
        self.give_back(room);
    }
}

/// One owner's receive window, and the rooms, as a connection sees them.
struct OwnedWindow<'s> {
    host: &'s mut dyn Host,
    owner: u64,
    ranges: Rooms<'s, RangeRoom>,
    flights: Rooms<'s, FlightRoom>,
}

impl ReceiveWindow for OwnedWindow<'_> {
    fn write(&mut self, offset: u64, data: &[u8]) {
        self.host.receive(self.owner, offset, data);
    }

    fn claim_room(&mut self) -> Option<u32> {
        self.ranges.claim()
    }

    fn room(&mut self, room: u32) -> Option<&mut [RangeSlot]> {
        self.ranges.room(room).map(|room| &mut room.slots[..])
    }

    fn give_back_room(&mut self, room: u32) {
        self.ranges.give_back(room);
    }

    fn flights(&mut self) -> &mut dyn FlightRooms {
        &mut self.flights
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
            ranges: Rooms {
                rooms: self.tables.range_rooms,
                used: &mut self.tables.header.range_rooms_used,
                free: &mut self.free_range_rooms,
            },
            flights: Rooms {
                rooms: self.tables.flight_rooms,
                used: &mut self.tables.header.flight_rooms_used,
                free: &mut self.free_flight_rooms,
            },
        };
        row.change(|record| act(record, &mut window))
    }

    /// Lets connection `index` do what concerns its flight: `act` gets its row and the rooms for it.
    pub(crate) fn fly<R>(
        &mut self,
        index: u32,
        act: impl FnOnce(&mut ConnectionRecord, &mut dyn FlightRooms) -> R,
    ) -> R {
        let mut rooms = Rooms {
            rooms: self.tables.flight_rooms,
            used: &mut self.tables.header.flight_rooms_used,
            free: &mut self.free_flight_rooms,
        };
        self.tables.connections[at(index)].change(|record| act(record, &mut rooms))
    }

    /// Takes the rooms that the connection of row `index` still holds.
    pub(crate) fn take_rooms(&mut self, index: u32) {
        let tcp = &self.record(index).tcp;
        if tcp.room() == 0 && tcp.flight_room() == 0 {
            return;
        }
        let (range, flight) = self.change(index, |record| {
            (record.tcp.leave_room(), record.tcp.leave_flight_room())
        });
        self.free_range_rooms.extend(range.checked_sub(1));
        self.free_flight_rooms.extend(flight.checked_sub(1));
    }

    /// After a restart: the rooms that no connection holds are free. Of two connections that claim one,
    /// and from one that claims what does not exist, it is taken.
    pub(crate) fn rebuild_rooms(&mut self) {
        let header = &self.tables.header;
        let mut ranges = vec![false; at(header.range_rooms_used)];
        let mut flights = vec![false; at(header.flight_rooms_used)];
        for index in 0..self.tables.header.connections_used {
            let record = self.record(index);
            let is_used = record.has(Flags::USED);
            let (range, flight) = (record.tcp.room(), record.tcp.flight_room());
            if range > 0 && !(is_used && hold(&mut ranges, range)) {
                self.change(index, |record| record.tcp.leave_room());
            }
            if flight > 0 && !(is_used && hold(&mut flights, flight)) {
                self.change(index, |record| record.tcp.leave_flight_room());
            }
        }
        self.free_range_rooms.extend(free(&ranges));
        self.free_flight_rooms.extend(free(&flights));
    }
}

/// Whether room `room` exists and nobody held it until now.
fn hold(is_held: &mut [bool], room: u32) -> bool {
    let held = room
        .checked_sub(1)
        .and_then(|index| is_held.get_mut(at(index)));
    held.is_some_and(|held| !core::mem::replace(held, true))
}

fn free(is_held: &[bool]) -> impl Iterator<Item = u32> + '_ {
    let rooms = is_held.iter().enumerate();
    rooms
        .filter(|(_, held)| !**held)
        .map(|(room, _)| slot(room))
}
