//! What the rows say of attached programs, so that whoever goes on after a crash finds them: sessions, the descriptors that
//! they have left here, and how far the command that is being carried out has come.

use super::Programs;
use super::session::{BACKINGS_MAX, FILES_MAX};
use crate::device::link::SourceFile;
use crate::programs::users::ProgramFd;
use crate::state::rows::{EngineRow, HandleRow, Held, SessionRow, Slot as _, fence};
use hostif::Moderation;
use hostif::id::IdMap;
use std::sync::Arc;

/// What of the state is the programs'.
pub struct ProgramTables {
    /// The engine.
    pub engine: &'static mut EngineRow,
    /// By slot.
    pub sessions: &'static mut [SessionRow],
    /// Descriptors by handle.
    pub handles: &'static mut [HandleRow],
}

/// Where the descriptors of handles are told.
pub(super) struct Handles {
    pub(super) rows: &'static mut [HandleRow],
    known: IdMap<u64, usize>,
    free: Vec<usize>,
    used: usize,
}

fn key(slot: u32, handle: u32) -> u64 {
    u64::from(slot) << 32 | u64::from(handle)
}

impl Handles {
    pub(super) fn new(rows: &'static mut [HandleRow]) -> Self {
        Self {
            rows,
            known: IdMap::default(),
            free: Vec::new(),
            used: 0,
        }
    }

    fn room(&self) -> usize {
        self.free.len() + (self.rows.len() - self.used)
    }

    fn put(&mut self, slot: usize, handle: u32, file: Held, is_file: bool) {
        let row = HandleRow {
            used: 1,
            slot: number(slot),
            handle,
            is_file: u32::from(is_file),
            file,
        };
        let index = self.free.pop().or_else(|| {
            (self.used < self.rows.len()).then(|| {
                self.used += 1;
                self.used - 1
            })
        });
        if let Some(index) = index {
            self.rows[index].put(row);
            self.known.insert(key(row.slot, row.handle), index);
        }
    }

    fn remove(&mut self, slot: u32, handle: u32) {
        if let Some(index) = self.known.remove(&key(slot, handle)) {
            self.rows[index].clear();
            self.free.push(index);
        }
    }

    /// After a restart: those that `keep` takes up.
    pub(super) fn resume(&mut self, mut keep: impl FnMut(&HandleRow) -> bool) {
        for index in 0..self.rows.len() {
            let row = self.rows[index];
            // What is beyond was never used: places are given out from the first on, and no handle is 0.
            if row.handle == 0 {
                break;
            }
            self.used = index + 1;
            if row.used != 1 {
                continue;
            }
            if keep(&row) {
                self.known.insert(key(row.slot, row.handle), index);
            } else {
                self.rows[index].clear();
            }
        }
        let unused = (0..self.used).filter(|index| self.rows[*index].used != 1);
        self.free = unused.collect();
    }
}

fn number(slot: usize) -> u32 {
    u32::try_from(slot).unwrap_or(u32::MAX)
}

impl Programs {
    /// The row of a slot.
    pub(crate) fn row_mut(&mut self, slot: usize) -> Option<&mut SessionRow> {
        self.rows.get_mut(slot)
    }

    /// A session has begun.
    pub(super) fn put_row(&mut self, slot: usize) {
        let Some(session) = self.slots.get(slot).and_then(Option::as_ref) else {
            return;
        };
        let policy = session.moderator.policy();
        let row = SessionRow {
            used: 1,
            number: session.number,
            pid: session.pid,
            uid: session.user.uid,
            control: Held::of(&*session.control),
            ring_every: policy.every.unwrap_or(0),
            ring_after_us: policy.after_us,
            ..zerocopy::FromZeros::new_zeroed()
        };
        self.engine.last_session = session.number;
        if let Some(place) = self.rows.get_mut(slot) {
            place.put(row);
        }
    }

    /// It has said hello, and has rings.
    pub(crate) fn put_rings(&mut self, slot: usize) {
        let Some(session) = self.slots.get(slot).and_then(Option::as_ref) else {
            return;
        };
        let (Some(rings), Some(row)) = (&session.rings, self.rows.get_mut(slot)) else {
            return;
        };
        self.engine.last_region = rings.region;
        row.pid = session.pid;
        let (program_bell, engine_bell) = rings.bells();
        (row.program_bell, row.engine_bell) = (program_bell, engine_bell);
        fence();
        row.region = rings.region;
    }

    /// It has another doorbell.
    pub(crate) fn exchange_bell(&mut self, slot: usize, bell: ProgramFd) {
        let session = self.slots.get_mut(slot).and_then(Option::as_mut);
        let rings = session.and_then(|session| session.rings.as_mut());
        if let (Some(rings), Some(row)) = (rings, self.rows.get_mut(slot)) {
            row.program_bell = Held::of(&*bell);
            fence();
            // The last one is closed after that.
            rings.exchange_bell(bell);
        }
    }

    /// It is rung by this policy.
    pub(crate) fn put_policy(&mut self, slot: usize, policy: Moderation) {
        if let Some(row) = self.rows.get_mut(slot) {
            row.ring_after_us = policy.after_us;
            row.ring_every = policy.every.unwrap_or(0);
        }
    }

    /// A request of it may be taken now, and its answer is not sent.
    pub(crate) fn set_owes_answer(&mut self, slot: usize, owes: bool) {
        if let Some(row) = self.rows.get_mut(slot) {
            row.owes_answer = owes.into();
        }
        fence();
    }

