//! The interests of one epoll instance that the kernel cannot watch, and which of them are ready:
//! `fs/eventpoll.c` of Linux in small. Read epoll(7) first.
//!
//! Whoever learns of an event puts the interest on the ready list; a collection takes from the list,
//! asks what holds now, reports that, and puts level-triggered interests back at the end. So a wait
//! costs as much as there are ready sockets, however many are watched. Listeners stand in front of all others.
//!
//! Locks: `members` stands for `ep->mtx` (one collection or change at a time), `ready` is a leaf taken
//! for single pushes and pops; event sources take `ready` only. Sets are never freed but used again,
//! so that fork(2) can hold the locks of all of them (`fork.rs`).

mod collection;

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::RawFd;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::Watchers;
use switch::readiness::{ALWAYS, IN, RDNORM};

/// Report only what is new.
pub const EDGE: u32 = 1 << 31;
/// Report once, then wait for EPOLL_CTL_MOD.
pub const ONE_SHOT: u32 = 1 << 30;
/// Keep the machine awake; accepted and ignored.
pub const WAKE_UP: u32 = 1 << 29;
/// Wake one waiter; accepted, every waiter of a set is woken by one eventfd anyway.
pub const EXCLUSIVE: u32 = 1 << 28;
/// Bits that say how to report rather than what (EP_PRIVATE_BITS).
const PRIVATE: u32 = EDGE | ONE_SHOT | WAKE_UP | EXCLUSIVE;

/// Something whose events the kernel does not know.
pub trait Watched: Send + Sync {
    /// The event bits that hold now; from atomics, since collections call it under a lock.
    fn events(&self) -> u32;

    /// Those that may hold, asked where something has happened, under whatever locks.
    fn hint(&self) -> u32 {
        self.events()
    }

    /// Whether it has connections that wait to be accepted, or may have.
    fn is_listener(&self) -> bool {
        false
    }
}

/// Who watches an interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedBy {
    /// The kernel's epoll: the socket is not decided.
    Kernel,
    /// This set.
    Engine,
    /// Both: a listener with connections from both sides.
    Both,
}

/// One registration.
pub struct Interest {
    /// The descriptor number it was registered by.
    pub fd: RawFd,
    target: Arc<dyn Watched>,
    set: &'static Set,
    mask: AtomicU32,
    data: AtomicU64,
    place: AtomicU8,
    /// As its target said when it was last decided who watches it.
    is_listener: AtomicBool,
    queued: AtomicBool,
    removed: AtomicBool,
}

impl Interest {
    /// The program's mask and data.
    pub fn wish(&self) -> (u32, u64) {
        (
            self.mask.load(Ordering::Relaxed),
            self.data.load(Ordering::Relaxed),
        )
    }

    /// Who watches it.
    pub fn place(&self) -> WatchedBy {
        match self.place.load(Ordering::Relaxed) {
            0 => WatchedBy::Kernel,
            1 => WatchedBy::Engine,
            _ => WatchedBy::Both,
        }
    }

    /// Whether it was deleted, or its set is used by another instance now.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    fn set_place(&self, place: WatchedBy) {
        let code = match place {
            WatchedBy::Kernel => 0,
            WatchedBy::Engine => 1,
            WatchedBy::Both => 2,
        };
        self.place.store(code, Ordering::Relaxed);
        let is_listener = self.target.is_listener();
        self.is_listener.store(is_listener, Ordering::Relaxed);
    }

    /// Whether it stands in front of those that are no listeners. One that is told of once has all its connections accepted then.
    fn goes_first(&self) -> bool {
        self.is_listener.load(Ordering::Relaxed) && self.mask.load(Ordering::Relaxed) & EDGE == 0
    }

    /// The set it belongs to.
    pub fn set(&self) -> &'static Set {
        self.set
    }

    /// The events that would be reported now.
    fn due(&self) -> u32 {
        match self.asked_for() {
            0 => 0,
            asked_for => self.target.events() & asked_for,
        }
    }

    /// The events that this set is to report.
    fn asked_for(&self) -> u32 {
        let mask = self.mask.load(Ordering::Relaxed);
        // A fired one-shot has no bit but the private ones left, and then ALWAYS is off too.
        if mask & !PRIVATE == 0 || self.place() == WatchedBy::Kernel {
            return 0;
        }
        mask | ALWAYS
    }

    /// Something of `changed` has happened: queue the interest if that was wished for, and wake who
    /// sleeps on the set. What an edge-triggered interest then reports is all that holds, as in Linux.
    pub fn notify(self: &Arc<Self>, changed: u32) {
        let (mask, asked_for) = (self.wish().0, self.asked_for());
        // One that is queued is asked when it is collected.
        let may_be_due =
            || self.queued.load(Ordering::SeqCst) || self.target.hint() & asked_for != 0;
        if changed & (mask | ALWAYS) != 0
            && asked_for != 0
            && may_be_due()
            && !self.removed.load(Ordering::Relaxed)
        {
            self.set.enqueue(self);
            self.set.waker.wake();
            self.set.outer.notify(IN | RDNORM);
        }
    }
}

