//! Rooms: what the owner of a connection lends it when its row is too small to remember a long flight.
//!
//! A row has a few runs of the table of what is in flight (`sent`), enough for whoever asks and answers. A
//! connection that sends more is lent a room with many, and gives it back when little is left. Rooms are
//! plain data of the owner's, named by a number, because a connection holds no pointer. Without one a
//! connection knows less of its flight, never something false. Those for ranges beyond holes are with
//! [`ReceiveWindow`](crate::ReceiveWindow).

use crate::sent::Run;

/// Lends rooms for runs of what is in flight. A connection holds one at most.
pub trait FlightRooms {
    /// Lends a room and names it by a number above 0; `None`: there is none.
    fn claim_flight(&mut self) -> Option<u32> {
        None
    }

    /// The runs of the room that this connection holds. `None`: nothing is known of it.
    fn flight(&mut self, _room: u32) -> Option<&mut [Run]> {
        None
    }

    /// The room is not needed any more. What a connection still holds at its end, its owner takes with
    /// [`Connection::leave_flight_room`](crate::Connection::leave_flight_room).
    fn give_back_flight(&mut self, _room: u32) {}
}

/// Lends none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRooms;

impl FlightRooms for NoRooms {}

/// Lends one room at most, and knows whether it is lent.
#[cfg(any(test, fuzzing, feature = "fuzzing"))]
#[derive(Debug)]
pub(crate) struct OneRoom {
    pub runs: Vec<Run>,
    pub is_lent: bool,
}

#[cfg(any(test, fuzzing, feature = "fuzzing"))]
impl OneRoom {
    /// A room for so many runs; 0: none.
    pub fn of(runs: usize) -> Self {
        Self {
            runs: vec![Run::default(); runs],
            is_lent: false,
        }
    }
}

#[cfg(any(test, fuzzing, feature = "fuzzing"))]
impl Default for OneRoom {
    fn default() -> Self {
        Self::of(1_024)
    }
}

#[cfg(any(test, fuzzing, feature = "fuzzing"))]
impl FlightRooms for OneRoom {
    fn claim_flight(&mut self) -> Option<u32> {
        assert!(!self.is_lent, "a connection holds one room at most");
        self.is_lent = !self.runs.is_empty();
        self.is_lent.then_some(1)
    }

    fn flight(&mut self, room: u32) -> Option<&mut [Run]> {
        assert_eq!((room, self.is_lent), (1, true));
        Some(&mut self.runs)
    }

    fn give_back_flight(&mut self, room: u32) {
        assert_eq!((room, self.is_lent), (1, true));
        self.is_lent = false;
    }
}