    /// A command is about to be carried out.
    pub(crate) fn begin_command(&mut self, slot: usize) {
        let session = self.slots.get(slot).and_then(Option::as_ref);
        let rings = session.and_then(|session| session.rings.as_ref());
        if let (Some(rings), Some(row)) = (rings, self.rows.get_mut(slot)) {
            // What an engine before noted of a command that was told is none of this one's.
            row.accepted = 0;
            row.told = rings.told();
            fence();
            row.command = rings.commands.position();
            fence();
        }
    }

    /// It waits, and nothing of it was done.
    pub(crate) fn put_off_command(&mut self, slot: usize) {
        if let Some(row) = self.rows.get_mut(slot) {
            row.command = 0;
        }
    }

    /// It was carried out: its program is told.
    pub(crate) fn end_command(&mut self, slot: usize) {
        let pushed = self
            .get_mut(slot)
            .map_or(Ok(()), |session| session.push_completions());
        if pushed.is_err() {
            self.fault(slot, "a completion index that cannot be");
        }
        fence();
        if let Some(row) = self.rows.get_mut(slot) {
            row.accepted = 0;
        }
    }

    /// Somebody waits for the end of what that token has closed. `false`: too many do.
    pub(super) fn put_closing(&mut self, slot: usize, token: u32) -> bool {
        let row = self.rows.get_mut(slot);
        let place = row.and_then(|row| row.closings.iter_mut().find(|one| **one == 0));
        place.map(|place| *place = token).is_some()
    }

    /// It has ended.
    pub(crate) fn end_closing(&mut self, slot: usize, token: u32) {
        self.done(slot, token, Ok(0));
        self.end_command(slot);
        let row = self.rows.get_mut(slot);
        if let Some(place) = row.and_then(|row| row.closings.iter_mut().find(|one| **one == token))
        {
            *place = 0;
        }
    }

    /// Keeps prepared backing sockets; `None`: too many. Returns the first handle.
    pub(crate) fn keep_backings(
        &mut self,
        slot: usize,
        descriptors: Vec<ProgramFd>,
    ) -> Option<u32> {
        let session = self.slots.get_mut(slot)?.as_mut()?;
        let count = descriptors.len();
        if session.backings.len() + count > BACKINGS_MAX || count > self.handles.room() {
            return None;
        }
        let first = session.next_handle;
        for descriptor in descriptors {
            let handle = session.take_handle();
            self.handles
                .put(slot, handle, Held::of(&*descriptor), false);
            session.backings.insert(handle, descriptor);
        }
        Some(first)
    }

    /// A backing socket that was taken from under a handle has it again.
    pub(crate) fn return_backing(&mut self, slot: usize, handle: u32, backing: ProgramFd) {
        if let Some(session) = self.slots.get_mut(slot).and_then(Option::as_mut) {
            self.handles.put(slot, handle, Held::of(&*backing), false);
            session.backings.insert(handle, backing);
        }
    }

    /// Keeps a file to send from; `None`: too many. Returns its handle.
    pub(crate) fn keep_file(&mut self, slot: usize, file: ProgramFd) -> Option<u32> {
        let session = self.slots.get_mut(slot)?.as_mut()?;
        if session.files.len() == FILES_MAX || self.handles.room() == 0 {
            return None;
        }
        let handle = session.take_handle();
        self.handles.put(slot, handle, Held::of(&*file), true);
        session
            .files
            .insert(handle, Arc::new(SourceFile::new(file)));
        Some(handle)
    }

    /// The row of a handle goes; whoever has taken the descriptor has a row of its own for it.
    pub(crate) fn forget_handle(&mut self, slot: usize, handle: u32) {
        self.handles.remove(number(slot), handle);
    }

    /// The rows of a session that has ended go.
    pub(super) fn clear_rows(&mut self, slot: usize) {
        let Some(session) = self.slots.get(slot).and_then(Option::as_ref) else {
            return;
        };
        if let Some(row) = self.rows.get_mut(slot) {
            row.clear();
        }
        let all = session.backings.keys().chain(session.files.keys());
        for handle in all {
            self.handles.remove(number(slot), *handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::rows::crash;
    use std::io::{stderr, stdin, stdout};
    use zerocopy::FromZeros as _;

    #[test]
    fn handles_are_found_whole_and_once_wherever_their_engine_ends() {
        let [first, second, third] = [Held::of(&stdin()), Held::of(&stdout()), Held::of(&stderr())];
        for n in 0.. {
            let mut handles = Handles::new(vec![HandleRow::new_zeroed(); 3].leak());
            handles.put(0, 1, first, false);
            handles.put(1, 1, second, false);
            handles.remove(0, 1);
            let crashed = crash::during(n, || {
                handles.put(2, 7, third, true);
                handles.remove(1, 1);
                handles.put(0, 2, first, false);
            });
            let mut found = Vec::new();
            let mut next = Handles::new(handles.rows);
            next.resume(|row| {
                found.push((row.slot, row.handle, row.is_file, row.file));
                true
            });
            let all = [(1, 1, 0, second), (2, 7, 1, third), (0, 2, 0, first)];
            assert!(found.iter().all(|row| all.contains(row)), "{n} {found:?}");
            assert!(
                !found.is_empty() && found.len() <= 2 + usize::from(crashed),
                "{n}"
            );
            let mut each = found.clone();
            each.dedup();
            assert_eq!(each, found, "{n}");
            // Each place is taken or can be.
            assert_eq!(next.room() + found.len(), 3, "{n}");
            for number in 0..next.room() {
                next.put(5, u32::try_from(number).unwrap() + 1, third, true);
            }
            assert!(next.rows.iter().all(|row| row.used == 1), "{n}");
            if !crashed {
                return assert_eq!(found.len(), 2);
            }
        }
    }
}