/// Key as in the kernel: the number and the open file, so that a number that was closed while a
/// duplicate lives does not collide with its successor.
type Key = (RawFd, usize);

/// Registrations of a set.
#[derive(Default)]
pub struct Members {
    interests: HashMap<Key, Arc<Interest>>,
    /// Those with [`WatchedBy::Both`]; a few listeners.
    both: Vec<Arc<Interest>>,
    /// How many have [`WatchedBy::Kernel`].
    in_kernel: usize,
    /// Numbers registered with the kernel's epoll; those closed meanwhile may linger here.
    foreign: HashSet<RawFd>,
}

/// The interests of an epoll instance and its ready list.
#[derive(Default)]
pub struct Set {
    members: Mutex<Members>,
    ready: Mutex<VecDeque<Arc<Interest>>>,
    /// Interests with a place other than [`WatchedBy::Kernel`].
    served: AtomicUsize,
    /// How many interests the kernel's epoll watches.
    in_kernel: AtomicUsize,
    /// A number of the kernel's epoll, the one last used.
    descriptor: AtomicI32,
    /// Threads inside libc's own epoll_wait.
    pub plain_waiters: AtomicU32,
    /// What wakes the threads that sleep in the switch.
    pub waker: crate::wait::waker::Waker,
    /// The epoll instances that watch this one.
    pub outer: Watchers,
}

/// A change that the rules of epoll_ctl(2) forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// EEXIST.
    AlreadyThere,
    /// ENOENT.
    NotThere,
    /// EINVAL.
    Invalid,
}

