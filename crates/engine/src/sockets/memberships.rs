//! The groups of datagram sockets, in rows: whoever goes on after a crash joins them again.

use super::rows::at;
use crate::state::rows::{MembershipRow, Slot as _};
use hostif::MembershipChange;
use hostif::id::IdMap;
use stack::{InterfaceId, Membership, PackedAddress};

/// All that a socket hears of the group.
const WHOLE: u32 = 0;
/// Only what a source sends to it.
const ONLY: u32 = 1;
/// What everybody but a source sends to it.
const WITHOUT: u32 = 2;

/// Memberships of all sockets.
pub(super) struct Memberships {
    rows: &'static mut [MembershipRow],
    /// By the socket's row.
    known: IdMap<u64, Vec<u32>>,
    free: Vec<u32>,
    used: u32,
}

/// What of a membership a row says.
fn row_of(
    socket: (u32, u32),
    interface: InterfaceId,
    about: &Membership,
    kind: u32,
) -> MembershipRow {
    MembershipRow {
        used: 1,
        row: socket.0,
        generation: socket.1,
        kind,
        interface: interface.0.into(),
        group: PackedAddress::new(about.group),
        source: about
            .source
            .map_or(PackedAddress::default(), PackedAddress::new),
    }
}

impl Memberships {
    pub(super) fn new(rows: &'static mut [MembershipRow]) -> Self {
        Self {
            rows,
            known: IdMap::default(),
            free: Vec::new(),
            used: 0,
        }
    }

    fn indices(&self, socket: u32) -> &[u32] {
        self.known
            .get(&u64::from(socket))
            .map_or(&[], Vec::as_slice)
    }

    fn has(&self, wanted: &MembershipRow) -> bool {
        let mut indices = self.indices(wanted.row).iter();
        indices.any(|index| self.rows[at(*index)] == *wanted)
    }

    /// Where the table is full, the next engine does not know of it after a crash.
    fn insert(&mut self, row: MembershipRow) {
        if self.has(&row) {
            return;
        }
        let index = self.free.pop().or_else(|| {
            (at(self.used) < self.rows.len()).then(|| {
                self.used += 1;
                self.used - 1
            })
        });
        if let Some(index) = index {
            self.rows[at(index)].put(row);
            self.known.entry(row.row.into()).or_default().push(index);
        }
    }

    fn remove(&mut self, socket: u32, is_it: impl Fn(&MembershipRow) -> bool) {
        let rows = &mut self.rows;
        let Some(indices) = self.known.get_mut(&u64::from(socket)) else {
            return;
        };
        // What was left out of a group goes before the group.
        indices.sort_unstable_by_key(|index| core::cmp::Reverse(rows[at(*index)].kind));
        let free = &mut self.free;
        indices.retain(|index| {
            let goes = is_it(&rows[at(*index)]);
            if goes {
                rows[at(*index)].clear();
                free.push(*index);
            }
            !goes
        });
        if indices.is_empty() {
            self.known.remove(&u64::from(socket));
        }
    }

    /// The socket is gone.
    pub(super) fn forget(&mut self, socket: u32) {
        self.remove(socket, |_| true);
    }

    /// After a restart: all that are there and that `keep` keeps.
    pub(super) fn resume(&mut self, keep: impl Fn(&MembershipRow) -> bool) {
        for index in 0..u32::try_from(self.rows.len()).unwrap_or(u32::MAX) {
            let row = self.rows[at(index)];
            // What is beyond was never used: places are given out from the first on, and no generation is 0.
            if row.generation == 0 {
                break;
            }
            self.used = index + 1;
            if row.used == 1 && keep(&row) && !self.has(&row) {
                self.known.entry(row.row.into()).or_default().push(index);
            } else {
                self.rows[at(index)].clear();
                self.free.push(index);
            }
        }
    }

    /// What is to be done again for a socket, in this order.
    pub(super) fn of(&self, socket: u32) -> Vec<(MembershipChange, Membership)> {
        let mut rows: Vec<&MembershipRow> = self
            .indices(socket)
            .iter()
            .map(|index| &self.rows[at(*index)])
            .collect();
        rows.sort_unstable_by_key(|row| row.kind);
        let change = |row: &MembershipRow| match row.kind {
            WITHOUT => MembershipChange::Block,
            _ => MembershipChange::Join,
        };
        let about = |row: &MembershipRow| Membership {
            group: row.group.address(),
            interface: u16::try_from(row.interface).ok().map(InterfaceId),
            source: (row.kind != WHOLE).then(|| row.source.address()),
        };
        rows.into_iter()
            .map(|row| (change(row), about(row)))
            .collect()
    }

