//! Pool that connections are lent from the tables: for ranges of data beyond holes, to one that receives
//! beyond many of them ([`tcp::ReceiveWindow::claim_block`]), and for what is in flight, to one that sends
//! more than a little ([`tcp::FlightPool`]). A connection keeps one until little is left or it ends. Bounded
//! in number; without one a connection takes less out of order, or knows less of its flight.
//!
//! Pool are named by their index plus one, so that connections go on with them after a restart. Which ones
//! are free is derived.

use crate::containers::intrusive::{at, slot};
use crate::host::Host;
use crate::stack::Stack;
use crate::tables::{ConnectionRecord, Flags, FlightBlock, RangeBlock, Row as _};
use tcp::{FlightPool, RangeSlot, ReceiveWindow, Run};

/// All blocks of one kind, and which are free.
struct Pool<'s, R> {
    blocks: &'s mut [R],
    used: &'s mut u32,
    free: &'s mut Vec<u32>,
}

impl<R> Pool<'_, R> {
    fn claim(&mut self) -> Option<u32> {
        let free = self.free.pop().or_else(|| {
            (at(*self.used) < self.blocks.len()).then(|| {
                *self.used += 1;
                *self.used - 1
            })
        });
        free.map(|index| index + 1)
    }

    fn block(&mut self, block: u32) -> Option<&mut R> {
        let index = block.checked_sub(1)?;
        self.blocks.get_mut(at(index))
    }

    fn give_back(&mut self, block: u32) {
        self.free.extend(block.checked_sub(1));
    }
}

impl FlightPool for Pool<'_, FlightBlock> {
    fn claim_flight(&mut self) -> Option<u32> {
        self.claim()
    }

    fn flight(&mut self, block: u32) -> Option<&mut [Run]> {
        self.block(block).map(|block| &mut block.runs[..])
    }

    fn give_back_flight(&mut self, block: u32) {
        self.give_back(block);
    }
}

/// One owner's receive window, and the blocks, as a connection sees them.
struct OwnedWindow<'s> {
    host: &'s mut dyn Host,
    owner: u64,
    ranges: Pool<'s, RangeBlock>,
    flights: Pool<'s, FlightBlock>,
}

impl ReceiveWindow for OwnedWindow<'_> {
    fn write(&mut self, offset: u64, data: &[u8]) {
        self.host.receive(self.owner, offset, data);
    }

    fn claim_block(&mut self) -> Option<u32> {
        self.ranges.claim()
    }

    fn block(&mut self, block: u32) -> Option<&mut [RangeSlot]> {
        self.ranges.block(block).map(|block| &mut block.slots[..])
    }

    fn give_back_block(&mut self, block: u32) {
        self.ranges.give_back(block);
    }

    fn flights(&mut self) -> &mut dyn FlightPool {
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
            ranges: Pool {
                blocks: self.tables.range_blocks,
                used: &mut self.tables.header.range_blocks_used,
                free: &mut self.free_range_blocks,
            },
            flights: Pool {
                blocks: self.tables.flight_blocks,
                used: &mut self.tables.header.flight_blocks_used,
                free: &mut self.free_flight_blocks,
            },
        };
        row.change(|record| act(record, &mut window))
    }

    /// Lets connection `index` do what concerns its flight: `act` gets its row and the blocks for it.
    pub(crate) fn fly<R>(
        &mut self,
        index: u32,
        act: impl FnOnce(&mut ConnectionRecord, &mut dyn FlightPool) -> R,
    ) -> R {
        let mut blocks = Pool {
            blocks: self.tables.flight_blocks,
            used: &mut self.tables.header.flight_blocks_used,
            free: &mut self.free_flight_blocks,
        };
        self.tables.connections[at(index)].change(|record| act(record, &mut blocks))
    }

    /// Takes the blocks that the connection of row `index` still holds.
    pub(crate) fn take_blocks(&mut self, index: u32) {
        let tcp = &self.record(index).tcp;
        if tcp.block() == 0 && tcp.flight_block() == 0 {
            return;
        }
        let (range, flight) = self.change(index, |record| {
            (record.tcp.leave_block(), record.tcp.leave_flight_block())
        });
        self.free_range_blocks.extend(range.checked_sub(1));
        self.free_flight_blocks.extend(flight.checked_sub(1));
    }

    /// After a restart: the blocks that no connection holds are free. Of two connections that claim one,
    /// and from one that claims what does not exist, it is taken.
    pub(crate) fn rebuild_blocks(&mut self) {
        let header = &self.tables.header;
        let mut ranges = vec![false; at(header.range_blocks_used)];
        let mut flights = vec![false; at(header.flight_blocks_used)];
        for index in 0..self.tables.header.connections_used {
            let record = self.record(index);
            let is_used = record.has(Flags::USED);
            let (range, flight) = (record.tcp.block(), record.tcp.flight_block());
            if range > 0 && !(is_used && hold(&mut ranges, range)) {
                self.change(index, |record| record.tcp.leave_block());
            }
            if flight > 0 && !(is_used && hold(&mut flights, flight)) {
                self.change(index, |record| record.tcp.leave_flight_block());
            }
        }
        self.free_range_blocks.extend(free(&ranges));
        self.free_flight_blocks.extend(free(&flights));
    }
}

/// Whether block `block` exists and nobody held it until now.
fn hold(is_held: &mut [bool], block: u32) -> bool {
    let held = block
        .checked_sub(1)
        .and_then(|index| is_held.get_mut(at(index)));
    held.is_some_and(|held| !core::mem::replace(held, true))
}

fn free(is_held: &[bool]) -> impl Iterator<Item = u32> + '_ {
    let blocks = is_held.iter().enumerate();
    blocks
        .filter(|(_, held)| !**held)
        .map(|(block, _)| slot(block))
}