impl Set {
    /// How many interests need the switch.
    pub fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }

    /// Whether the kernel's epoll watches anything.
    pub fn has_kernel_members(&self) -> bool {
        self.in_kernel.load(Ordering::SeqCst) != 0
    }

    /// A number of the kernel's epoll.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor.load(Ordering::Relaxed)
    }

    /// Remembers a number of the kernel's epoll.
    pub fn set_descriptor(&self, fd: RawFd) {
        self.descriptor.store(fd, Ordering::Relaxed);
    }

    /// The lock over the registrations; a panic under it left nothing half done that matters.
    pub fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock over the ready list.
    pub fn ready(&self) -> MutexGuard<'_, VecDeque<Arc<Interest>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether the number is registered with the kernel's epoll.
    pub fn note_foreign(&self, fd: RawFd, there: bool) {
        let mut members = self.members();
        if there {
            members.foreign.insert(fd);
        } else {
            members.foreign.remove(&fd);
        }
        self.publish(&members);
    }

    /// EPOLL_CTL_ADD.
    pub fn add(
        &'static self,
        fd: RawFd,
        target: Arc<dyn Watched>,
        (mask, data): (u32, u64),
        place: WatchedBy,
    ) -> Result<Arc<Interest>, Refused> {
        let key = key(fd, &target);
        let mut members = self.members();
        if members.interests.contains_key(&key) {
            return Err(Refused::AlreadyThere);
        }
        check_exclusive(mask)?;
        let interest = Arc::new(Interest {
            fd,
            target,
            set: self,
            mask: AtomicU32::new(mask),
            data: AtomicU64::new(data),
            place: AtomicU8::new(0),
            is_listener: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            removed: AtomicBool::new(false),
        });
        interest.set_place(place);
        members.count_in(&interest);
        members.interests.insert(key, Arc::clone(&interest));
        self.publish(&members);
        // Whoever waits first when the process may have no more descriptors finds it made.
        let _ = self.waker.number();
        Ok(interest)
    }

    /// EPOLL_CTL_MOD.
    pub fn modify(
        &self,
        fd: RawFd,
        target: &Arc<dyn Watched>,
        (mask, data): (u32, u64),
    ) -> Result<Arc<Interest>, Refused> {
        let members = self.members();
        let interest = members
            .interests
            .get(&key(fd, target))
            .ok_or(Refused::NotThere)?;
        let exclusive = (mask | interest.mask.load(Ordering::Relaxed)) & EXCLUSIVE != 0;
        if exclusive {
            return Err(Refused::Invalid);
        }
        interest.mask.store(mask, Ordering::Relaxed);
        interest.data.store(data, Ordering::Relaxed);
        Ok(Arc::clone(interest))
    }

    /// EPOLL_CTL_DEL, or the last close of the file.
    pub fn remove(&self, fd: RawFd, target: &Arc<dyn Watched>) -> Result<Arc<Interest>, Refused> {
        let mut members = self.members();
        let interest = members
            .interests
            .remove(&key(fd, target))
            .ok_or(Refused::NotThere)?;
        interest.removed.store(true, Ordering::Relaxed);
        members.count_out(&interest);
        self.publish(&members);
        Ok(interest)
    }

    /// What is registered.
    pub fn find(&self, fd: RawFd, target: &Arc<dyn Watched>) -> Option<Arc<Interest>> {
        self.members()
            .interests
            .get(&key(fd, target))
            .map(Arc::clone)
    }

    /// Removes `interest` whatever its number stands for now.
    pub fn remove_interest(&self, interest: &Interest) {
        // Not there any more: somebody else removed it first, which is as good.
        let _ = self.remove(interest.fd, &interest.target);
    }

    /// Moves an interest between the kernel's epoll and this set.
    pub fn set_place(&self, interest: &Arc<Interest>, place: WatchedBy) {
        let mut members = self.members();
        if interest.removed.load(Ordering::Relaxed) {
            return;
        }
        members.count_out(interest);
        interest.set_place(place);
        members.count_in(interest);
        self.publish(&members);
    }

    /// The listener with connections from both sides that the kernel reported with `data`.
    pub fn kernel_reported(&self, data: u64) -> Option<Arc<Interest>> {
        self.members()
            .both
            .iter()
            .find(|interest| interest.wish().1 == data)
            .map(Arc::clone)
    }

    /// A one-shot interest has been reported by the kernel: it is spent here too.
    pub fn spend(&self, interest: &Interest) {
        let _members = self.members();
        interest.mask.fetch_and(PRIVATE, Ordering::Relaxed);
    }

    /// Whether a collection would report something; drops what is no longer ready on the way.
    pub fn has_ready(&self) -> bool {
        let _members = self.members();
        self.has_due()
    }

    /// As [`Set::has_ready`], under the lock over the registrations.
    fn has_due(&self) -> bool {
        loop {
            let Some(first) = self.ready().front().map(Arc::clone) else {
                return false;
            };
            if !first.removed.load(Ordering::Relaxed) && first.due() != 0 {
                return true;
            }
            first.queued.store(false, Ordering::SeqCst);
            self.ready().pop_front();
            // An event between the question and the pop has found it queued: ask again.
            if !first.removed.load(Ordering::Relaxed) && first.due() != 0 {
                self.enqueue(&first);
            }
        }
    }

    /// The events of the set itself, for an epoll instance that watches it: what its collection would find, or
    /// what it may find while another thread is at it. No lock is waited for: sets are nested in any order.
    pub fn own_events(&self) -> u32 {
        let is_ready = match self.members.try_lock() {
            Ok(_) | Err(TryLockError::Poisoned(_)) => self.has_due(),
            Err(TryLockError::WouldBlock) => !self.ready().is_empty(),
        };
        if is_ready { IN | RDNORM } else { 0 }
    }

    /// The same where something has happened.
    pub fn own_hint(&self) -> u32 {
        if self.ready().is_empty() {
            0
        } else {
            IN | RDNORM
        }
    }

    fn enqueue(&self, interest: &Arc<Interest>) {
        if !interest.queued.swap(true, Ordering::SeqCst) {
            let mut ready = self.ready();
            if interest.goes_first() {
                ready.push_front(Arc::clone(interest));
            } else {
                ready.push_back(Arc::clone(interest));
            }
        }
    }

    /// Empties the set, for another epoll instance to use it.
    pub fn clear(&self) {
        let mut members = self.members();
        for interest in members.interests.values() {
            interest.removed.store(true, Ordering::Relaxed);
        }
        *members = Members::default();
        self.publish(&members);
        self.ready().clear();
    }

    fn publish(&self, members: &Members) {
        let served = members.interests.len() - members.in_kernel;
        self.served.store(served, Ordering::SeqCst);
        let in_kernel = members.foreign.len() + members.in_kernel + members.both.len();
        self.in_kernel.store(in_kernel, Ordering::SeqCst);
    }
}

impl Members {
    fn count_in(&mut self, interest: &Arc<Interest>) {
        match interest.place() {
            WatchedBy::Kernel => self.in_kernel += 1,
            WatchedBy::Both => self.both.push(Arc::clone(interest)),
            WatchedBy::Engine => {}
        }
    }

    fn count_out(&mut self, interest: &Arc<Interest>) {
        match interest.place() {
            WatchedBy::Kernel => self.in_kernel -= 1,
            WatchedBy::Both => self.both.retain(|one| !Arc::ptr_eq(one, interest)),
            WatchedBy::Engine => {}
        }
    }
}

fn key(fd: RawFd, target: &Arc<dyn Watched>) -> Key {
    (fd, Arc::as_ptr(target).cast::<()>().addr())
}

/// EPOLLEXCLUSIVE goes with few other bits (epoll_ctl(2)).
fn check_exclusive(mask: u32) -> Result<(), Refused> {
    let allowed =
        EXCLUSIVE | EDGE | WAKE_UP | ALWAYS | switch::readiness::IN | switch::readiness::OUT;
    if mask & EXCLUSIVE != 0 && mask & !allowed != 0 {
        Err(Refused::Invalid)
    } else {
        Ok(())
    }
}