    /// The membership of a socket, by its row and which use of it, has changed so.
    pub(super) fn note(
        &mut self,
        socket: (u32, u32),
        interface: InterfaceId,
        change: MembershipChange,
        about: &Membership,
    ) {
        let row = |kind| row_of(socket, interface, about, kind);
        match (change, about.source) {
            (MembershipChange::Join, None) => self.insert(row(WHOLE)),
            (MembershipChange::Join, Some(_)) => self.insert(row(ONLY)),
            (MembershipChange::Block, _) => self.insert(row(WITHOUT)),
            (MembershipChange::Leave, None) => {
                let whole = row(WHOLE);
                let is_its = |one: &MembershipRow| {
                    one.interface == whole.interface && one.group == whole.group
                };
                self.remove(socket.0, is_its);
            }
            (MembershipChange::Leave, Some(_)) => {
                let gone = row(ONLY);
                self.remove(socket.0, |one| *one == gone);
            }
            (MembershipChange::Unblock, _) => {
                let gone = row(WITHOUT);
                self.remove(socket.0, |one| *one == gone);
            }
        }
    }

    /// Whether that change has happened.
    pub(super) fn has_changed(
        &self,
        socket: (u32, u32),
        interface: InterfaceId,
        change: MembershipChange,
        about: &Membership,
    ) -> bool {
        let has = |kind| self.has(&row_of(socket, interface, about, kind));
        match (change, about.source) {
            (MembershipChange::Join, None) => has(WHOLE),
            (MembershipChange::Join, Some(_)) => has(ONLY),
            (MembershipChange::Block, _) => has(WITHOUT),
            (MembershipChange::Leave, None) => !has(WHOLE),
            (MembershipChange::Leave, Some(_)) => !has(ONLY),
            (MembershipChange::Unblock, _) => !has(WITHOUT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::rows::crash;
    use core::net::IpAddr;
    use zerocopy::FromZeros as _;

    fn about(group: u8, source: Option<u8>) -> Membership {
        Membership {
            group: IpAddr::from([239, 0, 0, group]),
            interface: None,
            source: source.map(|source| IpAddr::from([10, 0, 0, source])),
        }
    }

    fn row(socket: u32, group: u8, source: Option<u8>, kind: u32) -> MembershipRow {
        row_of((socket, 1), InterfaceId(0), &about(group, source), kind)
    }

    #[test]
    fn memberships_are_found_whole_and_once_wherever_their_engine_ends() {
        for n in 0.. {
            let rows = vec![MembershipRow::new_zeroed(); 4].leak();
            let mut memberships = Memberships::new(rows);
            memberships.insert(row(1, 1, None, WHOLE));
            memberships.insert(row(1, 1, Some(7), WITHOUT));
            let crashed = crash::during(n, || {
                memberships.insert(row(2, 2, Some(8), ONLY));
                memberships.remove(1, |_| true);
                memberships.insert(row(3, 3, None, WHOLE));
            });
            let mut next = Memberships::new(memberships.rows);
            next.resume(|_| true);
            let found = |socket| next.of(socket).len();
            // A source is never left out of a group that the socket is not in.
            let of_first = next.of(1);
            assert!(
                of_first.is_empty() || of_first[0].0 == MembershipChange::Join,
                "{n} {of_first:?}"
            );
            assert!(crashed || of_first.is_empty(), "{n}");
            assert!(found(2) <= 1 && found(3) <= 1, "{n}");
            let all = found(1) + found(2) + found(3);
            assert_eq!(next.free.len() + all, at(next.used), "{n}: each place");
            if !crashed {
                assert_eq!((found(2), found(3)), (1, 1));
                return;
            }
        }
    }

    #[test]
    fn a_table_that_is_full_takes_no_more_and_a_place_is_used_again() {
        let mut memberships = Memberships::new(vec![MembershipRow::new_zeroed(); 2].leak());
        for group in 1..=3 {
            memberships.insert(row(1, group, None, WHOLE));
        }
        assert_eq!(memberships.of(1).len(), 2);
        memberships.forget(1);
        memberships.insert(row(2, 1, Some(1), ONLY));
        memberships.insert(row(2, 1, Some(1), ONLY));
        let expected = vec![(MembershipChange::Join, about(1, Some(1)))];
        let of = memberships.of(2).into_iter();
        let of: Vec<_> = of
            .map(|(change, about)| {
                (
                    change,
                    Membership {
                        interface: None,
                        ..about
                    },
                )
            })
            .collect();
        assert_eq!(of, expected);
    }
}
