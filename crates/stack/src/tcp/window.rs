//! What a connection borrows while it is at work: its owner's receive window, and blocks of the pools.

use super::Tcp;
use super::pools::Pool;
use crate::containers::intrusive::at;
use crate::host::Host;
use crate::tables::{ConnectionRecord, FlightBlock, RangeBlock, Row as _, Touched, UndoRow};
use tcp::{FlightPool, RangeSlot, ReceiveWindow};

/// One owner's receive window, and the blocks, as a connection sees them.
struct OwnedWindow<'s, 'm> {
    host: &'s mut dyn Host,
    owner: u64,
    ranges: &'s mut Pool<'m, RangeBlock>,
    flights: &'s mut Pool<'m, FlightBlock>,
}

impl ReceiveWindow for OwnedWindow<'_, '_> {
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
        self.flights
    }
}

/// A connection's row, and what it may borrow.
pub(super) struct AtWork<'s, 'm> {
    pub(super) index: u32,
    pub(super) row: &'s mut ConnectionRecord,
    undo: &'s mut Option<&'m mut UndoRow>,
    ranges: &'s mut Pool<'m, RangeBlock>,
    flights: &'s mut Pool<'m, FlightBlock>,
}

impl AtWork<'_, '_> {
    /// Lets the connection receive: `act` gets its row, of which it may touch what is named, and the window of its
    /// owner.
    #[inline(always)]
    pub(super) fn receive<R>(
        &mut self,
        touched: Touched,
        host: &mut dyn Host,
        act: impl FnOnce(&mut ConnectionRecord, &mut dyn ReceiveWindow) -> R,
    ) -> R {
        if let Some(undo) = self.undo {
            undo.keep(self.index, touched, self.row);
        }
        let mut window = OwnedWindow {
            host,
            owner: self.row.owner,
            ranges: self.ranges,
            flights: self.flights,
        };
        #[cfg(test)]
        let before = *self.row;
        let result = self.row.change(|record| act(record, &mut window));
        #[cfg(test)]
        self.row.touched_alone(touched, &before);
        result
    }
}

impl<'m> Tcp<'m> {
    /// The row of connection `index`, to be worked on.
    #[inline(always)]
    pub(super) fn at_work(&mut self, index: u32) -> AtWork<'_, 'm> {
        AtWork {
            index,
            row: &mut self.connections[at(index)],
            undo: &mut self.undo,
            ranges: &mut self.ranges,
            flights: &mut self.flights,
        }
    }

    /// Lets connection `index` do what concerns its flight: `act` gets its row and the blocks for it.
    pub(crate) fn fly<R>(
        &mut self,
        index: u32,
        act: impl FnOnce(&mut ConnectionRecord, &mut dyn FlightPool) -> R,
    ) -> R {
        self.keep(index, Touched::Row);
        self.connections[at(index)].change(|record| act(record, &mut self.flights))
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
        self.ranges.give_back(range);
        self.flights.give_back(flight);
    }
}
