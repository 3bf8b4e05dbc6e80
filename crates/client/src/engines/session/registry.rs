//! Which sockets this process has, and who wants to hear of each.

use core::any::Any;
use std::sync::{Arc, Weak};

use hostif::id::IdMap;
use hostif::{ChannelRegion, Region, SocketId};

use smallvec::SmallVec;

use crate::threads::waker::Waker;

/// Memory of local peers that is kept mapped for their next connections; an engine has no more local peers at one time.
const CHANNEL_REGIONS_MAX: usize = 32;

/// Observers and waiters that one batch of events mostly concerns.
const FEW: usize = 32;

/// Hears that a socket's state may have changed. Called by whichever thread noticed, with no lock of
/// this crate held; must not sleep, and must not wait for a lock whose holder waits for this crate.
pub trait Observer: Send + Sync {
    /// An event of the engine: look at the socket again. Each is counted in the socket's header before it is told.
    fn on_ready(&self);

    /// A change that no event of the engine tells of: look at the socket again.
    fn on_change(&self) {
        self.on_ready();
    }
}

/// A socket of this process, of whatever protocol, as far as its session knows it.
pub trait EngineSocket: Any + Send + Sync {
    /// Its engine, or the name that its engine knew it by, is gone for good.
    fn lose(&self);
}

/// One socket's entry.
struct Entry {
    socket: Weak<dyn EngineSocket>,
    observers: Vec<(u64, Arc<dyn Observer>)>,
    waiters: Vec<Arc<Waker>>,
}

/// All sockets and regions of a process.
#[derive(Default)]
pub struct Registry {
    sockets: IdMap<SocketId, Entry>,
    regions: IdMap<u32, Region>,
    channel_regions: IdMap<u32, ChannelRegion>,
}

/// Whom to tell about one event; gathered under the lock, told without it. A few take no heap.
#[derive(Default)]
pub struct Notifications {
    observers: SmallVec<[Arc<dyn Observer>; FEW]>,
    waiters: SmallVec<[Arc<Waker>; FEW]>,
}

impl Notifications {
    /// Tells them of events of the engine and forgets them.
    pub fn tell(&mut self) {
        self.tell_by(|observer| observer.on_ready());
    }

    /// Tells them of changes that no event tells of and forgets them.
    pub fn tell_change(&mut self) {
        self.tell_by(|observer| observer.on_change());
    }

    fn tell_by(&mut self, tell: impl Fn(&dyn Observer)) {
        for observer in self.observers.drain(..) {
            tell(&*observer);
        }
        for waiter in self.waiters.drain(..) {
            waiter.wake();
        }
    }
}

impl Registry {
    /// A new socket.
    pub fn insert(&mut self, id: SocketId, socket: Weak<dyn EngineSocket>) {
        let entry = Entry {
            socket,
            observers: Vec::new(),
            waiters: Vec::new(),
        };
        self.sockets.insert(id, entry);
    }

    /// The socket of that name, if this process has it.
    pub fn find(&self, id: SocketId) -> Option<Arc<dyn Any + Send + Sync>> {
        let socket = self.sockets.get(&id)?.socket.upgrade()?;
        Some(socket)
    }

    /// A socket is gone.
    pub fn remove(&mut self, id: SocketId) {
        self.sockets.remove(&id);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Whether no socket is left.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Forgets all sockets; those that live.
    pub fn take_sockets(&mut self) -> Vec<Arc<dyn EngineSocket>> {
        let entries = core::mem::take(&mut self.sockets);
        entries
            .into_values()
            .filter_map(|entry| entry.socket.upgrade())
            .collect()
    }

    /// Adds an observer under a token of the caller's choice, in place of one with the same token.
    pub fn observe(&mut self, id: SocketId, token: u64, observer: Arc<dyn Observer>) {
        if let Some(entry) = self.sockets.get_mut(&id) {
            entry.observers.retain(|(other, _)| *other != token);
            entry.observers.push((token, observer));
        }
    }

    /// Removes the observer with that token.
    pub fn forget(&mut self, id: SocketId, token: u64) {
        if let Some(entry) = self.sockets.get_mut(&id) {
            entry.observers.retain(|(other, _)| *other != token);
        }
    }

    /// A thread waits for a socket.
    pub fn add_waiter(&mut self, id: SocketId, waker: &Arc<Waker>) {
        if let Some(entry) = self.sockets.get_mut(&id) {
            entry.waiters.push(Arc::clone(waker));
        }
    }

    /// It does no more.
    pub fn remove_waiter(&mut self, id: SocketId, waker: &Arc<Waker>) {
        if let Some(entry) = self.sockets.get_mut(&id)
            && let Some(at) = entry
                .waiters
                .iter()
                .position(|other| Arc::ptr_eq(other, waker))
        {
            entry.waiters.swap_remove(at);
        }
    }

    /// In a forked child: the threads that waited are not here. Each of them once, for however many sockets it waited.
    pub fn remove_all_waiters(&mut self) -> Vec<Arc<Waker>> {
        let entries = self.sockets.values_mut();
        let mut wakers: Vec<Arc<Waker>> =
            entries.flat_map(|entry| entry.waiters.drain(..)).collect();
        wakers.sort_unstable_by_key(|waker| Arc::as_ptr(waker).addr());
        wakers.dedup_by(|one, other| Arc::ptr_eq(one, other));
        wakers
    }

    /// Adds those who want to hear of a socket.
    pub fn gather(&self, id: SocketId, notifications: &mut Notifications) {
        if let Some(entry) = self.sockets.get(&id) {
            notifications
                .observers
                .extend(entry.observers.iter().map(|(_, one)| Arc::clone(one)));
            notifications
                .waiters
                .extend(entry.waiters.iter().map(Arc::clone));
        }
    }

    /// Adds everybody.
    pub fn gather_all(&self, notifications: &mut Notifications) {
        for id in self.sockets.keys() {
            self.gather(*id, notifications);
        }
    }

    /// A mapped region.
    pub fn region(&self, id: u32) -> Option<Region> {
        self.regions.get(&id).cloned()
    }

    /// Mapped memory that is shared with a local peer.
    pub fn channel_region(&self, number: u32) -> Option<ChannelRegion> {
        self.channel_regions.get(&number).cloned()
    }

    /// Remembers it, and forgets the oldest: sockets keep theirs.
    pub fn add_channel_region(&mut self, number: u32, channel_region: ChannelRegion) {
        self.channel_regions.insert(number, channel_region);
        if self.channel_regions.len() > CHANNEL_REGIONS_MAX
            && let Some(oldest) = self.channel_regions.keys().min().copied()
        {
            self.channel_regions.remove(&oldest);
        }
    }

    /// Another engine has its own, under the same numbers.
    pub fn forget_memory(&mut self) {
        self.channel_regions.clear();
        self.regions.clear();
    }

    /// Remembers a mapped region.
    pub fn add_region(&mut self, region: Region) {
        self.regions.insert(region.id(), region);
    }
}
