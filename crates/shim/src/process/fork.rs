//! fork(2): the locks of the switch are held across it, so that none is left locked in the child by a
//! thread that is not there; then the child counts its references anew and hangs up its own bells.
//!
//! vfork(2) and posix_spawn(3) run no handlers and need none: their child only closes and execs.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use crate::epoll::set::{Interest, Members, Set};
use crate::epoll::{SETS, Sets};
use crate::fd_table::descriptors;
use crate::fd_table::file;
use crate::inline;
use crate::process;
use crate::sys::Inside;
use c_memory::allocator;
use switch::attached;

/// Everything held across a fork, in the order in which it was taken.
struct ForkLocks {
    /// Released first.
    engine: Option<Box<dyn inline::Standstill>>,
    _ready: Vec<MutexGuard<'static, VecDeque<Arc<Interest>>>>,
    _members: Vec<MutexGuard<'static, Members>>,
    sets: MutexGuard<'static, Sets>,
    _asking: MutexGuard<'static, ()>,
    /// Released last: then handlers of signals run.
    _inside: Inside,
}

thread_local! {
    // Without a destructor: a thread may end after the library is torn down.
    static HELD: RefCell<ManuallyDrop<Option<ForkLocks>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Before the fork, in the thread that forks.
pub fn prepare() {
    if !inline::is_leaving() {
        stand_still();
    }
    // The very last: nothing can be allocated from now on.
    allocator::hold();
}

fn stand_still() {
    process::note_departure();
    let inside = Inside::enter();
    crate::fd_table::inherited::leave_all();
    let asking = crate::fd_table::inherited::hold();
    let sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    // The order of all code: members, then what the client locks, then ready.
    let members = sets.all.iter().map(|set| set.members()).collect();
    attached::fork_prepare();
    let ready = sets.all.iter().map(|set| set.ready()).collect();
    // Last, since the client has just asked the engine for something.
    let engine = inline::fork_prepare();
    let held = ForkLocks {
        engine,
        _ready: ready,
        _members: members,
        sets,
        _asking: asking,
        _inside: inside,
    };
    HELD.with(|place| place.borrow_mut().replace(held));
}

/// After the fork, in the parent.
pub fn parent() {
    allocator::release();
    if inline::is_leaving() {
        return;
    }
    attached::fork_parent();
    let held = HELD.with(|place| place.borrow_mut().take());
    drop(held);
}

/// After the fork, in the child, whose only thread this is.
pub fn child() {
    allocator::release();
    if inline::is_leaving() {
        return;
    }
    let _inside = Inside::enter();
    client::forget_thread_number();
    process::own_memory();
    crate::wait::lost_engines::reset_in_child();
    attached::fork_child();
    let mut held = HELD.with(|place| place.borrow_mut().take());
    inline::fork_child(held.as_mut().and_then(|held| held.engine.take()));
    let sets: Vec<&'static Set> = held
        .as_ref()
        .map_or_else(Vec::new, |held| held.sets.all.clone());
    drop(held);
    for set in sets {
        set.waker.reset_in_child();
        set.plain_waiters.store(0, Ordering::SeqCst);
    }
    recount_references();
}

fn recount_references() {
    file::forget_sleepers();
    let files: Vec<_> = descriptors::tracked_in(0, i32::MAX)
        .filter_map(descriptors::known)
        .collect();
    let mut seen = HashSet::new();
    for file in &files {
        if seen.insert(Arc::as_ptr(file)) {
            file.forget_references();
        }
        file.add_descriptor();
    }
}
