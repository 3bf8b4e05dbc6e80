//! Programs that an engine before this one served: their channels, doorbells and rings are taken up where it left them.

use super::Programs;
use super::session::{Rings, Session};
use crate::device::link::SourceFile;
use crate::programs::users::{ProgramFd, User};
use crate::sockets::region::Regions;
use crate::state::rows::{HandleRow, Held, SessionRow, Slot as _};
use hostif::Moderation;
use rustix::fd::{AsFd as _, OwnedFd, RawFd};
use rustix::io::Errno;
use std::sync::Arc;

/// Descriptors that rows name, each to be taken up once: who comes first has it. By number: the kernel gives the lowest.
#[derive(Default)]
pub(crate) struct Taken(Vec<bool>);

impl Taken {
    /// Whether that was taken up.
    pub(crate) fn has(&self, number: RawFd) -> bool {
        let at = usize::try_from(number).ok();
        at.is_some_and(|at| self.0.get(at).copied().unwrap_or(false))
    }

    fn note(&mut self, number: RawFd) {
        let Ok(at) = usize::try_from(number) else {
            return;
        };
        if self.0.len() <= at {
            self.0.resize(at + 1, false);
        }
        self.0[at] = true;
    }

    /// What is open under the number that a row names, and not taken yet.
    pub(crate) fn take(&mut self, held: Held, user: &Arc<User>) -> Option<ProgramFd> {
        self.take_own(held).map(|fd| user.keep(fd))
    }

    /// The same, of what no program can make wait.
    pub(crate) fn take_own(&mut self, held: Held) -> Option<OwnedFd> {
        self.take_number(held.number()?)
    }

    /// The same, by its number.
    pub(crate) fn take_number(&mut self, number: RawFd) -> Option<OwnedFd> {
        if self.has(number) {
            return None;
        }
        let fd = crate::state::take(number)?;
        self.note(number);
        Some(fd)
    }
}

impl Programs {
    /// Takes the sessions up. Their sockets, files and prepared sockets come later.
    pub(crate) fn resume(&mut self, regions: &mut Regions, taken: &mut Taken) {
        self.last_number = self.engine.last_session;
        for slot in 0..self.rows.len() {
            let row = self.rows[slot];
            if row.used != 1 {
                continue;
            }
            if self.slots.len() <= slot {
                self.slots.resize_with(slot + 1, || None);
            }
            self.slots[slot] = self.resumed(&row, regions, taken);
            if self.slots[slot].is_some() {
                self.new.push(slot);
            } else {
                self.rows[slot].clear();
            }
        }
    }

    fn resumed(
        &self,
        row: &SessionRow,
        regions: &mut Regions,
        taken: &mut Taken,
    ) -> Option<Session> {
        let user = self.users.user(row.uid).ok()?;
        let control = taken.take(row.control, &user)?;
        let mut session = Session::over(row.number, row.pid, Arc::clone(&user), control);
        let every = (row.ring_every > 0).then_some(row.ring_every);
        session.moderator.set(Moderation {
            every,
            after_us: row.ring_after_us,
        });
        let bells = taken
            .take(row.program_bell, &user)
            .zip(taken.take(row.engine_bell, &user));
        if row.region != 0
            && let Some((program_bell, engine_bell)) = bells
        {
            let region = regions.give_session(row.region)?;
            session.rings = Some(Rings::resume(region, program_bell, engine_bell));
        }
        Some(session)
    }

    /// A loop watches the doorbells of the sessions that were taken up.
    pub(crate) fn watch_bells(&self) -> Result<(), Errno> {
        for (slot, session) in self.slots.iter().enumerate() {
            let rings = session.as_ref().and_then(|session| session.rings.as_ref());
            if let Some(rings) = rings {
                self.watch_bell(slot, rings.engine_bell.as_fd())?;
            }
        }
        Ok(())
    }

    /// Takes up what sessions have left here that no socket has taken.
    pub(crate) fn resume_handles(&mut self, taken: &mut Taken) {
        let slots = &mut self.slots;
        self.handles.resume(|row: &HandleRow| {
            let slot = usize::try_from(row.slot).ok();
            let session = slot.and_then(|slot| slots.get_mut(slot)?.as_mut());
            let Some(session) = session else {
                return false;
            };
            let Some(file) = taken.take(row.file, &Arc::clone(&session.user)) else {
                return false;
            };
            session.next_handle = session.next_handle.max(row.handle.wrapping_add(1).max(1));
            if row.is_file == 1 {
                let file = Arc::new(SourceFile::new(file));
                session.files.insert(row.handle, file);
            } else {
                session.backings.insert(row.handle, file);
            }
            true
        });
    }
}
