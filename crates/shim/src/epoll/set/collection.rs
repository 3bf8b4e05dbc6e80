//! What is reported of the ready list at once.
//!
//! Many servers accept one connection for each time that a wait reports their listener, and then serve what else was reported. Where
//! hundreds of connections are served and hundreds wait, each of these would wait for a round of all those: with an engine a server's rounds
//! are long, as it does more of the work itself (decision 122). So a listener stands in front of the ready list, and beside it a
//! collection reports few others; they keep their order.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use super::{EDGE, Interest, Members, ONE_SHOT, PRIVATE, Set};

/// So many others are reported beside a listener.
const BESIDE_LISTENER: usize = 4;

/// A collection of ready interests, in as many parts as its caller wants: each interest is reported once.
pub struct Collection<'a> {
    set: &'a Set,
    _members: MutexGuard<'a, Members>,
    /// Not looked at yet. What is put back meanwhile waits for the next collection.
    left: usize,
    /// Listeners that are ready still, and are put back in front at the end.
    listeners: Vec<Arc<Interest>>,
    /// So many others may be reported.
    room: usize,
}

impl Set {
    /// Begins a collection. Nobody else registers or collects while it lives.
    pub fn collection(&self) -> Collection<'_> {
        Collection {
            set: self,
            _members: self.members(),
            left: self.ready().len(),
            listeners: Vec::new(),
            room: usize::MAX,
        }
    }
}

impl Collection<'_> {
    /// Reports up to `out.len()` ready interests and says how many. `reported` learns of each.
    pub fn fill(
        &mut self,
        out: &mut [libc::epoll_event],
        reported: &mut dyn FnMut(&Arc<Interest>),
    ) -> usize {
        let mut filled = 0;
        while self.left > 0 && self.room > 0 && filled < out.len() {
            self.left -= 1;
            let Some(interest) = self.set.ready().pop_front() else {
                break;
            };
            // Before asking for events: what happens from now on queues it again.
            interest.queued.store(false, Ordering::SeqCst);
            if interest.removed.load(Ordering::Relaxed) {
                continue;
            }
            let events = interest.due();
            if events == 0 {
                continue;
            }
            let (mask, data) = interest.wish();
            out[filled] = libc::epoll_event { events, u64: data };
            filled += 1;
            let goes_first = interest.goes_first();
            self.room = match goes_first {
                true => self.room.min(BESIDE_LISTENER),
                false => self.room - 1,
            };
            if mask & ONE_SHOT != 0 {
                interest.mask.store(mask & PRIVATE, Ordering::Relaxed);
            } else if goes_first {
                // As if it were in the list: what happens meanwhile does not bring it into this collection again.
                interest.queued.store(true, Ordering::SeqCst);
                self.listeners.push(Arc::clone(&interest));
            } else if mask & EDGE == 0 {
                self.set.enqueue(&interest);
            }
            reported(&interest);
        }
        filled
    }

    /// Whether others may be ready too, for which there was space.
    pub fn is_cut(&self) -> bool {
        self.room == 0 && self.left > 0
    }
}

impl Drop for Collection<'_> {
    fn drop(&mut self) {
        let mut ready = self.set.ready();
        for listener in self.listeners.drain(..).rev() {
            ready.push_front(listener);
        }
    }
}
