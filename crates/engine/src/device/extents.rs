//! What of streams is in files, in rows that outlive the engine: the next one reads it into windows, and so goes on with a sendfile that was
//! under way. See docs/decisions/0086-a-sendfile-goes-on.md.

use crate::state::rows::{ExtentRow, Held, Slot as _};
use rustix::fd::OwnedFd;

/// A socket's row, and which use of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketUse {
    pub row: u32,
    pub generation: u32,
}

/// The rows, and which of them are free.
pub struct ExtentRows {
    rows: &'static mut [ExtentRow],
    free: Vec<u32>,
    used: u32,
}

fn at(place: u32) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}

impl ExtentRows {
    /// None yet, or what an engine before has left: [`ExtentRows::take_left`].
    pub fn new(rows: &'static mut [ExtentRow]) -> Self {
        Self {
            rows,
            free: Vec::new(),
            used: 0,
        }
    }

    /// The bytes between two stream offsets are in the file from `offset` on. Their place; `None`: all are taken.
    pub fn put(
        &mut self,
        of: SocketUse,
        file: &OwnedFd,
        (start, end): (u64, u64),
        offset: u64,
    ) -> Option<u32> {
        let place = self.free.pop().or_else(|| {
            (at(self.used) < self.rows.len()).then(|| {
                self.used += 1;
                self.used - 1
            })
        })?;
        self.rows[at(place)].put(ExtentRow {
            used: 1,
            row: of.row,
            generation: of.generation,
            file: Held::of(file),
            start,
            end,
            offset,
        });
        Some(place)
    }

    /// An extent is longer than it was.
    pub fn extend(&mut self, place: u32, end: u64) {
        // One store: it has happened or not.
        self.rows[at(place)].end = end;
    }

    /// It is needed no more.
    pub fn remove(&mut self, place: u32) {
        self.rows[at(place)].clear();
        self.free.push(place);
    }

    /// After a restart: what an engine before has left. It stays in the rows until [`ExtentRows::forget_left`].
    pub fn left(&self) -> impl Iterator<Item = &ExtentRow> {
        // What is beyond was never used: places are given out from the first on, and no generation is 0.
        let known = self.rows.iter().take_while(|row| row.generation != 0);
        known.filter(|row| row.used == 1)
    }

    /// All of that is in windows.
    pub fn forget_left(&mut self) {
        self.rows
            .iter_mut()
            .take_while(|row| row.generation != 0)
            .for_each(|row| row.clear());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::rows::crash;
    use std::io::stderr;
    use std::os::fd::AsFd as _;
    use zerocopy::FromZeros as _;

    #[test]
    fn extents_are_found_whole_wherever_their_engine_ends() {
        let file = stderr().as_fd().try_clone_to_owned().unwrap();
        let of = |row| SocketUse { row, generation: 1 };
        for n in 0.. {
            let mut rows = ExtentRows::new(vec![ExtentRow::new_zeroed(); 3].leak());
            let first = rows.put(of(1), &file, (10, 20), 100).unwrap();
            let crashed = crash::during(n, || {
                rows.extend(first, 30);
                rows.put(of(2), &file, (0, 5), 7).unwrap();
                rows.remove(first);
                rows.put(of(3), &file, (1, 2), 9).unwrap();
            });
            let mut next = ExtentRows::new(rows.rows);
            let all = [(1, 10, 30, 100), (2, 0, 5, 7), (3, 1, 2, 9)];
            let found: Vec<_> = next
                .left()
                .map(|row| (row.row, row.start, row.end, row.offset))
                .collect();
            assert!(found.iter().all(|row| all.contains(row)), "{n} {found:?}");
            assert!(next.left().all(|row| row.file == Held::of(&file)));
            next.forget_left();
            assert_eq!(next.left().count(), 0);
            let places = (0..3).map(|row| next.put(of(row), &file, (0, 1), 0));
            assert_eq!(places.collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
            assert_eq!(next.put(of(4), &file, (0, 1), 0), None);
            if !crashed {
                return assert_eq!(found.len(), 2);
            }
        }
    }
}
