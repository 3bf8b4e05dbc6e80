//! Headers that left before on the same connection, so that the next segment's are not made anew (`wire::template`).
//! Everything that they were made from is compared each time, or counts with a generation.

use crate::containers::intrusive::at;
use crate::link::interface::InterfaceId;
use crate::tables::ConnectionRecord;
use wire::ethernet;
use wire::template::Template;

/// Connections that are remembered; others with the same place take turns. A power of two.
const ENTRIES: usize = 64;

/// What a template was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Origin {
    connection: u32,
    /// Of the row.
    generation: u32,
    /// Of the interfaces: one of them is the source of the frames.
    interfaces: u32,
    flow_label: u32,
    hardware: ethernet::Address,
    interface: InterfaceId,
    ttl: u8,
    tos: u8,
}

/// Where a segment of a connection goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// The row.
    pub(crate) connection: u32,
    pub(crate) interface: InterfaceId,
    pub(crate) hardware: ethernet::Address,
    /// Of the interfaces.
    pub(crate) generation: u32,
}

/// What was learned.
#[derive(Debug)]
pub(crate) struct Templates(Vec<Option<(Origin, Template)>>);

impl Templates {
    pub(crate) fn new() -> Self {
        Self(vec![None; ENTRIES])
    }

    /// The headers of what a connection sends this way; `make` makes them where they are not known.
    #[inline]
    pub(crate) fn of(
        &mut self,
        way: &Way,
        record: &ConnectionRecord,
        make: impl FnOnce() -> Template,
    ) -> &mut Template {
        let origin = Origin {
            connection: way.connection,
            generation: record.generation,
            interfaces: way.generation,
            flow_label: record.flow_label,
            hardware: way.hardware,
            interface: way.interface,
            ttl: record.ttl,
            tos: record.tos,
        };
        let entry = &mut self.0[at(way.connection) % ENTRIES];
        if entry.as_ref().is_none_or(|known| known.0 != origin) {
            *entry = None;
        }
        &mut entry.get_or_insert_with(|| (origin, make())).1
    }
}
