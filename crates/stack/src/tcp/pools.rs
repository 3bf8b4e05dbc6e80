//! Blocks of the tables that connections hold for a time: for ranges of data beyond holes, to one that receives
//! beyond many of them ([`tcp::ReceiveWindow::claim_block`]), and for what is in flight, to one that sends
//! more than a little ([`tcp::FlightPool`]). A connection keeps one until little is left or it ends. Bounded
//! in number; without one a connection takes less out of order, or knows less of its flight.
//!
//! Blocks are named by their index plus one, so that connections go on with them after a restart. Which ones
//! are free is derived.

use crate::containers::intrusive::at;
use crate::tables::FlightBlock;
use tcp::{FlightPool, Run};

/// All blocks of one kind, and which are free.
#[derive(Debug)]
pub(crate) struct Pool<'m, R> {
    blocks: &'m mut [R],
    /// Blocks that were ever used.
    pub(super) used: &'m mut u32,
    pub(crate) free: Vec<u32>,
}

impl<'m, R> Pool<'m, R> {
    pub(super) fn new(blocks: &'m mut [R], used: &'m mut u32) -> Self {
        let free = Vec::with_capacity(blocks.len());
        Self { blocks, used, free }
    }

    pub(super) fn claim(&mut self) -> Option<u32> {
        let free = self.free.pop().or_else(|| {
            (at(*self.used) < self.blocks.len()).then(|| {
                *self.used += 1;
                *self.used - 1
            })
        });
        free.map(|index| index + 1)
    }

    pub(super) fn block(&mut self, block: u32) -> Option<&mut R> {
        let index = block.checked_sub(1)?;
        self.blocks.get_mut(at(index))
    }

    pub(super) fn give_back(&mut self, block: u32) {
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
