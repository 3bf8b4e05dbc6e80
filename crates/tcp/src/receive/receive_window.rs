//! Where a connection puts what it receives.

use crate::{receive::ranges::RangeSlot, send::flight_pool::FlightPool};

/// Where received payload goes: the caller's receive window.
pub trait ReceiveWindow {
    /// Places `data` at stream offset `offset` (0 is the first byte after the SYN), in order or not.
    ///
    /// A connection never writes beyond the capacity it was configured with.
    fn write(&mut self, offset: u64, data: &[u8]);

    /// Lends a block for more ranges of data beyond holes than fit in the connection's row, and names it;
    /// `None`: there is none. A connection holds one at most.
    fn claim_block(&mut self) -> Option<u32> {
        None
    }

    /// The slots of the block that this connection holds. `None`: nothing is known of it.
    fn block(&mut self, _room: u32) -> Option<&mut [RangeSlot]> {
        None
    }

    /// The block is not needed any more. What a connection still holds at its end, its owner takes with
    /// [`Connection::leave_block`].
    fn give_back_block(&mut self, _room: u32) {}

    /// Where the connection finds a block for what it has in flight.
    fn flights(&mut self) -> &mut dyn FlightPool;
}
