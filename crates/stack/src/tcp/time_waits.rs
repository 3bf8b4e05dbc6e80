//! The table of connections in TIME-WAIT.

use crate::containers::intrusive::{Links, ListHead};
use crate::tables::TimeWaitRecord;

/// The records of connections in TIME-WAIT.
#[derive(Debug)]
pub(crate) struct TimeWaits<'m> {
    pub(crate) rows: &'m mut [TimeWaitRecord],
    /// Rows that were ever used.
    pub(crate) used: &'m mut u32,
    pub(super) free: Vec<u32>,
    /// The oldest first.
    pub(super) order: ListHead,
    pub(super) links: Links,
}

impl<'m> TimeWaits<'m> {
    pub(super) fn new(rows: &'m mut [TimeWaitRecord], used: &'m mut u32) -> Self {
        Self {
            free: Vec::with_capacity(rows.len()),
            order: ListHead::default(),
            links: Links::new(rows.len()),
            rows,
            used,
        }
    }
}
