//! Headers that left before on the same connection, so that the next segment's are not made anew (`wire::template`).
//! Everything that they were made from is compared each time, or counts with a generation.

use crate::containers::intrusive::at;
use crate::ip::path::Station;
use crate::tables::ConnectionRecord;
use wire::template::Template;

/// Connections that are remembered; others with the same place take turns. A power of two.
const ENTRIES: usize = 256;

/// What a template was made from, in few words: it is compared for every burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Origin {
    /// The row and its generation.
    row: u64,
    station: Station,
    /// The generation of the interfaces, one of which is the source of the frames; the flow label.
    label: u64,
    /// TTL and type of service.
    ip: u16,
}

impl Origin {
    #[inline]
    fn of(way: &Way, record: &ConnectionRecord) -> Self {
        Self {
            row: u64::from(way.connection) << 32 | u64::from(record.generation),
            station: way.station,
            label: u64::from(way.generation) << 32 | u64::from(record.flow_label),
            ip: u16::from_ne_bytes([record.ttl, record.tos]),
        }
    }
}

/// Where a segment of a connection goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// The row.
    pub(crate) connection: u32,
    pub(crate) station: Station,
    /// Of the interfaces.
    pub(crate) generation: u32,
}

/// What was learned.
#[derive(Debug)]
pub(crate) struct Templates(Box<[Option<(Origin, Template)>; ENTRIES]>);

impl Templates {
    pub(crate) fn new() -> Self {
        Self(Box::new([None; ENTRIES]))
    }

    /// The headers of what a connection sends this way; `make` makes them where they are not known.
    #[inline]
    pub(crate) fn of(
        &mut self,
        way: &Way,
        record: &ConnectionRecord,
        make: impl FnOnce() -> Template,
    ) -> &mut Template {
        let origin = Origin::of(way, record);
        let entry = &mut self.0[at(way.connection) % ENTRIES];
        if entry.as_ref().is_none_or(|known| known.0 != origin) {
            *entry = None;
        }
        &mut entry.get_or_insert_with(|| (origin, make())).1
    }
}
