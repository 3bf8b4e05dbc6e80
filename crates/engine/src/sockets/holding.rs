//! Which programs hold a socket, the backing socket that they have left here, and the marks of its row: in the rows, so that
//! whoever goes on after a crash finds them.

use super::Sockets;
use super::rows::{Marks, at};
use crate::programs::users::ProgramFd;
use crate::state::rows::{Held, HoldRow, Slot as _, fence};
use hostif::id::IdMap;
use rustix::fd::OwnedFd;

/// Holders of sockets besides the first of each.
pub(super) struct Holds {
    pub(super) rows: &'static mut [HoldRow],
    /// By the socket's row and the session's slot.
    known: IdMap<u64, u32>,
    free: Vec<u32>,
    used: u32,
}

fn key(row: u32, slot: u32) -> u64 {
    u64::from(row) << 32 | u64::from(slot)
}

impl Holds {
    pub(super) fn new(rows: &'static mut [HoldRow]) -> Self {
        Self {
            rows,
            known: IdMap::default(),
            free: Vec::new(),
            used: 0,
        }
    }

    /// Where the table is full, the next engine does not know this holder after a crash.
    fn insert(&mut self, row: u32, generation: u32, slot: u32) {
        let index = self.free.pop().or_else(|| {
            (at(self.used) < self.rows.len()).then(|| {
                self.used += 1;
                self.used - 1
            })
        });
        if let Some(index) = index {
            self.rows[at(index)].put(HoldRow {
                used: 1,
                row,
                generation,
                slot,
            });
            self.known.insert(key(row, slot), index);
        }
    }

    pub(super) fn remove(&mut self, row: u32, slot: u32) {
        if let Some(index) = self.known.remove(&key(row, slot)) {
            self.rows[at(index)].clear();
            self.free.push(index);
        }
    }

    /// After a restart: all that are there, each with its place.
    pub(super) fn found(&mut self) -> Vec<HoldRow> {
        let mut found = Vec::new();
        for (index, row) in (0..).zip(self.rows.iter()) {
            // What is beyond was never used: places are given out from the first on, and no generation is 0.
            if row.generation == 0 {
                break;
            }
            self.used = index + 1;
            if row.used == 1 {
                self.known.insert(key(row.row, row.slot), index);
                found.push(*row);
            }
        }
        self.free = (0..self.used)
            .filter(|index| self.rows[at(*index)].used == 0)
            .collect();
        found
    }
}

impl Sockets {
    /// Whether a socket has this mark.
    pub(crate) fn has(&self, row: u32, mark: Marks) -> bool {
        self.row(row).has(mark)
    }

    /// Sets the mark of a socket, or takes it away.
    pub(crate) fn set_mark(&mut self, row: u32, mark: Marks, on: bool) {
        // One store: it has happened or not.
        self.rows[at(row)].set(mark, on);
    }

    /// The program in `slot` holds the socket from now on.
    pub(crate) fn hold(&mut self, row: u32, slot: usize) {
        let Ok(number) = u32::try_from(slot) else {
            return;
        };
        self.companions[at(row)].holders.push(slot);
        if self.row(row).holder == 0 {
            self.rows[at(row)].holder = number + 1;
        } else {
            // The mark first: whoever goes on lets go of a holder that is found only where it is.
            self.set_mark(row, Marks::MORE_HOLDERS, true);
            let generation = self.row(row).generation;
            self.holds.insert(row, generation, number);
        }
    }

    /// The program in `slot` holds the socket no more.
    pub(crate) fn unhold(&mut self, row: u32, slot: usize) {
        let holders = &mut self.companions[at(row)].holders;
        holders.retain(|holder| *holder != slot);
        let Ok(number) = u32::try_from(slot) else {
            return;
        };
        if self.row(row).holder == number + 1 {
            self.rows[at(row)].holder = 0;
        } else if self.has(row, Marks::MORE_HOLDERS) {
            self.holds.remove(row, number);
        }
    }

    /// The engine's duplicate of a socket's backing socket, or none any more.
    pub(crate) fn keep_backing(&mut self, row: u32, backing: Option<ProgramFd>) {
        let held = backing
            .as_ref()
            .map_or(Held::default(), |fd| Held::of(&**fd));
        self.rows[at(row)].backing = held;
        self.companions[at(row)].backing = backing;
    }

    /// Whether it is a connection whose port the kernel is to give to nobody. A port that the engine chose is not.
    pub(crate) fn holds_port(&self, row: u32) -> bool {
        let record = self.row(row);
        record.connection().is_some() && record.active && !self.is_port_chosen(row)
    }

    /// Whether the engine has a duplicate of its backing socket.
    pub(crate) fn has_backing(&self, row: u32) -> bool {
        self.companions[at(row)].backing.is_some()
    }

    /// `set` shows from now on whether a descriptor of the orphan is open elsewhere.
    pub(crate) fn show_orphan(&mut self, row: u32, set: &OwnedFd) {
        self.rows[at(row)].backing = Held::of(set);
    }

    /// It is no orphan any more. In this order: the set, which others of its batch may name too, would be taken for its backing socket.
    pub(crate) fn end_orphan(&mut self, row: u32) {
        self.rows[at(row)].backing = Held::default();
        fence();
        self.set_mark(row, Marks::ORPHAN, false);
    }

    /// Takes it away.
    pub(crate) fn take_backing(&mut self, row: u32) -> Option<ProgramFd> {
        self.rows[at(row)].backing = Held::default();
        self.companions[at(row)].backing.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::rows::crash;
    use zerocopy::FromZeros as _;

    #[test]
    fn holders_are_found_whole_and_once_wherever_their_engine_ends() {
        for n in 0.. {
            let mut holds = Holds::new(vec![HoldRow::new_zeroed(); 3].leak());
            holds.insert(4, 1, 1);
            holds.insert(5, 1, 2);
            holds.remove(4, 1);
            let crashed = crash::during(n, || {
                holds.insert(6, 3, 3);
                holds.remove(5, 2);
                holds.insert(7, 2, 1);
            });
            let mut next = Holds::new(holds.rows);
            let found = next.found();
            let found: Vec<_> = found
                .iter()
                .map(|one| (one.row, one.generation, one.slot))
                .collect();
            let all = [(5, 1, 2), (6, 3, 3), (7, 2, 1)];
            assert!(found.iter().all(|one| all.contains(one)), "{n} {found:?}");
            assert_eq!(next.known.len(), found.len(), "{n} {found:?}");
            for slot in 10.. {
                if next.rows.iter().all(|row| row.used == 1) {
                    break;
                }
                assert!(slot < 13, "{n}: each place is taken or can be");
                next.insert(9, 1, slot);
            }
            if !crashed {
                return assert_eq!(found.len(), 2);
            }
        }
    }
}
