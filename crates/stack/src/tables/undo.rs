//! What a connection's row was before the change that is under way (docs/decisions/0079-undo-by-parts.md).

use super::{ConnectionRecord, at};
use core::sync::atomic::{Ordering, compiler_fence};
use tcp::UndoPart;
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// A connection's row as it was before the change that is under way: what a crash interrupts has not happened. Without it
/// a connection whose change was interrupted is given up.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct UndoRow {
    /// Which row, plus one; 0: none yet.
    index_plus_one: u32,
    /// What of `record` is kept, as [`Touched::code`] has it.
    touched: u32,
    record: ConnectionRecord,
}

/// What a change of a connection's row may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    /// All of it.
    Row,
    /// Whose the row is: its flags and its generation; and what means nothing while nobody has it.
    Use,
    /// A part of the TCP connection.
    Part(UndoPart),
}

impl Touched {
    const USE: u32 = u32::MAX;

    const fn code(self) -> u32 {
        match self {
            Self::Row => 0,
            Self::Use => Self::USE,
            Self::Part(part) => part.code(),
        }
    }

    fn from_code(code: u32) -> Self {
        match UndoPart::from_code(code) {
            Some(part) => Self::Part(part),
            None if code == Self::USE => Self::Use,
            None => Self::Row,
        }
    }
}

impl UndoRow {
    /// Before row `index`, which is `record`, is changed.
    #[inline]
    pub(crate) fn keep(&mut self, index: u32, touched: Touched, record: &ConnectionRecord) {
        // While this is written the row is whole, and nobody asks for it.
        self.record.copy_touched(touched, record);
        self.record.sequence = record.sequence;
        self.touched = touched.code();
        self.index_plus_one = index.wrapping_add(1);
        compiler_fence(Ordering::SeqCst);
    }

    /// Undoes a change that was interrupted. The blocks that the connection held are forgotten where it may have been changed as
    /// well.
    pub(crate) fn roll_back(&self, rows: &mut [ConnectionRecord]) {
        let row = self.index_plus_one.checked_sub(1).map(at);
        let Some(row) = row.and_then(|row| rows.get_mut(row)) else {
            return;
        };
        if row.sequence.is_multiple_of(2) || self.record.sequence.wrapping_add(1) != row.sequence {
            return;
        }
        let touched = Touched::from_code(self.touched);
        let mut record = *row;
        record.copy_touched(touched, &self.record);
        record.sequence = row.sequence;
        if touched == Touched::Row {
            record.tcp.leave_block();
            record.tcp.leave_flight_block();
        }
        // Whoever is stopped in here finds the row as interrupted as it was.
        *row = record;
        compiler_fence(Ordering::SeqCst);
        row.sequence = row.sequence.wrapping_add(1);
    }
}

impl ConnectionRecord {
    /// Takes over what a change may touch.
    #[inline]
    pub(crate) fn copy_touched(&mut self, touched: Touched, other: &Self) {
        match touched {
            Touched::Row => *self = *other,
            Touched::Use => (self.flags, self.generation) = (other.flags, other.generation),
            Touched::Part(part) => self.tcp.copy_part(part, &other.tcp),
        }
    }

    /// Panics where a change of what was `before` has touched more than the part that is named.
    #[cfg(test)]
    pub(crate) fn touched_alone(&self, touched: Touched, before: &Self) {
        if let Touched::Part(part) = touched {
            let mut undone = *self;
            undone.copy_touched(touched, before);
            undone.sequence = before.sequence;
            assert_eq!(format!("{undone:?}"), format!("{before:?}"), "{part:?}");
        }
    }
}
