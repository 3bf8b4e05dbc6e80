//! The regions that the engine has made: which headers and window pairs of each are in use.
//!
//! A region outlives its session while sockets still use it, for a forked child may hold them.

use super::shares::{Bounds, Refused, Shares, Table};
use crate::programs::resume::Taken;
use crate::programs::users::{Finished, FinishedSender, User};
use crate::state::rows::{Held, RegionRow, Slot as _};
use hostif::id::{IdMap, number_of_core};
use hostif::{Layout, Region};
use std::sync::Arc;

/// A window with so much in it at most is not worth a system call, and page faults of who uses it next.
pub const SMALL_BYTES: u64 = 16 * 1024;
/// Of a region, pairs of such windows that are kept as they are.
const WARM_MAX: usize = 256;

/// A pool of indexes: those given back first, then those never used.
#[derive(Debug)]
struct Indexes {
    free: Vec<u32>,
    used: u32,
    limit: u32,
}

impl Indexes {
    fn new(limit: u32) -> Self {
        Self {
            free: Vec::new(),
            used: 0,
            limit,
        }
    }

    /// These are taken.
    fn resume(&mut self, mut taken: Vec<u32>) {
        taken.sort_unstable();
        taken.dedup();
        taken.retain(|index| *index < self.limit);
        self.used = taken.last().map_or(0, |last| last + 1);
        self.free = (0..self.used)
            .filter(|index| taken.binary_search(index).is_err())
            .collect();
    }

    fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            (self.used < self.limit).then(|| {
                self.used += 1;
                self.used - 1
            })
        })
    }
}

/// What a socket uses of a region.
pub(super) struct Use {
    pub(super) region: u32,
    pub(super) header: u32,
    pub(super) pair: Option<u32>,
    /// The tables in which it has a row.
    pub(super) tables: [Option<Table>; 3],
}

/// A region and what is used of it.
pub struct SessionRegion {
    /// The region.
    pub region: Region,
    headers: Indexes,
    pairs: Indexes,
    /// Pairs given back whose memory was not.
    warm: Vec<u32>,
    sockets: u32,
    has_session: bool,
    /// The user of that session.
    user: Arc<User>,
    /// What it has is counted.
    is_counted: bool,
    /// Memory that the windows took when that was measured last.
    memory_bytes: u64,
    /// More than one program may have.
    is_short: bool,
}

impl SessionRegion {
    /// Whether anything depends on how much memory it takes.
    fn is_bounded(&self, shares: &Shares) -> bool {
        self.is_counted || shares.bounds().program_bytes < u64::MAX
    }

    /// Looks how much memory it takes.
    fn measure(&mut self, shares: &mut Shares) {
        let bytes = self.region.allocated_bytes().unwrap_or(0);
        let before = core::mem::replace(&mut self.memory_bytes, bytes);
        if self.is_counted {
            shares.measured(&self.user, bytes, before);
        }
        let is_short = bytes > shares.bounds().program_bytes;
        if is_short != core::mem::replace(&mut self.is_short, is_short) {
            let (uid, region) = (self.user.uid, self.region.id());
            tracing::warn!(
                uid,
                region,
                is_short,
                "memory of one program's windows: no new ones while it is short (`shunt engine --program-memory-mib`)"
            );
        }
    }
}

/// All regions of a core by number.
pub struct Regions {
    core: u16,
    answers: FinishedSender,
    slots: IdMap<u32, SessionRegion>,
    last: u32,
    rows: &'static mut [RegionRow],
    shares: Shares,
}

impl Regions {
    /// No regions yet.
    pub fn new(
        core: u16,
        answers: FinishedSender,
        rows: &'static mut [RegionRow],
        bounds: Bounds,
    ) -> Self {
        Self {
            core,
            answers,
            slots: IdMap::default(),
            last: 0,
            rows,
            shares: Shares::new(bounds),
        }
    }

