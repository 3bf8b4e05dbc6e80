//! The regions that the engine has made: which headers and window pairs of each are in use.
//!
//! A region outlives its session while sockets still use it, for a forked child may hold them.

use crate::programs::users::{Finished, FinishedSender, User};
use hostif::Region;
use hostif::id::{IdMap, number_of_core};
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

    fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            (self.used < self.limit).then(|| {
                self.used += 1;
                self.used - 1
            })
        })
    }
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
}

/// All regions of a core by number.
pub struct Regions {
    core: u16,
    answers: FinishedSender,
    slots: IdMap<u32, SessionRegion>,
    last: u32,
}

impl Regions {
    /// No regions yet.
    pub fn new(core: u16, answers: FinishedSender) -> Self {
        Self {
            core,
            answers,
            slots: IdMap::default(),
            last: 0,
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

    /// Keeps a region whose session lives, of a program of that user.
    pub fn insert(&mut self, region: Region, user: Arc<User>) {
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
                has_session: true,
                user,
            },
        );
    }

    /// The region of that number.
    pub fn find(&self, number: u32) -> Option<&Region> {
        self.slots.get(&number).map(|slot| &slot.region)
    }

    /// Whose region that is.
    pub fn owner(&self, number: u32) -> Option<&User> {
        self.slots.get(&number).map(|slot| &*slot.user)
    }

    /// Takes a header for a new socket.
    pub fn take_header(&mut self, number: u32) -> Option<u32> {
        let slot = self.slots.get_mut(&number)?;
        let header = slot.headers.take()?;
        slot.sockets += 1;
        Some(header)
    }

    /// Takes a pair of windows, which can be used from now on.
    pub fn take_pair(&mut self, number: u32) -> Option<u32> {
        let slot = self.slots.get_mut(&number)?;
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
            // To unmap what was used takes a while.
            if let Some(slot) = self.slots.remove(&number) {
                slot.user.run(move || drop(slot.region));
            }
        }
    }

    /// Memory that all of them take now.
    pub fn allocated_bytes(&self) -> u64 {
        let each = self.slots.values();
        each.map(|slot| slot.region.allocated_bytes().unwrap_or(0))
            .sum()
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
