//! Blocks: what the owner of a connection lends it when its row is too small to remember a long flight.
//!
//! A row has a few runs of the table of what is in flight (`sent`), enough for whoever asks and answers. A
//! connection that sends more is lent a block with many, and gives it back when little is left. Blocks are
//! plain data of the owner's, named by a number, because a connection holds no pointer. Without one a
//! connection knows less of its flight, never something false. Those for ranges beyond holes are with
//! [`ReceiveWindow`](crate::ReceiveWindow).

use crate::send::sent::Run;

/// Lends blocks for runs of what is in flight. A connection holds one at most.
pub trait FlightPool {
    /// Lends a block and names it by a number above 0; `None`: there is none.
    fn claim_flight(&mut self) -> Option<u32> {
        None
    }

    /// The runs of the block that this connection holds. `None`: nothing is known of it.
    fn flight(&mut self, _block: u32) -> Option<&mut [Run]> {
        None
    }

    /// The block is not needed any more. What a connection still holds at its end, its owner takes with
    /// [`Connection::leave_flight_block`](crate::Connection::leave_flight_block).
    fn give_back_flight(&mut self, _block: u32) {}
}

/// Lends none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPool;

impl FlightPool for NoPool {}

/// Lends one block at most, and knows whether it is lent.
#[cfg(any(test, fuzzing, feature = "fuzzing"))]
#[derive(Debug)]
pub(crate) struct OneBlock {
    pub runs: Vec<Run>,
    pub is_lent: bool,
}

#[cfg(any(test, fuzzing, feature = "fuzzing"))]
impl OneBlock {
    /// A block for so many runs; 0: none.
    pub fn of(runs: usize) -> Self {
        Self {
            runs: vec![Run::default(); runs],
            is_lent: false,
        }
    }
}

#[cfg(any(test, fuzzing, feature = "fuzzing"))]
impl Default for OneBlock {
    fn default() -> Self {
        Self::of(1_024)
    }
}

#[cfg(any(test, fuzzing, feature = "fuzzing"))]
impl FlightPool for OneBlock {
    fn claim_flight(&mut self) -> Option<u32> {
        assert!(!self.is_lent, "a connection holds one block at most");
        self.is_lent = !self.runs.is_empty();
        self.is_lent.then_some(1)
    }

    fn flight(&mut self, block: u32) -> Option<&mut [Run]> {
        assert_eq!((block, self.is_lent), (1, true));
        Some(&mut self.runs)
    }

    fn give_back_flight(&mut self, block: u32) {
        assert_eq!((block, self.is_lent), (1, true));
        self.is_lent = false;
    }
}