    /// Number for a new region, which no other core's has.
    pub fn next_number(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            let number = number_of_core(self.core, self.last);
            if number != 0 && !self.slots.contains_key(&number) {
                return number;
            }
        }
    }

    /// Keeps a region whose session lives, of a program of that user. `None`: there are too many.
    pub fn insert(&mut self, region: Region, user: Arc<User>) -> Option<()> {
        let row = self.rows.iter_mut().find(|row| row.used == 0)?;
        row.put(RegionRow {
            used: 1,
            number: region.id(),
            session: region.session(),
            uid: user.uid,
            file: Held::of(&region.file()),
        });
        self.know(region, user, true);
        Some(())
    }

    fn know(&mut self, region: Region, user: Arc<User>, has_session: bool) {
        let layout = region.layout();
        let (headers, pairs) = (
            Indexes::new(layout.socket_headers),
            Indexes::new(layout.window_pairs),
        );
        self.slots.insert(
            region.id(),
            SessionRegion {
                region,
                headers,
                pairs,
                warm: Vec::new(),
                sockets: 0,
                has_session,
                is_counted: !user.is_trusted(),
                user,
                memory_bytes: 0,
                is_short: false,
            },
        );
    }

    /// After a restart: the regions that are there, which no session has yet. `user` knows users, `layout` is that of all.
    pub(super) fn resume(
        &mut self,
        last: u32,
        layout: &Layout,
        taken: &mut Taken,
        user: &mut dyn FnMut(u32) -> Option<Arc<User>>,
    ) {
        self.last = last;
        for at in 0..self.rows.len() {
            let row = self.rows[at];
            if row.used != 1 {
                continue;
            }
            let file = taken.take_own(row.file);
            let region = file
                .and_then(|file| Region::adopt(file, *layout, row.number, row.session).ok())
                .zip(user(row.uid));
            match region {
                Some((region, user)) => self.know(region, user, false),
                None => self.rows[at].clear(),
            }
        }
    }

    /// After a restart: a session has the region.
    pub fn give_session(&mut self, number: u32) -> Option<&Region> {
        let slot = self.slots.get_mut(&number)?;
        slot.has_session = true;
        Some(&slot.region)
    }

    /// After a restart: which headers and pairs of windows sockets use, without those that are not of the layout.
    pub(super) fn resume_use(&mut self, used: &[Use]) {
        let mut each: IdMap<u32, (Vec<u32>, Vec<u32>)> = IdMap::default();
        for one in used {
            for table in one.tables.into_iter().flatten() {
                self.take(one.region, table);
            }
            let (headers, pairs) = each.entry(one.region).or_default();
            headers.push(one.header);
            pairs.extend(one.pair);
        }
        for (number, (headers, pairs)) in each {
            if let Some(slot) = self.slots.get_mut(&number) {
                slot.sockets = u32::try_from(headers.len()).unwrap_or(u32::MAX);
                slot.headers.resume(headers);
                slot.pairs.resume(pairs);
            }
        }
        let unused = self.slots.values();
        let unused = unused.filter(|slot| slot.sockets == 0 && !slot.has_session);
        let unused: Vec<u32> = unused.map(|slot| slot.region.id()).collect();
        unused
            .into_iter()
            .for_each(|number| self.drop_unused(number));
    }

    /// The region of that number.
    pub fn find(&self, number: u32) -> Option<&Region> {
        self.slots.get(&number).map(|slot| &slot.region)
    }

    /// Whose region that is.
    pub fn owner(&self, number: u32) -> Option<&User> {
        self.slots.get(&number).map(|slot| &*slot.user)
    }

    /// The same, to be kept.
    pub(crate) fn user(&self, number: u32) -> Option<Arc<User>> {
        self.slots.get(&number).map(|slot| Arc::clone(&slot.user))
    }

    /// Whether the user of a region may have one row more of a table.
    pub fn has_capacity(&mut self, number: u32, table: Table) -> bool {
        let slot = self.slots.get(&number).filter(|slot| slot.is_counted);
        slot.is_none_or(|slot| self.shares.has_capacity(&slot.user, table))
    }

    /// The user of a region has one row more of a table.
    pub fn take(&mut self, number: u32, table: Table) {
        if let Some(slot) = self.slots.get(&number).filter(|slot| slot.is_counted) {
            self.shares.take(&slot.user, table);
        }
    }

    /// It has one less.
    pub(super) fn give_back(&mut self, number: u32, table: Table) {
        if let Some(slot) = self.slots.get(&number).filter(|slot| slot.is_counted) {
            self.shares.give_back(&slot.user, table);
        }
    }

    /// Takes a header for a new socket.
    pub fn take_header(&mut self, number: u32) -> Option<u32> {
        if !self.has_capacity(number, Table::Sockets) {
            return None;
        }
        let slot = self.slots.get_mut(&number)?;
        let header = slot.headers.take()?;
        slot.sockets += 1;
        self.take(number, Table::Sockets);
        Some(header)
    }

    /// Takes a pair of windows, which can be used from now on.
    pub fn take_pair(&mut self, number: u32) -> Option<u32> {
        let slot = self.slots.get_mut(&number)?;
        if slot.is_bounded(&self.shares) {
            slot.measure(&mut self.shares);
        }
        if slot.is_short || (slot.is_counted && self.shares.is_short(&slot.user)) {
            self.shares.refused.windows += 1;
            return None;
        }
        let pair = slot.warm.pop().or_else(|| slot.pairs.take())?;
        let (send, receive) = slot.region.window_pair(pair)?;
        let mapped = [send, receive].map(|span| slot.region.try_window(span).map(drop));
        if let Some(error) = mapped.into_iter().find_map(Result::err) {
            tracing::warn!("no windows for a connection: {error}");
            slot.pairs.free.push(pair);
            return None;
        }
        Some(pair)
    }

    /// Gives a pair of windows back, and its memory to the system unless little was ever in it. What stays there
    /// is seen by nobody but who has the region mapped already.
    pub fn free_pair(&mut self, number: u32, pair: u32, is_small: bool) {
        let Some(slot) = self.slots.get_mut(&number) else {
            return;
        };
        if is_small && slot.warm.len() < WARM_MAX {
            slot.warm.push(pair);
            return;
        }
        if slot.user.is_direct() {
            give_back(&slot.region, pair);
            slot.pairs.free.push(pair);
            return;
        }
        let (region, answers) = (slot.region.clone(), self.answers.clone());
        // To give memory back takes a lock of the file, which a writer keeps while it waits for its own memory.
        slot.user.run(move || {
            give_back(&region, pair);
            drop(region);
            answers.tell(Finished::Freed {
                region: number,
                pair,
            });
        });
    }

    /// The memory of a pair that was given back is the system's: the pair may be used again.
    pub fn on_freed(&mut self, number: u32, pair: u32) {
        if let Some(slot) = self.slots.get_mut(&number) {
            slot.pairs.free.push(pair);
        }
    }

    /// Gives a socket's header back; the region goes with its last socket and its session.
    pub fn free_header(&mut self, number: u32, header: u32) {
        let Some(slot) = self.slots.get_mut(&number) else {
            return;
        };
        if let Some(shared) = slot.region.socket_header(header) {
            shared.engine_retire();
        }
        slot.headers.free.push(header);
        slot.sockets -= 1;
        self.drop_unused(number);
    }

    /// The region's session is gone.
    pub fn end_session(&mut self, number: u32) {
        if let Some(slot) = self.slots.get_mut(&number) {
            slot.has_session = false;
        }
        self.drop_unused(number);
    }

    fn drop_unused(&mut self, number: u32) {
        if self
            .slots
            .get(&number)
            .is_some_and(|slot| slot.sockets == 0 && !slot.has_session)
        {
            if let Some(row) = self.rows.iter_mut().find(|row| row.number == number) {
                row.clear();
            }
            // To unmap what was used takes a while.
            if let Some(slot) = self.slots.remove(&number) {
                slot.user.run(move || drop(slot.region));
            }
        }
    }

    /// Memory that all of them take now. A program or user that has more than it may is given no more windows.
    pub fn measure(&mut self) -> u64 {
        let mut all = 0;
        self.shares.begin_measuring();
        for slot in self.slots.values_mut() {
            slot.memory_bytes = 0;
            slot.measure(&mut self.shares);
            all += slot.memory_bytes;
        }
        self.shares.end_measuring();
        all
    }

    /// Memory that the windows of a region took when that was measured last.
    pub fn memory_bytes(&self, number: u32) -> u64 {
        self.slots.get(&number).map_or(0, |slot| slot.memory_bytes)
    }

    /// What users and programs were refused.
    pub fn refused(&self) -> Refused {
        self.shares.refused
    }

    /// Number of regions.
    pub fn len(&self) -> usize {
        self.slots.len()
    }
}

/// Gives the memory of a pair of windows back to the system.
fn give_back(region: &Region, pair: u32) {
    let spans = region.window_pair(pair).map(<[_; 2]>::from);
    for span in spans.into_iter().flatten() {
        if let Err(errno) = region.punch_hole(span) {
            tracing::warn!(%errno, "cannot give back the memory of a window");
        }
    }
}
